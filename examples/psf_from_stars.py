"""A star field: the PSF measured from its stars, how it varies, and the field restored with it.

python examples/psf_from_stars.py

The synthetic telescope has coma and defocus that grow towards a corner, and a hundred stars with noise.
"""

import numpy as np

import deblur
from deblur.device import Array

SHAPE = (256, 256)
rng = np.random.default_rng(1)


def seen_at(row: float, column: float, y: Array, x: Array) -> Array:
    """A star at a place of the field, at distances y and x from it: wider, and with a tail, away from one corner."""
    far = (row / SHAPE[0] + column / SHAPE[1]) / 2
    sigma = 1.2 + 0.6 * far
    tail = sum(
        (1 - t) * np.exp(-((y - 3 * t * far) ** 2 + (x - 2 * t * far) ** 2) / (2 * (sigma * (1 + t)) ** 2))
        for t in (0.0, 0.5)
    )
    return tail / (2 * np.pi * sigma**2)


y, x = np.indices(SHAPE)
sky = 0.1 + 0.004 * rng.standard_normal(SHAPE)
for _ in range(100):
    row, column = rng.uniform(2, 253, 2)
    sky += 10 ** rng.uniform(0.2, 1.4) * seen_at(row, column, y - row, x - column)

found = deblur.psf.from_points(sky, size=17, grid=(3, 3))
print(found)

assert found.map is not None
print("\nacross the field, of the PSF there:")
for name, varied in (("one PSF", np.broadcast_to(found.psf, found.map.psfs.shape)), ("the map", found.map.psfs)):
    errors = []
    for (row, column), psf in zip(found.map.positions.reshape(-1, 2), varied.reshape(-1, 17, 17), strict=True):
        at = np.arange(17.0) - 8
        truth = seen_at(row, column, at[:, None], at[None, :])
        truth = deblur.psf.recentre(truth / truth.sum())
        errors.append(float(np.linalg.norm(psf - truth) / np.linalg.norm(truth)))
    print(f"{name:10} is wrong by {np.mean(errors):.1%} in the mean, {max(errors):.1%} at most")

result = deblur.solve(sky, psfs=found.map, lam=1e-3, boundary="zero")
print(f"\n{result}\n\nThe brightest star had {sky.max():.1f} in its highest pixel, and has {result.image.max():.1f}.")
