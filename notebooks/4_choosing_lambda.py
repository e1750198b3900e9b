# %% [markdown]
# # Choosing λ
#
# One number decides how a restoration looks: λ in f = Hᵀ(HHᵀ + λI)⁻¹ g. If λ is too small, the noise is amplified. If
# it is too large, the picture stays blurred. Four rules choose λ from the blurred picture alone. This notebook
# compares them with the best λ, which can be found only with the sharp picture.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deblur

plt.rcParams.update({"figure.dpi": 60, "image.cmap": "gray"})

scene = deblur.data.load("camera")[60:188, 160:288]
psf = deblur.psf.gaussian(9, 1.4)
noise = 0.01
blurred = deblur.degrade(scene, psf, noise=noise, seed=3)

# %% [markdown]
# ## The true error
#
# The error of the restored image against λ, which needs the sharp image and is unknown in practice:

# %%
lams = np.geomspace(1e-6, 1, 49)
restore = {lam: deblur.reconstruct(blurred, psf, lam, boundary="zero") for lam in lams}
errors = np.array([deblur.metrics.mse(scene, image) for image in restore.values()])
best = lams[errors.argmin()]

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.loglog(lams, errors)
ax.axvline(best, color="0.5", linestyle="--", label=f"best λ = {best:.1e}")
ax.axhline(deblur.metrics.mse(scene, blurred), color="C1", label="blurred picture")
ax.set(xlabel="λ", ylabel="mean square error")
_ = ax.legend()

# %% [markdown]
# ## Four rules
#
# | rule | what it looks for | what it must know |
# | --- | --- | --- |
# | `gcv` | the λ at which each pixel is best predicted from the others | nothing |
# | `discrepancy` | a residual as large as the noise | the noise level |
# | `upre` | the least estimated error | the noise level |
# | `lcurve` | the corner between fitting the data and keeping the picture small | nothing |
#
# A noise level that is not given is estimated from the picture.

# %%
print(f"best λ {best:.1e}: {deblur.metrics.psnr(scene, restore[best]):.2f} dB")
print(f"noise {noise} in truth, estimated {deblur.tuning.estimate_noise(blurred):.4f}\n")
results = {}
for rule in ("gcv", "discrepancy", "upre", "lcurve"):
    for given in (None, noise) if rule in ("discrepancy", "upre") else (None,):
        result = deblur.solve(blurred, psf, rule, noise=given, boundary="zero")
        name = rule + (", noise given" if given else "")
        results[name] = result
        print(f"{name:24} λ = {result.lam:.1e}: {deblur.metrics.psnr(scene, result.image):.2f} dB")

# %% [markdown]
# These are the curves that the rules use. The GCV function has its minimum near the best λ. The L-curve has its corner
# where the *noise* begins to be fitted. On photographs this is far from the λ of the best picture.

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
deblur.plot.gcv_curve(results["gcv"], axes[0])
deblur.plot.gcv_curve(results["discrepancy, noise given"], axes[1])
deblur.plot.l_curve(results["lcurve"], axes[2])
for ax in axes[:2]:
    ax.axvline(best, color="C2", linewidth=1, label="best λ")
    ax.legend()

# %% [markdown]
# ## Ask the residual
#
# Blur the restored scene again and subtract it from the data. The rest should be noise and nothing else: it should
# show no picture, and be as large as the noise. This check does not need the scene. Below, λ is a hundredth of the
# chosen one, the chosen one, and ten times that.

# %%
figure, axes = plt.subplots(2, 3, figsize=(7, 5), layout="constrained")
for column, lam in zip(axes.T, (results["gcv"].lam / 100, results["gcv"].lam, results["gcv"].lam * 10)):
    result = deblur.solve(blurred, psf, lam, boundary="zero")
    column[0].imshow(result.image, vmin=0, vmax=1)
    column[0].set_title(f"λ = {lam:.0e}: {deblur.metrics.psnr(scene, result.image):.1f} dB")
    column[1].imshow(result.residual_image, vmin=-0.05, vmax=0.05)
    column[1].set_title(f"residual {result.residual_image.std():.4f}")
for ax in axes.flat:
    ax.axis("off")

# %% [markdown]
# On the left the residual is smaller than the noise: some of the noise is in the restored picture. On the right the
# residual shows the picture. In the middle it shows a faint trace of the picture, which is the price of suppressing
# noise. `deblur.plot.residual_image` draws the residual with its periodogram. For white noise the periodogram would
# lie on the dashed line:

# %%
figure = deblur.plot.residual_image(results["gcv"], plt.figure(figsize=(8, 3.4), layout="constrained"))

# %% [markdown]
# ## When a rule fails, it says so
#
# `remark` is empty where all is well. Given the wrong PSF, no λ explains the data:

# %%
wrong = deblur.solve(blurred, deblur.psf.gaussian(15, 3.0), "discrepancy", noise=noise / 4, boundary="zero")
print(wrong.lambda_choice.remark)

# %% [markdown]
# ## More than one picture
#
# One picture proves nothing. The figures below were recorded by `benchmarks/bench_lambda.py`: the PSNR that each
# rule loses against the best λ.

# %%
record = json.loads(Path("../benchmarks/results/lambda_choice.json").read_text())
summary = record["results"]["summary"]["all"]
print(f"{next(iter(summary.values()))['cases']} cases, recorded {record['environment']['date']}\n")
print(f"{'rule':32}{'median loss':>12}{'95 %':>8}{'worst':>8}   dB")
for rule, s in summary.items():
    print(f"{rule:32}{s['median_loss_db']:12.2f}{s['loss_db_95th_percentile']:8.2f}{s['worst_loss_db']:8.1f}")

# %% [markdown]
# ## What to take away
#
# - Leave λ out: `lam="auto"` is `"gcv"`, found more quickly. It needs nothing and is seldom far from the best.
# - If you know the noise level, give it: `noise=...` selects `"upre"`, the best of these rules.
# - Do not trust the L-curve on photographs. Use it to understand a problem.
# - Look at the residual: it should be noise and nothing else.
# - `result.lam_reason` says where λ came from, and what was odd about it.
