"""Bad pixels found late, and a second exposure: the restored picture is updated without starting over.

    python examples/qr_updating.py              prints the table
    python examples/qr_updating.py --picture    also writes docs/qr_updating.png

A frame of 64 x 64 pixels is restored by QR, min ‖Hf − g‖² + λ‖f‖². Then its salt-and-pepper pixels are noticed, and
their rows are removed from the factorisation. Then a second exposure with another blur arrives, and its rows are
added. Each time the same is also computed from scratch. The seconds are those of one run on this machine.
A few bad pixels are a few rows, and removing them costs far less than starting over. An exposure has as many rows as
the picture has pixels, and adding them saves little.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import deblur

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--picture", action="store_true")
arguments = parser.parse_args()

SIZE, LAM, NOISE, DENSITY = 64, 1e-2, 0.01, 0.02
psfs = deblur.psf.camera_shake(7, 3), deblur.psf.camera_shake(7, 11)
# A scene that goes on beyond the frame, by as much as the PSFs reach.
side = SIZE + 7 - 1
scene = deblur.data.load("camera")[90 : 90 + 2 * side, 170 : 170 + 2 * side]
scene = scene.reshape(side, 2, side, 2).mean(axis=(1, 3))
sharp = scene[3:-3, 3:-3]
first, second = (deblur.degrade(scene, psf, noise=NOISE, boundary="unknown", seed=i) for i, psf in enumerate(psfs))
rng = np.random.default_rng(7)
bad = rng.random(first.shape) < DENSITY
first[bad] = rng.integers(0, 2, bad.sum())


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


panels = [("first exposure", first)]
rows: list[tuple[str, float, float, float, float]] = []


def row(what, update, scratch, image, reference):
    """One line: both times, how well the picture came out, and that both ways give the same one."""
    rows.append((what, update, scratch, deblur.metrics.mse(sharp, image), np.abs(image - reference).max()))
    panels.append((what, image))


set_up, restore = timed(lambda: deblur.QRDeblurrer(psfs[0], first.shape, LAM, boundary="unknown"))
image = restore(first)
row("nothing noticed", float("nan"), set_up, image, image)

update, _ = timed(lambda: restore.hide(bad, method="update"))
scratch, other = timed(lambda: deblur.QRDeblurrer(psfs[0], first.shape, LAM, boundary="unknown", mask=bad))
row(f"{bad.sum()} bad pixels hidden", update, scratch, restore(first), other(first))

update, _ = timed(lambda: restore.add_exposure(psfs[1], method="update"))
scratch, _ = timed(lambda: other.add_exposure(psfs[1], method="refactor"))
row("second exposure added", update, scratch, restore(first, second), other(first, second))

print(f"{SIZE} x {SIZE} pixels, λ = {LAM:g}, noise {NOISE:g}, {DENSITY:.0%} salt and pepper in the first exposure\n")
print(f"{'':<26}{'update':>10}{'from scratch':>14}{'MSE':>11}{'difference':>13}")
for what, update, scratch, mse, difference in rows:
    seconds = "" if np.isnan(update) else f"{update:.3f} s"
    print(f"{what:<26}{seconds:>10}{f'{scratch:.3f} s':>14}{mse:>11.2e}{difference:>13.0e}")

if arguments.picture:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    for ax, (title, picture) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    target = Path(__file__).parent.parent / "docs" / "qr_updating.png"
    figure.savefig(target, dpi=90)
    print(f"\nwritten: {target}")
