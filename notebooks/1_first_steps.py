# %% [markdown]
# # From a blurred photograph to a restored one
#
# A blurred picture and its point spread function (PSF) are all that is needed. Replace the two lines that
# make the example with your own, `deblur.image.read("blurred.png")` and `deblur.psf.load("psf.tif")`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import deblur

scene = deblur.data.load("camera")[64:192, 64:192]
psf = deblur.psf.motion(9, angle=30)
blurred = deblur.degrade(scene, psf, noise=0.005, boundary="unknown", seed=0)

# %% [markdown]
# Only the picture and its PSF are given. λ and the boundary are chosen from the picture. The scene of a photograph
# continues beyond its frame. So the boundary is `"unknown"`, which assumes nothing about what lies there.

# %%
result = deblur.solve(blurred, psf)
print(result)

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, title, image in zip(
    axes, ("blurred", "restored", "data - reblurred"), (blurred, result.image, result.residual_image)
):
    limits = {} if title.startswith("data") else {"vmin": 0, "vmax": 1}
    ax.imshow(image, cmap="gray", **limits)
    ax.set_title(title)
    ax.axis("off")

# %% [markdown]
# Blur the restored scene again and subtract it from the data. The rest should look like noise. If the picture shows
# through, λ is too large or the PSF is wrong.
#
# The restored picture goes to a file like this:

# %%
with tempfile.TemporaryDirectory() as folder:
    clipped = deblur.image.write(Path(folder) / "restored.png", result.image)
print(f"{clipped} of {result.image.size} values lay outside [0, 1] and were clipped in the file")

# %% [markdown]
# For many frames through the same optics, set up once. Each frame then costs one solve.

# %%
restore = deblur.Deblurrer(psf, blurred.shape, result.lam, boundary=result.boundary)
first, second = restore.solve(blurred), restore.solve(blurred[::-1])
print(
    f"{first.method}: set-up {first.setup_seconds > 0} for the first frame, {second.setup_seconds > 0} for the second"
)
