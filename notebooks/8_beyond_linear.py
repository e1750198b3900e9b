# %% [markdown]
# # Beyond the linear formula
#
# The formula (HᵀH + λI)⁻¹Hᵀg trusts every pixel alike, expects noise of one strength, and pays for edges with ripples.
# Real pictures have dead pixels, burnt-out lamps, few photons and sharp edges. All of that fits one problem,
#
#     minimise  D(W; Hf, g) + λ R(Lf)   subject to   lo ≤ f ≤ hi ,
#
# with weights or a mask W, a noise model D, a regulariser R∘L and bounds. `deblur.solve` takes them by name, and λ is
# chosen from the picture if no number is given.

# %%
import matplotlib.pyplot as plt
import numpy as np

import deblur
from deblur.metrics import psnr

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})


def show(panels, **limits):
    _, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.7), layout="constrained")
    for ax, (title, image) in zip(axes, panels.items(), strict=True):
        ax.imshow(np.clip(image, 0, 1), **{"vmin": 0, "vmax": 1, **limits})
        ax.set_title(title)
        ax.axis("off")


def decibels(truth, panels):
    for name, image in panels.items():
        print(f"{name:34}{psnr(truth, np.clip(image, 0, 1)):6.2f} dB")


# %% [markdown]
# ## Salt and pepper
#
# One pixel in fifty was lost after the blur and is black or white. The linear formula takes each for light and draws
# the shape of the blur around it. `mask="auto"` finds these pixels and hides them. Total variation fills them in.

# %%
scene = deblur.data.load("camera")[100:236, 170:306]
psf = deblur.psf.gaussian(9, 1.5)
truth = scene[4:-4, 4:-4]
blurred = deblur.degrade(scene, psf, noise=0.003, boundary="unknown", seed=0)
spoilt = deblur.degrade(blurred, deblur.psf.delta(1), noise="salt-pepper", level=0.02, seed=1)

linear = deblur.solve(spoilt, psf, boundary="unknown")
masked = deblur.solve(spoilt, psf, method="tv", mask="auto", lam="auto", boundary="unknown")
really = abs(spoilt - blurred) > 1e-9
print(f"{really.sum()} pixels were lost; {(masked.mask & really).sum()} of them were found,")
print(f"and {(masked.mask & ~really).sum()} sound ones were hidden with them")
print(masked.lam_reason)
panels = {"spoilt": spoilt, "linear formula": linear.image, "mask and total variation": masked.image}
decibels(truth, panels)
show(panels)

# %% [markdown]
# ## Burnt-out highlights
#
# A lamp is brighter than the sensor can record. So the pixels of its image are 1 and mean "1 or more". If they are
# hidden, they no longer contradict the blur, and the pixels beside them show how bright the lamp is. `deblur.solve`
# finds and hides them by itself unless a linear method is named. Light is never negative: this is a bound.

# %%
night = 0.7 * scene
for row, col in np.random.default_rng(4).integers(20, 116, (12, 2)):
    night[row : row + 2, col : col + 2] = 12.0
shake = deblur.psf.camera_shake(13, seed=3)
truth = np.minimum(night[6:-6, 6:-6], 1)
burnt = np.minimum(deblur.degrade(night, shake, noise=0.005, boundary="unknown", seed=0), 1)

linear = deblur.solve(burnt, shake, method="pcg", boundary="unknown")
default = deblur.solve(burnt, shake, boundary="unknown")
print(default.checks)
hidden = deblur.solve(burnt, shake, lam="auto", method="tv", mask=burnt >= 1, bounds="nonnegative", boundary="unknown")
panels = {"burnt": burnt, "linear formula": linear.image, "nothing named": default.image}
panels["hidden, tv, bounds"] = hidden.image
decibels(truth, panels)
show(panels)

# %% [markdown]
# ## Few photons
#
# Where photons are counted, noise grows with brightness. The steps of Richardson-Lucy are made for this noise. They
# keep the scene positive and use the exact weights at the edge of the frame. There is no λ: early iterations are
# smooth, and late ones fit the noise. The method stops where the error is expected to be least. It finds this from two
# images whose noise is independent, so that the level of the noise need not be known.

# %%
truth = scene[4:-4, 4:-4]
dim = deblur.degrade(scene, psf, noise="poisson", level=100, boundary="unknown", seed=0)
counted = deblur.solve(dim, psf, method="richardson-lucy", boundary="unknown")
print(counted.why)
edges = deblur.solve(dim, psf, lam="auto", method="tv", data="poisson", boundary="unknown")
panels = {"photons counted": dim, "Richardson-Lucy": counted.image, "Poisson and total variation": edges.image}
decibels(truth, panels)
show(panels)

