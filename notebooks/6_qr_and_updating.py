# %% [markdown]
# # QR, least squares, and changing your mind about pixels
#
# The restored picture minimises ‖Hf − g‖² + λ‖f‖². Written as one least-squares problem, that is
#
#     ‖ [ H    ]     [ g ] ‖
#     ‖ [ √λ I ] f − [ 0 ] ‖ ,
#
# a tall matrix A with one row for each pixel measured and one for each pixel sought. QR solves it, and a QR
# factorisation can be *updated* when rows come or go: a pixel that turns out to be dead, a second exposure.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import deblur
from deblur import linalg

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})

# %% [markdown]
# ## One mirror at a time
#
# A Householder reflection P = I − 2 vvᵀ / vᵀv is a mirror. One mirror for each column makes the entries below the
# diagonal zero. The result is a triangle R. The mirrors together are Q.

# %%
a = np.random.default_rng(1).random((5, 3)).round(2)
for column in range(3):
    v = a[column:, column].copy()
    v[0] += np.copysign(np.linalg.norm(v), v[0])
    a[column:, column:] -= 2 / (v @ v) * np.outer(v, v @ a[column:, column:])
    print(f"after mirror {column + 1}:\n{a.round(3) + 0.0}\n")

# %% [markdown]
# ## Why not the normal equations
#
# (HᵀH + λI) f = Hᵀg has the same solution and is cheaper, and its condition number is the square of A's. In float32
# those are digits that a small λ cannot spare:

# %%
scene = deblur.data.load("camera64")[8:40, 10:42]
psf = deblur.psf.gaussian(7, 1.3)
blurred = deblur.degrade(scene, psf, noise=0.002, seed=0)
h = deblur.Blur(psf, scene.shape).to_dense()
n = scene.size


def tall(lam):
    return np.vstack([h, np.sqrt(lam) * np.eye(n)])


print(f"{'λ':>8}{'cond A':>10}{'cond AᵀA':>11}{'QR, float32':>14}{'normal equations, float32':>28}")
right = np.concatenate([blurred.ravel(), np.zeros(n)])
for lam in (1e-3, 1e-5, 1e-7):
    matrix = tall(lam)
    exact = np.linalg.lstsq(matrix, right)[0]
    small, b = matrix.astype(np.float32), right.astype(np.float32)
    by_qr = linalg.QRModel(small, b).solve()
    by_normal = np.linalg.solve(small.T @ small, small.T @ b)
    errors = [np.linalg.norm(x - exact) / np.linalg.norm(exact) for x in (by_qr, by_normal)]
    condition = np.linalg.cond(matrix)
    print(f"{lam:8.0e}{condition:10.0e}{condition**2:11.0e}{errors[0]:14.0e}{errors[1]:28.0e}")

# %% [markdown]
# ## Bad pixels
#
# Now the sensor has dead and hot pixels, one in fifty. The formula trusts them, and each becomes a spot as large as
# the PSF.

# %%
LAM = 1e-3
rng = np.random.default_rng(4)
bad = rng.random(scene.shape) < 0.02
spoiled = np.where(bad, rng.integers(0, 2, scene.shape), blurred)

start = time.perf_counter()
model = linalg.QRModel(tall(LAM), np.concatenate([spoiled.ravel(), np.zeros(n)]))
from_scratch = time.perf_counter() - start
believed = model.solve().reshape(scene.shape)

# %% [markdown]
# A bad pixel is an equation to be removed. The factorisation is updated. Nothing is factored again.

# %%
start = time.perf_counter()
model.remove_rows(np.flatnonzero(bad))
updating = time.perf_counter() - start
without = model.solve().reshape(scene.shape)
print(f"{bad.sum()} of {n} pixels struck out: factoring took {1e3 * from_scratch:.0f} ms, {model.plan}")
print(f"the change took {1e3 * updating:.0f} ms")

