# %% [markdown]
# # From a picture to its PSF
#
# Restoring a picture needs its PSF, the image of one point. This notebook measures it from stars, from a slanted edge,
# from a sharp picture of the same scene, and from the blurred picture alone. Each estimate states its own error. At
# the end we test whether a PSF fits a picture.

# %%
import matplotlib.pyplot as plt
import numpy as np

import deblur
from deblur.metrics import psnr

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})


def show(panels):
    _, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.7), layout="constrained")
    for ax, (title, image) in zip(axes, panels.items(), strict=True):
        ax.imshow(image, interpolation="nearest")
        ax.set_title(title)
        ax.axis("off")


def wrong_by(psf, truth):
    return np.linalg.norm(psf - truth) / np.linalg.norm(truth)


# %% [markdown]
# ## Stars
#
# Every star is the PSF, displaced by a fraction of a pixel. The stars are found, located to a hundredth of a pixel
# with the mean of all others, and averaged. Saturated and blended stars are left out.

# %%
rng = np.random.default_rng(0)
y, x = np.indices((200, 200))
sky = 0.1 + 0.004 * rng.standard_normal(y.shape)
for _ in range(40):
    row, column = rng.uniform(5, 194, 2)
    star = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * 1.6**2)) / (2 * np.pi * 1.6**2)
    sky += 10 ** rng.uniform(0.3, 1.3) * star
sky = np.minimum(sky, 1)  # the brightest are saturated

stars = deblur.psf.from_points(sky, size=15)
print(stars)
truth = deblur.psf.gaussian(15, 1.6)
print(f"\nit is wrong by {wrong_by(stars.psf, truth):.1%}")
show({"stars": np.sqrt(np.maximum(sky, 0)), "the PSF": stars.psf, "its error": stars.psf - truth})

# %% [markdown]
# ## A slanted edge
#
# A straight edge, rotated by a few degrees, crosses each row at another fraction of a pixel. All rows together sample
# the edge spread many times in each pixel. Its derivative is the line spread, which gives the MTF. If the PSF is
# round, it follows from one edge.

# %%
lens = deblur.psf.disk(11, 3.4)
v, u = np.mgrid[:110, :110] - 54.5
sheet = 0.2 + 0.6 * np.clip(u + np.tan(np.radians(6)) * v + 0.5, 0, 1)
target = deblur.degrade(sheet, lens, noise=0.004, boundary="unknown", seed=0)
edge = deblur.psf.from_edge(target, size=11)
print(edge)
print(f"\nit is wrong by {wrong_by(edge.psf, lens):.1%}")

_, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].imshow(target)
axes[1].plot(edge.details["distance"], edge.details["edge_spread"])
axes[1].set_title("edge spread, pixels")
axes[2].plot(edge.details["frequency"], edge.details["mtf"])
axes[2].set_title("MTF, cycles per pixel")
axes[2].set_xlim(0, 0.6)

# %% [markdown]
# ## A sharp and a blurred picture
#
# A short exposure is sharp, and a long one is shaken. They lie a fraction of a pixel apart, and one is darker.
# Displacement and brightness are found together with the PSF.

# %%
scene = deblur.data.load("camera")[60:300, 60:300]
shake = deblur.psf.camera_shake(13, 3)
shaken = 0.8 * deblur.degrade(scene, shake, boundary="reflect") + 0.05
shaken += 0.003 * np.random.default_rng(1).standard_normal(shaken.shape)
# The second lies 3 rows lower and 2 columns left of the first.
moved = deblur.image.as_float(scene)[3:, :-2], shaken[:-3, 2:]
pair = deblur.psf.from_pair(*moved, size=15)
print(pair)
print(f"\nit is wrong by {wrong_by(pair.psf[1:-1, 1:-1], shake):.1%}")
show({"the shake": shake, "as measured": pair.psf})

# %% [markdown]
# ## Nothing but the blurred picture
#
# The spectra of defocus and of straight motion have zeros, and so has the spectrum of the blurred picture. The result
# is the radius, or the length and angle, whose zeros fit best. It is only an estimate, and its status says so.