# %% [markdown]
# The curves show the whiteness of the residual after each iteration, and the PSNR against the true scene, which is
# unknown in practice. The grey line is where the rule stopped. Here a tolerance replaces the rule, so that all
# iterations are made.

# %%
iterations = np.arange(1, 13)
quality, whiteness = [], []
for n in iterations:
    step = deblur.solve(
        dim, psf, method="richardson-lucy", boundary="unknown", rtol=1e-12, max_iterations=n, check=False
    )
    quality.append(psnr(truth, step.image))
    # What is left over, divided by the noise that it should have.
    left = step.residual_image / np.sqrt(dim - step.residual_image)
    power = abs(np.fft.fft2(left)).ravel()[1:] ** 2
    whiteness.append(np.mean(power**2) / np.mean(power) ** 2)
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(iterations, whiteness, "o-", label="whiteness of the residual")
ax.axvline(counted.iterations, color="0.7")
ax.set(xlabel="iterations", ylabel="whiteness")
other = ax.twinx()
other.plot(iterations, quality, "s--", color="C1", label="against the truth")
other.set_ylabel("PSNR in dB")
figure.legend(loc="outside upper center", ncols=2)
# %% [markdown]
# ## A shaken photograph
#
# This photograph is in colour, and the path of the shaking hand is known. The colours share their edges. Nothing is
# assumed about the scene beyond the frame.

# %%
cat = deblur.data.load("cat")[40:200, 40:200]
shake = deblur.psf.camera_shake(17, seed=2)
truth = cat[8:-8, 8:-8]
shaken = deblur.degrade(cat, shake, noise=0.01, boundary="unknown", channel_axis=-1, seed=0)
linear = deblur.solve(shaken, shake, boundary="unknown", channel_axis=-1)
edges = deblur.solve(shaken, shake, lam="auto", method="tv", boundary="unknown", channel_axis=-1)
panels = {"shaken": shaken, "linear formula": linear.image, "total variation": edges.image}
decibels(truth, panels)
show(panels)

# %% [markdown]
# ## How far to trust a pixel
#
# If data fidelity and regularizer are both quadratic, the restored scene is the mean of a Gaussian posterior with the
# covariance σ²(HᵀWH + λLᵀL)⁻¹. `posterior_std` gives the square root of its diagonal. Here dead pixels, a scratch and
# a blot are hidden. The gradient regularizer fills them in, and the map shows how uncertain the filled pixels are.

# %%
truth = scene[4:-4, 4:-4]
grey = deblur.degrade(scene, psf, noise=0.01, boundary="unknown", seed=0)
lost = np.random.default_rng(0).random(grey.shape) < 0.02
lost[:, 100:102] = True
lost[30:44, 60:80] = True
filled = deblur.solve(grey, psf, lam="auto", method="gradient", mask=lost, boundary="unknown")
spread = deblur.posterior_std(filled, image=grey, probes=32)
print(spread)
error = abs(filled.image - truth)
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
axes[0].imshow(filled.image, vmin=0, vmax=1)
axes[0].set_title("restored")
for ax, title, image in ((axes[1], "expected error", spread.std), (axes[2], "true error", error)):
    shown = ax.imshow(image, vmin=0, vmax=0.15, cmap="magma")
    ax.set_title(title)
figure.colorbar(shown, ax=axes[1:])
for ax in axes:
    ax.axis("off")

# %% [markdown]
# The map depends on the blur, the mask, σ and λ, and not on the picture: it is what the *model* expects. The errors of
# a photograph are largest at edges, which the model does not know. Smooth walls have smaller errors than it says.

# %%
blot = np.s_[30:44, 60:80]
for name, where in (("whole picture", np.s_[:, :]), ("inside the blot", blot)):
    expected, true = (np.sqrt(np.mean(x[where] ** 2)) for x in (spread.std, error))
    print(f"{name:16} expected {expected:.3f}, true {true:.3f} (root mean square)")

# %% [markdown]
# The picture above was estimated from random probes, and each pixel's value has an error of its own
# (`spread.standard_error`). For the linear formula no probes are needed where the blur has a decomposition or is small;
# there the two can be compared:

# %%
linear = deblur.solve(grey, psf, boundary="unknown", prior="zero")
print(deblur.posterior_std(linear, image=grey))
corner = deblur.solve(grey[:40, :40], deblur.psf.camera_shake(9, seed=2), 1e-2, boundary="unknown")
exact = deblur.posterior_std(corner, noise=0.01, method="cholesky")
probed = deblur.posterior_std(corner, noise=0.01, method="probing")
off, stated = (np.sqrt(np.mean(x**2)) for x in (probed.std - exact.std, probed.standard_error))
print(f"{probed.probes} probes: off by {off:.1e}, stated {stated:.1e}, of a deviation of {exact.std.mean():.1e}")
