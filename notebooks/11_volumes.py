# %% [markdown]
# # Volumes
#
# A microscope that focuses through a specimen records a volume. Each plane contains light of all the others, so that
# no plane can be restored by itself. The PSF has three axes, and H maps volumes to volumes. Everything else is as for
# pictures. `reconstruct` restores a volume because the PSF has three axes.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import deblur

plt.rcParams.update({"figure.dpi": 50, "image.cmap": "gray"})

# %% [markdown]
# ## A specimen and its microscope
#
# Fibres and beads in a medium, on voxels of 0.3 x 0.13 x 0.13 µm, and the PSF of a wide-field microscope, integrated
# over each voxel.

# %%
rng = np.random.default_rng(3)
voxel = (0.3, 0.13, 0.13)
psf = deblur.psf.microscope((21, 15, 15), voxel[:2], wavelength=0.52, na=1.2)
specimen = np.zeros((44, 78, 94))
for _ in range(7):
    t = np.linspace(-1, 1, 1500)[:, None]
    middle, direction, bend = (rng.uniform(-1, 1, 3) for _ in range(3))
    path = (0.4 * middle + direction / np.linalg.norm(direction) * t + 0.2 * bend * t**2) * np.array(specimen.shape) / 2
    at = np.rint(path + np.array(specimen.shape) / 2).astype(int)
    at = at[((at >= 0) & (at < specimen.shape)).all(axis=1)]
    np.add.at(specimen, tuple(at.T), 40.0)
beads = rng.uniform(8, np.array(specimen.shape) - 8, (12, 3)).astype(int)
specimen[tuple(beads.T)] += 9000
specimen = 5 + gaussian_filter(specimen, (0.8, 1.2, 1.2))

exact = deblur.degrade(specimen, psf, boundary="unknown")
recorded = rng.poisson(np.maximum(exact, 0)).astype(np.float32)
edge = [(m - n) // 2 for m, n in zip(specimen.shape, recorded.shape)]
truth = specimen[tuple(slice(e, e + n) for e, n in zip(edge, recorded.shape))]
print(f"{recorded.shape} voxels, up to {recorded.max():.0f} photons")

# %% [markdown]
# `deblur.plot.volumes` shows volumes from three sides, in their own proportions, by their maxima and by slices through
# the middle. The PSF, whose square root makes its weak parts visible:

# %%
deblur.plot.volumes({"square root of the PSF": np.sqrt(psf)}, voxel)

# %% [markdown]
# ## Restored
#
# The linear formula needs no number: λ is chosen by cross-validation, and nothing is assumed beyond the border of the
# volume. Photons are counted, and no voxel is negative. Richardson-Lucy uses both facts.

# %%
linear = deblur.solve(recorded, psf)
print(linear)
counted = deblur.solve(recorded, psf, method="richardson-lucy", bounds="nonnegative", data="poisson", max_iterations=60)
print(f"\n{counted.method}: {counted.iterations} iterations, {counted.status.value}")


def error(volume):
    return np.linalg.norm(volume - truth) / np.linalg.norm(truth)


for name, volume in {"recorded": recorded, "linear": linear.image, "Richardson-Lucy": counted.image}.items():
    print(f"{name:16} relative error {error(volume):.3f}")

# %%
deblur.plot.volumes({"recorded": recorded, "Richardson-Lucy": counted.image}, voxel)

# %% [markdown]
# ## What plane by plane would do
#
# Restoring each plane by itself, with the plane of the PSF that is in focus, solves another problem: the light of the
# planes above and below is taken for light of this plane. These are slices through one bead, along z and x:

# %%
flat = psf[10] / psf[10].sum()
planes = deblur.reconstruct(recorded, flat, stack_axis=0)
inside = beads - edge
z, y, x = inside[((inside > 4) & (inside < np.array(recorded.shape) - 4)).all(axis=1)][0]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
shown = {"recorded": recorded, "plane by plane": planes, "as a volume": linear.image}
for ax, (name, volume) in zip(axes, shown.items()):
    ax.imshow(volume[:, y], extent=(0, recorded.shape[2] * voxel[2], recorded.shape[0] * voxel[0], 0))
    ax.set(title=name, xlabel="x, µm", ylabel="z, µm")

# %% [markdown]
# ## Files
#
# `deblur reconstruct stack.ome.tif -o out.ome.zarr --psf microscope:21x15x15,0.3x0.13,0.52,1.2` does this for a file.
# Axes, voxel sizes and names of channels are read from OME-TIFF, ImageJ's TIFF and OME-Zarr, and written into the
# output. `--axis ZYX` names axes where a file does not, `--time 3` and `--channel GFP` select, and `--views look.png`
# draws the figure above. All time points of a channel are restored with one λ, and one of them is in memory at a time.
