"""The shortest useful program: a blurred picture, its PSF, the restored picture.

    python examples/first_steps.py
"""

import deblur

sharp = deblur.data.load("camera")
psf = deblur.psf.disk(7)
blurred = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", seed=0)

result = deblur.solve(blurred, psf, "gcv", boundary="unknown")
print(result)

inside = sharp[3:-3, 3:-3]  # the part of the scene that the blurred picture shows
print(f"\nPSNR {deblur.metrics.psnr(inside, blurred):.2f} dB blurred, {deblur.metrics.psnr(inside, result.image):.2f} dB restored")
