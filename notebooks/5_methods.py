# %% [markdown]
# # Methods compared, from dense to structured
#
# There are a dozen ways to solve one problem, (HHᵀ + λI) x = g. They give the same picture. They differ in what they
# cost, and in the problems that they serve. `deblur.METHODS` is the table of all methods. Its rows say which are for
# this linear formula. The others, which minimise something else, are the subject of notebook 8.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import deblur

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})
LAM = 1e-3

# %% [markdown]
# ## All of them on a small picture
#
# 32 × 32 pixels, so that the dense methods, whose matrix has (pixels)² entries, are quick. A method that cannot
# serve a problem refuses it and says why; nothing is changed to make it fit.

# %%
scene = deblur.data.load("camera64")[16:48, 16:48]
psf = deblur.psf.gaussian(5, 1.0)
blurred = deblur.degrade(scene, psf, noise=0.003, seed=0)
reference = deblur.reconstruct(blurred, psf, LAM, method="lu", boundary="zero")

print(f"{'method':14}{'ms':>9}{'residual':>11}{'from lu':>10}")
for name, row in deblur.METHODS.items():
    if not row.linear:
        continue
    try:
        result = deblur.solve(blurred, psf, LAM, method=name, boundary="zero")
    except deblur.MethodError as error:
        print(f"{name:14}{'':>9}  {str(error).split(': ', 1)[1][:78]}")
        continue
    difference = np.linalg.norm(result.image - reference) / np.linalg.norm(reference)
    print(f"{name:14}{1e3 * result.seconds:9.1f}{result.residual:11.0e}{difference:10.0e}")

# %% [markdown]
# The residual is not a claim of the method. It is measured afterwards with the blur itself, by the same code for all
# methods.
#
# ## What each is
#
# | family | methods | idea | work for n pixels |
# | --- | --- | --- | --- |
# | dense | `cholesky`, `gauss-jordan`, `lu` | write the matrix down, factor it | n³ |
# | dense, iterative | `gauss-seidel` | sweep over the rows until they all agree | n² a sweep |
# | least squares | `qr` | orthogonal reflections of [H; √λ I]; never squares the condition number | banded or n³ |
# | banded | `banded` | entries far from the diagonal are zero, so do not store them | n² for a square image |
# | diagonal | `fft`, `dct`, `dst` | the boundary makes H diagonal in a fast transform | n log n |
# | separable | `kronecker` | the PSF is a column times a row: two small problems | n³ᐟ² |
# | iterative | `pcg`, `hybrid-lsqr` | products with H only, which are FFTs | n log n a step |
#
# ## How they grow

# %%
sides = {
    "gauss-jordan": (16, 24, 32, 48),
    "cholesky": (16, 24, 32, 48),
    "banded": (16, 24, 32, 48, 64, 96),
    "kronecker": (16, 32, 64, 128, 256, 512),
    "pcg": (16, 32, 64, 128, 256, 512),
}
whole = deblur.data.load("camera")
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, some in sides.items():
    seconds = []
    for side in some:
        image = deblur.degrade(whole[:side, :side], psf)
        start = time.perf_counter()
        deblur.reconstruct(image, psf, LAM, method=name, boundary="zero")
        seconds.append(time.perf_counter() - start)
    ax.loglog(np.square(some), seconds, "o-", label=name)
ax.set(xlabel="pixels", ylabel="seconds for one picture, set-up included")
ax.grid(alpha=0.3)
_ = ax.legend()

# %% [markdown]
# A photograph of a million pixels is beyond every dense method: its matrix would have 10¹² entries.
#
# ## Which one is taken
#
# `choose_method` shows what `method="auto"` takes: by structure, a method that serves the problem exactly. It can be
# asked beforehand.

# %%
for words, psf_here, boundary in (
    ("a Gaussian blur of a photograph", deblur.psf.gaussian(9, 1.5), "unknown"),
    ("camera shake", deblur.psf.camera_shake(17, 3), "unknown"),
    ("a texture that repeats", deblur.psf.disk(9), "periodic"),
    ("a mirrored scene", deblur.psf.disk(9), "reflect"),
):
    blur = deblur.Blur(psf_here, (1024, 1024), boundary)
    print(f"{words}: {deblur.choose_method(blur, LAM)}")

# %% [markdown]
# ## Many pictures through the same optics
#
# A `Deblurrer` keeps what does not depend on the picture: the method, λ where a rule chose it, and the factor, the
# spectrum or the preconditioner. Several threads may share one, and it pickles. λ is chosen from the first picture, or
# from the one given to `restore.tune(picture)`; `warm_start=True` begins each iteration where the last picture's ended.

# %%
image = deblur.degrade(whole[:64, :64], psf)
print(f"{'method':12}{'first frame, ms':>17}{'next, ms':>10}")
for name in ("cholesky", "banded", "kronecker", "pcg"):
    restore = deblur.Deblurrer(psf, (64, 64), LAM, method=name, boundary="zero")
    first, second = restore.solve(image), restore.solve(image[::-1])
    print(f"{name:12}{1e3 * first.seconds:17.1f}{1e3 * second.seconds:10.1f}")

# %% [markdown]
# ## Float32
#
# Float32 takes half the memory and half the time, and has half the digits. A small λ costs some of them: the error of
# the picture grows as λ falls, in the worst case like 1/λ.

# %%
print(f"{'λ':>8}{'cholesky, float32':>20}{'qr, float32':>14}   relative difference from float64")
for lam in (1e-1, 1e-2, 1e-3):
    exact = deblur.reconstruct(blurred, psf, lam, boundary="zero")
    row = []
    for name in ("cholesky", "qr"):
        image = deblur.reconstruct(blurred.astype(np.float32), psf, lam, method=name, boundary="zero")
        row.append(np.linalg.norm(image - exact) / np.linalg.norm(exact))
    print(f"{lam:8.0e}{row[0]:20.0e}{row[1]:14.0e}")

# %% [markdown]
# ## Comparison with other libraries
#
# So far every method solved the same equations. Methods that assume something else, or come from another library,
# can only be compared by their restored images. `deblur.compare` does that: no method receives the sharp image, and
# all are measured in the same way. On the command line it is `deblur compare`, which also writes a page with pictures.

# %%
names = ["pcg", "fft", "tv2", "skimage-wiener", "skimage-wiener-padded"]
found = deblur.compare.run("camera", "disk:7", 0.005, "unknown", names, size=96, repeats=1, memory=False)
print(found)

# %% [markdown]
# The boundary that a method assumes matters more than its algebra: `fft` and `pcg` solve the same formula. The next
# thing that matters is what a method assumes of the scene, the subject of notebook 8.

# %% [markdown]
# ## What to take away
#
# - All methods solve the same equations. Take the cheapest one that serves, as `auto` does.
# - Dense methods are for learning, for small pictures, and for checking the others.
# - Structure is what makes large pictures possible: a boundary that a transform diagonalises, a separable PSF, or
#   products by FFT.
# - Set up once, restore many.
# - Their speed on large pictures is in docs/figures.md, measured by `benchmarks/bench_structured.py`.