kept = np.concatenate([~bad.ravel(), np.ones(n, bool)])
again = np.linalg.lstsq(tall(LAM)[kept], np.concatenate([spoiled.ravel(), np.zeros(n)])[kept])[0]
print(f"difference from solving without them from scratch: {abs(again - without.ravel()).max():.0e}")

# %%
figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
for ax, title, image in zip(
    axes, ("scene", "blurred, bad pixels", "believed", "struck out"), (scene, spoiled, believed, without)
):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set_title(title if image is scene else f"{title}: {deblur.metrics.psnr(scene, image):.1f} dB")
    ax.axis("off")

# %% [markdown]
# ## A second exposure
#
# Another frame of the same scene, with its own camera shake and its own noise, adds n equations. Each of the two blurs
# suppresses some frequencies, but seldom the same ones.

# %%
shake = deblur.psf.motion(7, angle=60)
second = deblur.degrade(scene, shake, noise=0.002, seed=7)
model.add_rows(deblur.Blur(shake, scene.shape).to_dense(), second.ravel())
both = model.solve().reshape(scene.shape)
print(f"first exposure {deblur.metrics.psnr(scene, without):.1f} dB, both {deblur.metrics.psnr(scene, both):.1f} dB")
print(model.plan)

# %% [markdown]
# ## The same for a larger frame
#
# Written down, A of a 64 × 64 frame takes 256 MiB. `deblur.QRDeblurrer` keeps the triangle alone, in its band, and
# does the bookkeeping: pixels are hidden or shown, exposures are added, and each picture's residual is measured.

# %%
scene = deblur.data.load("camera64")
frames = [
    deblur.degrade(scene, p, noise=0.003, seed=seed) for seed, p in enumerate((deblur.psf.gaussian(5, 1.2), shake))
]
dead = rng.random(scene.shape) < 0.02
frames[0][dead] = np.nan

start = time.perf_counter()
restore = deblur.QRDeblurrer(deblur.psf.gaussian(5, 1.2), scene.shape, LAM)
print(f"set up                  {1e3 * (time.perf_counter() - start):7.0f} ms")
start = time.perf_counter()
restore.hide(dead)
print(f"{dead.sum()} dead pixels hidden   {1e3 * (time.perf_counter() - start):7.0f} ms")
one = restore(frames[0])
start = time.perf_counter()
restore.add_exposure(shake)
print(f"second exposure added   {1e3 * (time.perf_counter() - start):7.0f} ms")
two = restore(*frames)

figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
panels = [("first frame", frames[0]), ("from it alone", one), ("second frame", frames[1]), ("from both", two)]
for ax, (title, image) in zip(axes, panels):
    ax.imshow(image, vmin=0, vmax=1)
    ax.set_title(title if "frame" in title else f"{title}: {deblur.metrics.psnr(scene, image):.1f} dB")
    ax.axis("off")

# %% [markdown]
# ## Does an update pay?
#
# It depends on the shape, on how much changes, and on the machine. `plan_update` counts the operations and bytes of
# both ways and predicts which is faster. The model follows it unless you name one.

# %%
figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
some = np.unique(np.geomspace(1, 500, 25).astype(int))
for which in ("remove_columns", "add_rows", "add_columns", "remove_rows"):
    plans = [linalg.plan_update(which, 2000, 600, p, 50) for p in some]
    ax.loglog(some, [plan.refactor_seconds / plan.update_seconds for plan in plans], label=which)
ax.axhline(1, color="0.6", linewidth=1)
ax.set(xlabel="rows or columns that change, of 2000 × 600", ylabel="predicted gain of updating")
_ = ax.legend()

# %% [markdown]
# ## What to take away
#
# - A restoration is a least-squares problem, and QR is the way to solve one without squaring its condition number.
# - Bad pixels are equations to be removed. Later frames are equations to be added.
# - Updating a factorisation gives the same picture as solving from scratch. `plan_update` predicts whether it is
#   faster.
# - For large pictures with masks and weights use the variational methods (notebook 8).
