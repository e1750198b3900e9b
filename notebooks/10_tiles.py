# %% [markdown]
# # Tiles: how far a pixel's influence reaches
#
# A picture that does not fit into memory is restored in tiles. Each tile needs some of the picture around it. The
# usual answer to how much is "a few PSF sizes". This notebook shows why it is wrong, and how the right overlap is
# found before anything is restored.

# %%
import matplotlib.pyplot as plt
import numpy as np

import deblur

plt.rcParams.update({"figure.dpi": 50, "image.cmap": "gray"})

# %% [markdown]
# ## The kernel that undoes a blur
#
# Far from the edges, restoring is a convolution with one kernel. Restoring a single bright point shows it. Here are
# the kernels of two blurs of about the same width, a Gaussian and a defocused lens, for three values of λ:

# %%
psfs = {"gaussian": deblur.psf.gaussian(9, 1.5), "disk": deblur.psf.disk(7)}
lams = (1e-2, 1e-3, 1e-4)
n = 512
point = np.zeros((n, n))
point[n // 2, n // 2] = 1


def kernel(psf, lam):
    return deblur.reconstruct(point, psf, lam, boundary="periodic", prior="zero")


figure, axes = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
for row, (name, psf) in zip(axes, psfs.items()):
    for ax, lam in zip(row, lams):
        k = abs(kernel(psf, lam))
        ax.imshow(np.log10(k[156:357, 156:357] / k.max() + 1e-6), vmin=-6, vmax=0, cmap="magma")
        ax.set_title(f"{name}, λ = {lam:g}")
        ax.axis("off")

# %% [markdown]
# The pictures are 201 pixels wide and logarithmic: black is a millionth of the brightest pixel. The kernel of the
# Gaussian stays a spot. The spectrum of the disk passes through zero on rings. There the formula changes from dividing
# to passing nothing. Such a narrow change in frequency is a long ringing in space. The smaller λ is, the longer it
# rings.
#
# ## Its tail predicts the seam
#
# A tile contains d pixels beyond its edge. Its error is what the kernel brings in from farther away. `plan_tiles`
# computes the overlap from the tail of the kernel. Below is its prediction for the disk, beside a measurement on a
# photograph: one tile, solved with d pixels around it, against the same pixels of the whole picture solved at once.

# %%
psf, lam = psfs["disk"], 1e-2
sharp = deblur.data.load("camera")
blurred = deblur.degrade(sharp, psf, noise=0.01, boundary="reflect", seed=0)
whole = deblur.reconstruct(blurred, psf, lam, boundary="reflect")
extent = np.ptp(blurred)


def seam(d, a=160, b=352):
    window = blurred[a - d : b + d, a - d : b + d]
    tile = deblur.reconstruct(window, psf, lam, boundary="reflect")[d : d + b - a, d : d + b - a]
    return abs(tile - whole[a:b, a:b]).max() / extent


def planned(d, safe=False):
    plan = deblur.plan_tiles(psf, lam, (10**5, 10**5), overlap=d, tile=192, memory=2**30, safe=safe)
    return plan.bound if safe else plan.seam


overlaps = np.arange(4, 108, 8)
figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.semilogy(overlaps, [planned(d, safe=True) for d in overlaps], "--", label="bound: no picture exceeds it")
ax.semilogy(overlaps, [planned(d) for d in overlaps], "-", label="prediction")
ax.semilogy(overlaps, [seam(d) for d in overlaps], "o", label="measured on the photograph")
ax.axvline(14, color="grey", lw=1)
ax.text(15, 3e-8, "two PSF sizes", rotation=90, color="grey")
ax.set_xlabel("overlap on each side, pixels")
ax.set_ylabel("largest error at the seam, of the range")
ax.legend()
plt.show()

# %% [markdown]
# ## What a seam looks like
#
# Four tiles are solved with two PSF sizes of overlap, and with the overlap of the plan for a tolerance of 1e-3 of the
# range. The figures show the difference to the picture solved whole.

# %%
plan = deblur.plan_tiles(psf, lam, blurred.shape, tile=256, boundary="reflect", tolerance=1e-3)
print(plan)
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
axes[0].imshow(deblur.tiled(blurred, psf, lam, tile=256, overlap=14, tolerance=0.5, boundary="reflect"), vmin=0, vmax=1)
axes[0].set_title("overlap 14: two PSF sizes")
for ax, d in zip(axes[1:], (14, plan.overlap[0])):
    tiles = deblur.tiled(blurred, psf, lam, tile=256, overlap=int(d), tolerance=0.5, boundary="reflect")
    ax.imshow(abs(tiles - whole), vmin=0, vmax=0.02, cmap="magma")
    ax.set_title(f"overlap {d}: error up to {abs(tiles - whole).max() / extent:.0e}")
for ax in axes:
    ax.axis("off")

# %% [markdown]
# The seams cross the picture, and they are ringing, not a line: nothing that blends neighbouring tiles hides them.
#
# ## How far, for which blur
#
# The overlap that `plan_tiles` takes for a tolerance of 1e-3, in pixels and in PSF sizes:

# %%
kinds = {
    "gaussian 9": deblur.psf.gaussian(9, 1.5),
    "disk 7": deblur.psf.disk(7),
    "motion 15": deblur.psf.motion(15, 30),
    "camera shake 17": deblur.psf.camera_shake(17, 3),
}
print(f"{'':16}" + "".join(f"λ = {lam:<12g}" for lam in lams))
for name, psf in kinds.items():
    cells = []
    for lam in lams:
        plan = deblur.plan_tiles(psf, lam, (10**5, 10**5), memory=2**36)
        d = max(plan.overlap)
        cells.append(f"{d} ({d / max(psf.shape):.0f} PSFs)" if plan.answer == "tiles" else plan.answer)
    print(f"{name:16}" + "".join(f"{cell:<16}" for cell in cells))

# %% [markdown]
# ## Where the overlap does not fit
#
# For a small λ the overlap may be larger than any tile that fits into memory. Then tiles with a smaller overlap are
# solved several times, each time for the rest that their neighbours left. Here 180 pixels would be needed. The tiles
# are 192 pixels long and contain 32 pixels beyond themselves. This is the difference to the picture solved whole,
# after each pass:

# %%
psf, lam = psfs["disk"], 1e-3
whole = deblur.reconstruct(blurred, psf, lam, boundary="reflect")
figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained")
for passes, ax in zip((1, 2, 3, 4), axes):
    tiling = deblur.tiles.Tiling(
        blurred, psf, lam, tile=192, overlap=32, passes=passes, tolerance=0.5, boundary="reflect"
    )
    left = abs(tiling(blurred) - whole)
    ax.imshow(left, vmin=0, vmax=0.1, cmap="magma")
    ax.set_title(f"passes: {passes}, error up to {left.max() / extent:.0e}")
    ax.axis("off")

# %% [markdown]
# `plan_tiles` then answers "refine", and `tiled` measures on a part of the picture how many passes are needed.
#
# All of this is one call, `deblur.tiled`, for NumPy, Dask and xarray arrays, and `deblur reconstruct in.zarr -o
# out.zarr` on the command line. [The page on tiles](../docs/tiles.md) says more.
