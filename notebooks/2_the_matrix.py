# %% [markdown]
# # The blur as a matrix, and why inverting it is not enough
#
# A blurred image is a weighted sum of scene pixels, so blurring is a matrix: g = H f + n, with the pixels of
# the scene in f, those of the image in g, and noise n. This notebook looks at that matrix.

# %%
import matplotlib.pyplot as plt
import numpy as np

import deblur

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})

# %% [markdown]
# ## What it looks like
#
# An image of 8 × 8 pixels has 64 of them, so H has 64 rows. Row i says where pixel i of the blurred image gets
# its light from. Read as a picture, H is a band of bands: one block for each pair of image rows, one band in
# each block for the PSF's row that connects them.

# %%
psf = deblur.psf.gaussian(3, 0.8)
h = deblur.filter2matrix(psf, 8, 8)
wide = deblur.filter2matrix(psf, 10, 10, boundary="unknown")  # the scene reaches one pixel beyond the frame

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, title, matrix in zip(
    axes,
    ("H, zero boundary", "H, periodic", "H, unknown: more columns than rows"),
    (h, deblur.filter2matrix(psf, 8, 8, boundary="periodic"), wide),
):
    ax.imshow(matrix, cmap="gray_r")
    ax.set_title(title)

# %% [markdown]
# It is the same map as filtering, to rounding:

# %%
f = np.random.default_rng(0).random((8, 8))
product = deblur.vector2im(h @ deblur.im2vector(f), (8, 8))
print("H f minus the filtered image:", abs(product - deblur.Blur(psf, (8, 8)).forward(f)).max())

# %% [markdown]
# Most of H is zero, and a photograph has a million pixels: written down, H would have 10¹² entries.
# `deblur.Blur` is the same matrix, never written down.

# %%
side, long_psf = 64, deblur.psf.disk(9)
sparse = deblur.filter2matrix(long_psf, side, side, sparse=True)
print(f"{side} x {side} pixels: H has {sparse.shape[0] ** 2:,} entries, {sparse.nnz:,} of them not zero")

# %% [markdown]
# ## Undoing it
#
# Without noise, H f = g can be solved and the scene comes back. A camera adds noise, here one part in two
# hundred, far less than the eye sees:

# %%
scene = deblur.data.load("camera")[96:160, 220:284]
psf = deblur.psf.gaussian(9, 1.5)
noise = 0.005
clean = deblur.degrade(scene, psf)
blurred = deblur.degrade(scene, psf, noise=noise, seed=0)

matrix = deblur.Blur(psf, scene.shape).to_dense()
inverted = [np.linalg.solve(matrix, g.ravel()).reshape(scene.shape) for g in (clean, blurred)]

figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), layout="constrained")
for ax, title, image in zip(
    axes, ("scene", "blurred, with noise", "H⁻¹g without noise", "H⁻¹g with noise"), (scene, blurred, *inverted)
):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set_title(title)
    ax.axis("off")

# %% [markdown]
# The noise has been amplified until nothing can be recognised. The singular values of H show by how much. The blur
# multiplies the i-th pattern of the scene by σᵢ. Inverting divides by σᵢ, and divides the noise as well. The wider the
# PSF, the faster the singular values fall.

# %%
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for sigma in (0.6, 0.9, 1.2, 1.6):
    values = np.linalg.svd(deblur.Blur(deblur.psf.gaussian(13, sigma), (24, 24)).to_dense(), compute_uv=False)
    ax.semilogy(values, label=f"width {sigma}: condition number {values[0] / values[-1]:.1e}")
ax.set(xlabel="i", ylabel="σᵢ", title="Singular values of a Gaussian blur, 24 × 24 pixels")
_ = ax.legend()

# %% [markdown]
# ## Picard's question
#
# Is anything left of the scene where σᵢ is small? Write the image in the patterns that the blur makes, uᵢᵀg. The
# scene's part falls with i. The noise has the same size in every pattern. Where the two meet, the scene ends. From
# there on, uᵢᵀg / σᵢ is noise divided by a small number.

# %%
result = deblur.solve(blurred, psf, "upre", noise=noise, boundary="zero")
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
deblur.plot.picard(result, ax)
ax.axhline(noise, color="C3", linewidth=1, label="the noise, known here")
_ = ax.legend()

# %% [markdown]
# ## Why λ
#
# f = Hᵀ(HHᵀ + λI)⁻¹ g multiplies the result of inversion in pattern i by σᵢ² / (σᵢ² + λ). Patterns with σᵢ above √λ
# pass. Those below are suppressed. This is all that λ does, and it is enough:

# %%
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
_ = deblur.plot.filter_factors(result.lambda_choice.singular_values, result.lam, ax)

# %%
lams = (result.lam / 1000, result.lam, result.lam * 1000)
figure, axes = plt.subplots(1, 3, figsize=(7, 2.7), layout="constrained")
for ax, lam, words in zip(axes, lams, ("too small", "chosen", "too large")):
    image = deblur.reconstruct(blurred, psf, lam, boundary="zero")
    ax.imshow(image, vmin=0, vmax=1)
    ax.set_title(f"λ {words}: {deblur.metrics.psnr(scene, image):.1f} dB")
    ax.axis("off")

# %% [markdown]
# ## What to take away
#
# - A blur is a matrix with a strong structure. Products with it cost little. Writing it down is expensive.
# - It can be inverted, but the inverse is useless with noise: small singular values amplify the noise.
# - The Picard plot shows how much of the scene has survived. λ ≈ σ² at the crossing keeps that and no more.
# - How λ is found without knowing the scene is the subject of notebook 4.
