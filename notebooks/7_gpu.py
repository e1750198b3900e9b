# %% [markdown]
# # The GPU, with recorded figures
#
# Pass a CuPy array, and everything happens on its GPU. The matrix is built there from the PSF. The project's own CUDA
# kernels factor and solve it. The restored picture is a CuPy array.
#
# ```python
# import cupy
# import deblur
#
# image = cupy.asarray(blurred)
# restored = deblur.reconstruct(image, psf, 1e-3, method="cholesky")   # a CuPy array
# inverse = deblur.linalg.cholesky_inverse(matrix)                     # CuPy in, CuPy out
# q, r = deblur.linalg.qr(thousands_of_matrices)                       # a batch in one launch
# ```
#
# This notebook needs no GPU. Every figure in it is read from `benchmarks/results`, where the scripts under
# `benchmarks/` wrote it, with the machine and the commit.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt

plt.rcParams.update({"figure.dpi": 60})


def load(name):
    return json.loads(Path(f"../benchmarks/results/{name}.json").read_text())


inverse, products, qr = load("gpu_inverse"), load("gpu_matmul"), load("gpu_qr")
for name, record in (("inverses", inverse), ("products", products), ("QR", qr)):
    e = record["environment"]
    versions = ", ".join(f"{p} {v}" for p, v in e["packages"].items() if p in ("cupy-cuda13x", "torch", "jax"))
    print(f"{name:9} {e['date']}, {e['gpu']['name']}, commit {e['commit'][:7]}, {versions}")

# %% [markdown]
# ## Inverting the system matrix
#
# The three steps of the thesis that this project grew from, Cholesky, the inverse of the triangle (GETS) and the
# product, against the best that torch and CuPy offer, which is cuSOLVER. n = 4096 is an image of 64 × 64 pixels.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
names = {
    "cholesky_inverse": "C0o-",
    "torch cholesky + cholesky_inverse": "C0s:",
    "gauss_jordan_inverse": "C1o-",
    "cupy.linalg.inv": "C1s:",
}
for ax, dtype in zip(axes, ("float32", "float64")):
    sizes = [size for size in inverse["results"]["sizes"] if size["dtype"] == dtype]
    for name, style in names.items():
        ms = [1e3 * size["times"][name]["median_s"] for size in sizes]
        ax.loglog([size["n"] for size in sizes], ms, style, label=name)
    ax.set(title=f"Inverse, {dtype}", xlabel="n", ylabel="ms")
    ax.minorticks_off()
    ax.set_xticks([size["n"] for size in sizes], [str(size["n"]) for size in sizes])
    ax.grid(alpha=0.3)
_ = axes[0].legend(fontsize=8)

# %% [markdown]
# The whole call, matrix and verification included, next to what the thesis measured for MATLAB's inverse alone:

# %%
print(f"{'image':20}{'reconstruct, ms':>16}{'MATLAB, thesis, s':>20}")
for name, case in inverse["results"]["reconstruct"].items():
    ms = 1e3 * case["times"]["reconstruct"]["median_s"]
    print(f"{name:20}{ms:16.2f}{case['thesis_matlab_inverse_s']:20.2f}")

# %% [markdown]
# ## Products on the tensor cores, with float32 accuracy
#
# An inverse is mostly products. Tensor cores multiply TF32 numbers, which keep 10 bits, many times as fast as other
# units multiply float32. Split each float32 operand into two TF32 numbers. Three products then give the float32
# product, if the partial sums are added outside the tensor cores, whose accumulators truncate. This is `split` in the
# table. `half` is the same with float16 parts.

# %%
engines = ("cublas", "split", "half")
print(f"{'engine':8}{'n':>7}{'TFLOP/s':>9}{'times cuBLAS':>14}{'relative error':>16}")
for p in products["results"]["products"]:
    if p["product"] == "general" and p["dtype"] == "float32" and p["engine"] in engines:
        print(f"{p['engine']:8}{p['n']:7}{p['tflops']:9.0f}{p['times_cublas']:14.2f}{p['relative_error']:16.1e}")

# %% [markdown]
# ## QR of thousands of matrices
#
# Libraries factor a batch one matrix after the other, or in a time that grows with each matrix from the first on. Here
# one launch factors the batch, and each block of threads holds a matrix in registers and shared memory. This is
# limited by arithmetic instead.

# %%
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
batched = [cell for cell in qr["results"]["grid"] if cell["batch"] >= 100]
for colour, shape in enumerate(dict.fromkeys((c["rows"], c["columns"]) for c in batched)):
    cells = [c for c in batched if (c["rows"], c["columns"]) == shape]
    batch = [c["batch"] for c in cells]
    best = [1e3 * c["times"][c["best_peer"]]["median_s"] for c in cells]
    ours = [1e3 * c["times"]["ours"]["median_s"] for c in cells]
    ax.loglog(batch, ours, f"C{colour}o-", label=f"{shape[0]} × {shape[1]}")
    ax.loglog(batch, best, f"C{colour}s:")
ax.set(xlabel="matrices in the batch", ylabel="ms", title="QR: deblur (lines), best of torch, CuPy and JAX (dotted)")
ax.grid(alpha=0.3)
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %%
print(f"{'matrix':>14}{'batch':>7}  {'kernel':15}{'ms':>9}{'best library, ms':>18}{'faster':>8}")
for c in qr["results"]["grid"]:
    if c["batch"] in (1, 1000):
        ours, best = (1e3 * c["times"][name]["median_s"] for name in ("ours", c["best_peer"]))
        print(
            f"{c['rows']:>7} × {c['columns']:<5}{c['batch']:6}  {c['kernel']:15}{ours:9.2f}"
            f"{best:10.2f} ({c['best_peer']}){c['speedup_over_best']:8.1f}"
        )

# %% [markdown]
# ## What to take away
#
# - Nothing changes in your code but the array library: CuPy in, CuPy out.
# - A dense inverse of the matrix of a 64 × 64 image takes milliseconds, and is a fair choice there. For a photograph
#   use a structured method, on the GPU as on the CPU.
# - Float32 accuracy and tensor-core speed go together when the sums are kept in float32.
# - Measure on your own machine: `make test-gpu`, and the scripts under `benchmarks/`.
