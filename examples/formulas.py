"""The two formulas on one blurred picture: the same for a symmetric PSF, and not for any other.

    python examples/formulas.py            prints the table and writes docs/formulas.png
    python examples/formulas.py --check    prints the table only

f = Hᵀ(HHᵀ + λI)⁻¹ g minimises ‖Hf − g‖² + λ‖f‖². The thesis writes f = (HHᵀ + λI)⁻¹Hᵀ g. Both are the same image if
HHᵀ = HᵀH, as for a point-symmetric PSF with boundary "zero". Otherwise the second formula minimises nothing.
"""

import argparse
from pathlib import Path

import deblur

SIZE, LAM = 64, 1e-3
PSFS = {"disk (point-symmetric)": deblur.psf.disk(7), "camera shake (not)": deblur.psf.camera_shake(17, 3)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--check", action="store_true", help="write no picture")
arguments = parser.parse_args()

sharp = deblur.data.load("camera")[96 : 96 + SIZE, 96 : 96 + SIZE]
panels = [("sharp", sharp)]
print(f"{SIZE} x {SIZE} pixels, λ = {LAM:g}, no noise, zero boundary; PSNR in dB\n")
print(f"{'PSF':<24}{'blurred':>9}{'tikhonov':>10}{'hht':>9}")
for name, psf in PSFS.items():
    blurred = deblur.degrade(sharp, psf)
    restored = {f: deblur.reconstruct(blurred, psf, LAM, formula=f, boundary="zero") for f in ("tikhonov", "hht")}
    quality = {f: deblur.metrics.psnr(sharp, image) for f, image in restored.items()}
    print(f"{name:<24}{deblur.metrics.psnr(sharp, blurred):9.1f}{quality['tikhonov']:10.1f}{quality['hht']:9.1f}")
    panels += [(f"{name}\nblurred", blurred)]
    panels += [(f"{f}, {quality[f]:.1f} dB", image) for f, image in restored.items()]

if not arguments.check:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * 1.9, 2.4), layout="constrained")
    for ax, (title, image) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    target = Path(__file__).parent.parent / "docs" / "formulas.png"
    figure.savefig(target, dpi=100)
    print(f"\nwritten: {target}")
