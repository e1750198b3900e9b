# %% [markdown]
# # Boundaries, on a real photograph
#
# A pixel at the edge of a blurred photograph received some of its light from beyond the frame. What lay there is
# unknown, but most methods assume something. This notebook shows the effect of the assumption.

# %%
import matplotlib.pyplot as plt
import numpy as np

import deblur

plt.rcParams.update({"figure.dpi": 50, "image.cmap": "gray"})

# %% [markdown]
# The photograph is cut out of a larger one *after* blurring, as a camera does it: what is at the edge has come in
# from beyond.

# %%
whole = deblur.data.load("camera")[50:210, 140:300]
psf = deblur.psf.disk(11)
half = psf.shape[0] // 2
blurred = deblur.degrade(whole, psf, noise=0.003, boundary="unknown", seed=1)
scene = whole[half:-half, half:-half]  # the part of the scene inside the frame
print(f"scene {whole.shape}, photograph {blurred.shape}, a PSF of {psf.shape}")

# %% [markdown]
# Five assumptions, one λ rule:
#
# | boundary | beyond the frame |
# | --- | --- |
# | `zero` | black |
# | `periodic` | the picture again: left continues at the right |
# | `reflect` | the mirrored picture |
# | `antireflect` | mirrored at the edge pixel in both directions, so that the slope goes on |
# | `unknown` | nothing is assumed; those pixels are unknowns like the others |

# %%
restored = {name: deblur.solve(blurred, psf, "gcv", boundary=name) for name in deblur.BOUNDARIES}
panels = [("blurred", blurred)] + [(name, result.image) for name, result in restored.items()]
figure, axes = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
for ax, (name, image) in zip(axes.flat, panels):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set_title(f"{name}: {deblur.metrics.psnr(scene, image):.1f} dB")
    ax.axis("off")

# %% [markdown]
# A wrong assumption does harm not only at the edge. It contradicts the data there, and the equations can explain the
# contradiction only by a ripple through the whole picture. The rule for λ is misled as well: the model cannot explain
# the data, so that the rule finds noise that is not there, or fits what it should not.
#
# Give each boundary the λ that is best for it, found with the true scene at hand, and the order stays:

# %%
lams = np.geomspace(1e-4, 1e-1, 7)


def best(name):
    return max(deblur.metrics.psnr(scene, deblur.reconstruct(blurred, psf, lam, boundary=name)) for lam in lams)


for name, result in restored.items():
    chosen = deblur.metrics.psnr(scene, result.image)
    print(f"{name:12}  λ by gcv {result.lam:8.1e}: {chosen:6.2f} dB     best λ: {best(name):6.2f} dB")

# %% [markdown]
# ## Where the error sits
#
# The error against the distance from the edge, root mean square over all pixels at that distance:

# %%
rows, cols = np.indices(scene.shape)
distance = np.minimum.reduce([rows, cols, rows[::-1], cols[:, ::-1]])
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, result in restored.items():
    squares = (result.image - scene) ** 2
    ax.semilogy([np.sqrt(squares[distance == d].mean()) for d in range(50)], label=name)
ax.axvline(half, color="0.6", linewidth=0.8, linestyle="--")
ax.set(xlabel="pixels from the edge (dashed: the reach of the PSF)", ylabel="root mean square error")
_ = ax.legend()

# %% [markdown]
# ## Drawn towards black, or towards the picture
#
# With `unknown`, the data hardly determine what lies beyond the frame. λ‖f‖² of the formula draws it to zero, and the
# edge of the dark region rings. `prior="smooth"` draws the scene towards the smoothed image instead, λ‖f − f̄‖².
# `"auto"` takes it if the boundary, named or detected, is `unknown` and λ is given. If λ is chosen and there is noise,
# `"auto"` takes `"natural"`, which also knows that neighbouring pixels are alike.

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
for ax, prior in zip(axes, ("zero", "smooth")):
    result = deblur.solve(blurred, psf, "gcv", boundary="unknown", prior=prior)
    ax.imshow(result.image, vmin=0, vmax=1)
    ax.set_title(f'prior="{prior}": {deblur.metrics.psnr(scene, result.image):.1f} dB')
    ax.axis("off")

# %% [markdown]
# ## When another boundary is right
#
# Black beyond the frame is exact for a bright object on a dark ground, such as a star field or a stained cell. Then
# `zero` is knowledge and not an assumption. The problem is also smaller.

# %%
sky = np.zeros((96, 96))
rng = np.random.default_rng(5)
sky[rng.integers(8, 88, 40), rng.integers(8, 88, 40)] = rng.random(40)
observed = deblur.degrade(sky, psf, noise=0.0005, seed=2)
for name in ("zero", "unknown"):
    image = deblur.reconstruct(observed, psf, "gcv", boundary=name)
    print(f"stars on black, {name:8} {deblur.metrics.psnr(sky, image):.2f} dB")

# %% [markdown]
# ## Detected from the image
#
# If no boundary is named, it is detected at the border of the image, by how likely the border is under each. A border
# that darkens as the PSF predicts indicates `zero`. Opposite edges that share their light indicate `periodic`. Without
# clear evidence the boundary is `unknown`, which is safe.

# %%
for name in ("zero", "periodic", "unknown"):
    picture = whole if name == "unknown" else scene
    result = deblur.solve(deblur.degrade(picture, psf, noise=0.003, boundary=name, seed=1), psf)
    print(f"blurred with {name!r}: {result.boundary}, {result.boundary_reason}")

# %% [markdown]
# ## What to take away
#
# - The boundary matters more than the method: every method solves the equations it is given.
# - For a photograph it is `boundary="unknown"`. It assumes nothing, and makes the problem slightly larger. If you
#   leave the boundary out, this is what you get.
# - `periodic` is what plain FFT deconvolution assumes. On a photograph it is wrong unless the edges have been
#   smoothed into each other first.
# - For a bright object on black take `zero`.
# - Each name stands for an object, `deblur.BOUNDARIES["reflect"]`, which knows how a line of pixels goes on
#   (`extend`, `fold`, `matrix`). A `Boundary` of your own may be passed in a name's place.
# - `benchmarks/bench_boundary.py` measures this on sixty photographs; the table is in docs/figures.md.
