"""A slanted edge: the camera's MTF, its PSF, and a photograph of the same camera restored with it.

python examples/psf_from_edge.py
"""

import numpy as np

import deblur

lens = deblur.psf.moffat(21, 3.0, 3.0)  # unknown in practice

# A sheet of paper with a straight edge, turned by 5 degrees, and a photograph, both through the same lens.
y, x = np.mgrid[:120, :120] - 59.5
sheet = 0.2 + 0.6 * np.clip(x + np.tan(np.radians(5)) * y + 0.5, 0, 1)
target = deblur.degrade(sheet, lens, noise=0.004, boundary="unknown", seed=0)
scene = deblur.data.load("cat")[:220, :220]
photograph = deblur.degrade(scene, lens, noise=0.004, boundary="unknown", seed=1)

found = deblur.psf.from_edge(target, size=21)
print(found)

wrong = np.linalg.norm(found.psf - lens) / np.linalg.norm(lens)
print(f"\nthe PSF is wrong by {wrong:.1%} (told: {found.error:.1%})\n")

inside = deblur.image.as_float(scene)[10:-10, 10:-10]
for name, psf in (("blurred", None), ("with the measured PSF", found.psf), ("with the true PSF", lens)):
    picture = photograph if psf is None else deblur.solve(photograph, psf, boundary="unknown").image
    print(f"{name:22} {deblur.metrics.psnr(inside, picture):.2f} dB")
