"""The shortest useful program: a blurred picture, its PSF, the restored picture.

python examples/first_steps.py              prints what was done
python examples/first_steps.py --picture    also writes docs/first_steps.png
"""

import sys
from pathlib import Path
from typing import Any

import deblur

sharp = deblur.data.load("camera")
psf = deblur.psf.disk(7)
blurred = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", seed=0)

result = deblur.solve(blurred, psf, "gcv", boundary="unknown")
print(result)

inside = sharp[3:-3, 3:-3]  # the part of the scene that the blurred picture shows
before, after = (deblur.metrics.psnr(inside, picture) for picture in (blurred, result.image))
print(f"\nPSNR {before:.2f} dB blurred, {after:.2f} dB restored")

if "--picture" in sys.argv:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.3), layout="constrained")
    grey: dict[str, float] = {"vmin": 0, "vmax": 1}
    panels: list[tuple[str, Any, dict[str, float]]] = [
        (f"blurred, {before:.1f} dB", blurred, grey),
        (f"restored, {after:.1f} dB", result.image, grey),
        ("data minus reblurred scene", result.residual_image, {}),
    ]
    for ax, (title, picture, limits) in zip(figure.subplots(1, 3), panels, strict=True):
        ax.imshow(picture, cmap="gray", **limits)
        ax.set_title(title, fontsize=10)
        ax.axis("off")
    figure.savefig(Path(__file__).parent.parent / "docs" / "first_steps.png", dpi=90)