# %%
blurred = deblur.degrade(deblur.data.load("camera"), deblur.psf.motion(14, 35), noise=0.004, boundary="unknown", seed=0)
motion = deblur.psf.fit(blurred, "motion")
print(motion)
restored = deblur.solve(blurred, motion, boundary="unknown")
inside = deblur.image.as_float(deblur.data.load("camera"))
top, left = (np.array(inside.shape) - restored.image.shape) // 2
inside = inside[top : top + restored.image.shape[0], left : left + restored.image.shape[1]]
print(f"\nblurred {psnr(inside, blurred):.2f} dB, restored {psnr(inside, restored.image):.2f} dB")
show({"blurred": blurred[150:350, 150:350], "restored": np.clip(restored.image, 0, 1)[150:350, 150:350]})

# %% [markdown]
# ## The path of a hand, and a failure
#
# The blurred edges show the path of a shaking hand. `deblur.blind` estimates the path and restores with it.

# %%
hand_held = deblur.data.load("camera")[60:300, 90:330]
shaken = deblur.degrade(hand_held, shake, noise=0.006, boundary="unknown", seed=3)
found = deblur.blind(shaken, 15)
print(found.psf)
show({"shaken": shaken, "restored": np.clip(found.image, 0, 1), "the shake": shake, "as estimated": found.psf.psf})

# %% [markdown]
# A wall of bricks has hardly an edge apart from its texture, and noise hides what the shake left of it. Estimates that
# begin differently end differently, so that none can be trusted. A warning says so, and `status` is DOUBTFUL.

# %%
shake_of_wall = deblur.psf.camera_shake(17, 2)
wall = deblur.degrade(deblur.data.load("brick")[:160, :160], shake_of_wall, noise=0.02, boundary="unknown", seed=0)
failed = deblur.blind(wall, 19)
print(failed.psf)
show({"wall": wall, "not to be used": np.clip(failed.image, 0, 1), "the shake": shake_of_wall, "no": failed.psf.psf})

# %% [markdown]
# ## What an error of the PSF costs
#
# A measured PSF is never exact. Its error acts as noise with the spectrum of the scene, and λ must allow for it.
# deblur reads the error ε off the picture, unless you give it (`psf_error`) or a measurement states it.

# %%
sharp = deblur.image.as_float(scene)[6:-6, 6:-6]
shaken = deblur.degrade(scene, shake, noise=0.001, boundary="unknown", seed=2)
wrong = np.maximum(shake + 0.005 * np.random.default_rng(0).standard_normal(shake.shape), 0)
wrong /= wrong.sum()
epsilon, _ = deblur.tuning.psf_error(shaken, wrong)
print(f"it is wrong by {np.linalg.norm(wrong - shake):.3f} of its sum; {epsilon:.3f} is read")
for words, options in {"taken for exact": {"psf_error": 0.0}, "as it is read": {}}.items():
    for method in ("auto", "tv"):
        restored = deblur.solve(shaken, wrong, boundary="unknown", method=method, **options)
        print(f"{words}, {method}: λ = {restored.lam:.1e}, {psnr(sharp, restored.image):.2f} dB")

# %% [markdown]
# ## Does this PSF fit this picture?
#
# The most common mistake is a PSF rotated by 180 degrees. The spectrum does not show it, but repeated edges do.
# Another pixel size moves the zeros.

# %%
picture = deblur.degrade(scene, shake, noise=0.004, boundary="unknown", seed=2)
for name, psf in {
    "right": shake,
    "turned": shake[::-1, ::-1],
    "half as large again": deblur.psf.resample(shake, 1.5),
}.items():
    check = deblur.psf.check(picture, psf)
    print(f"{name}: {check.verdict.value}", *check.findings, sep="\n    ")
figure = plt.figure(figsize=(10.5, 3.8), layout="constrained")
_ = deblur.plot.psf_check(deblur.psf.check(picture, shake), figure)
