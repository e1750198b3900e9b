"""Dense linear algebra on one GPU against cuSOLVER, cuBLAS and JAX: inverses and factors, products, QR.

    python benchmarks/bench_gpu_linalg.py                          all
    python benchmarks/bench_gpu_linalg.py --parts "gpu_qr: slowed"   a part alone, beside the others as they were

Times are wall-clock through the public functions with the device synchronised before and after: checks, the copy of the
input and the wait for the status included; those of the device and of the host are recorded too. The floor is the
operations at the rate of a product of the same run, or reading and writing at that of a copy, whichever is longer.
"slowed" is a part of it with the host slowed: this process on one core, which another busy one shares. The peers work
out of place as well. Needs CuPy and PyTorch; JAX is a peer of QR where it is installed.

inverse: writes benchmarks/results/gpu_inverse.json. Errors are ‖A X − I‖ / (n eps ‖A‖ ‖X‖) in Frobenius norms.

products: every engine of float32 and float64, general and A'A. Errors are relative, in the Frobenius norm: of 256 rows
against float64 for float32, of 8 x 64 elements against long double for float64. Writes gpu_matmul.json.

qr: reduced Q and R, both formed. A peer that loops over the batch is left out of the cells where its time on the
shape's smallest batch predicts more than `LONGEST` seconds. The check for NaN and infinity, which no peer makes, is
off. The sweep is of single matrices, square, tall and wide. Writes gpu_qr.json.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to the others

import cupy
import numpy as np
import torch
from _common import asked, gpu_rates, measured_before, save, slowed_host, table, time_on_gpu

import deblur
from deblur import linalg
from deblur.linalg import choose_qr, matmul_gpu, qr

SIZES, REPEATS = (4096, 6400, 9216, 16384), 7
LONGEST = 1.4  # seconds that a peer's single call of QR may take
DTYPES = ("float32", "float64")


def free_caches() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    torch.cuda.empty_cache()


# ---------------------------------------------------------------- inverses and factors

#: Seconds of the MATLAB inverse in table 5.1 of the thesis (Core 2 Duo), by pixels a side.
THESIS_MATLAB = {64: 24.29, 80: 87.5, 96: 259.0, 128: 1497.0}
#: The peer of each function, its operations over n³, and the engine of its products in float32.
INVERSES = {
    "cholesky_inverse": ("torch cholesky + cholesky_inverse", 1.0, "half"),
    "gauss_jordan_inverse": ("cupy.linalg.inv", 2.0, "split"),
    "cholesky": ("torch cholesky", 1 / 3, "half"),
    "gets": ("torch solve_triangular", 1 / 3, "split"),
}


def residual(a: Any, x: Any) -> float:
    """‖A X − I‖ / (n eps ‖A‖ ‖X‖), the product in float64."""
    n, eps, norm = len(a), np.finfo(a.dtype).eps, cupy.linalg.norm
    a, x = a.astype(np.float64), x.astype(np.float64)
    r = a @ x
    r.reshape(-1)[:: n + 1] -= 1
    return float(norm(r) / (n * eps * norm(a) * norm(x)))


def inverted(n: int, dtype: str) -> dict[str, Any]:
    """All entrants on a general matrix and on a symmetric positive definite one."""
    general = cupy.random.default_rng(n).standard_normal((n, n), dtype=dtype)
    definite = general @ general.T / n + cupy.eye(n, dtype=dtype)
    definite = (definite + definite.T) / 2
    s = torch.as_tensor(definite, device="cuda")
    t_factor, identity = torch.linalg.cholesky(s), torch.eye(n, device="cuda", dtype=s.dtype)
    factor = cupy.asarray(t_factor)
    calls: dict[str, Callable[[], Any]] = {
        "cholesky": lambda: linalg.cholesky(definite),
        "torch cholesky": lambda: torch.linalg.cholesky(s),
        "gets": lambda: linalg.gets(factor),
        "torch solve_triangular": lambda: torch.linalg.solve_triangular(t_factor, identity, upper=False),
        "cholesky_inverse": lambda: linalg.cholesky_inverse(definite),
        "torch cholesky + cholesky_inverse": lambda: torch.cholesky_inverse(torch.linalg.cholesky(s)),
        "gauss_jordan_inverse": lambda: linalg.gauss_jordan_inverse(general),
        "cupy.linalg.inv": lambda: cupy.linalg.inv(general),
    }
    times = time_on_gpu(calls, repeats=REPEATS)
    of = {"cholesky_inverse": definite, "gauss_jordan_inverse": general, "gets": factor, "cupy.linalg.inv": general}
    errors = {name: residual(a, calls[name]()) for name, a in of.items()}
    verdicts = {
        ours: {"peer": peer, "ratio": times[ours]["median_s"] / times[peer]["median_s"]}
        for ours, (peer, _, _) in INVERSES.items()
    }
    free_caches()
    return {"dtype": dtype, "n": n, "times": times, "errors": errors, "verdicts": verdicts}


def inverses(dtype: str) -> list[dict[str, Any]]:
    """Every size in one dtype, with the floors."""
    rates, rows = gpu_rates(dtype), []
    for n in SIZES:
        moved = 2 * n * n * np.dtype(dtype).itemsize / rates["copy"]
        floors = {
            ours: max(share * n**3 / rates[engine if dtype == "float32" else "cublas"], moved)
            for ours, (_, share, engine) in INVERSES.items()
        }
        rows.append(inverted(n, dtype) | {"floors_s": floors})
    return rows


def inverses_slowed() -> list[dict[str, Any]]:
    with slowed_host():
        return [inverted(SIZES[0], dtype) for dtype in DTYPES]


def whole_calls() -> dict[str, Any]:
    """`reconstruct` on a CuPy image, everything included, beside the times of the thesis."""
    psf = deblur.psf.gaussian(9, 2.0)
    out: dict[str, Any] = {}
    for side, seconds in THESIS_MATLAB.items():
        for dtype in DTYPES:
            image = cupy.random.default_rng(side).random((side, side)).astype(dtype)

            def call(image: Any = image) -> Any:
                return deblur.reconstruct(image, psf, 1e-3, method="cholesky", boundary="zero")

            exact = deblur.reconstruct(
                image.get().astype(np.float64), psf, 1e-3, method="pcg", rtol=1e-12, boundary="zero"
            )
            difference = float(np.linalg.norm(call().get() - exact) / np.linalg.norm(exact))
            row = {"times": time_on_gpu({"reconstruct": call}, repeats=REPEATS)}
            row |= {"relative_difference_to_pcg": difference, "thesis_matlab_inverse_s": seconds}
            out[f"{side} x {side} {dtype}"] = row
    return out


def inverse_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    def rows_of(part: str) -> list[dict[str, Any]]:
        rows = []
        for size in r.get(part, []):
            for ours, verdict in size["verdicts"].items():
                taken, peer = size["times"][ours]["median_s"], size["times"][verdict["peer"]]["median_s"]
                row = {"what": ours, "dtype": size["dtype"], "n": size["n"], "taken": taken, "theirs": peer}
                row |= {"floor": size.get("floors_s", {}).get(ours), "peer": verdict["peer"], "faster": peer / taken}
                rows.append(row)
        return rows

    title = (
        "**On a GPU: inverses and factorisations.** The floor is the operations at the rate of a product of the same "
        "run."
    )
    columns = {
        "`deblur.linalg`": "{what}",
        "dtype": "{dtype}",
        "n": "{n}",
        "ms": "{taken:ms}",
        "floor, ms": "{floor:ms}",
    }
    columns |= {"peer, ms": "{theirs:ms} ({peer})", "times faster": "{faster:.1f}"}
    calls = {"image": "{name}", "`reconstruct`, ms": "{times[reconstruct][median_s]:ms}"}
    calls |= {"MATLAB's inverse in the thesis": "{thesis_matlab_inverse_s:g} s"}
    calls |= {"relative difference from `pcg`": "{relative_difference_to_pcg:sci}"}
    whole = "The whole call on a CuPy image, with the matrix built and factored, and the result verified (`cholesky`):"
    slowed = "With the host slowed (the process on one core, which another busy one shares):"
    return [
        table(title, columns, rows_of("sizes")),
        table(whole, calls, [{"name": name} | case for name, case in r.get("reconstruct", {}).items()]),
        table(slowed, {k: v for k, v in columns.items() if k != "floor, ms"}, rows_of("slowed")),
    ]


def inverse_summary(r: dict[str, Any]) -> str:
    ratios = {name: [1 / size["verdicts"][name]["ratio"] for size in r["sizes"]] for name in INVERSES}
    definite, pivoted = (
        f"{min(ratios[name]):.1f} to {max(ratios[name]):.1f}" for name in ("cholesky_inverse", "gauss_jordan_inverse")
    )
    return (
        f"On an H200, against the libraries in the same run, symmetric inverses are {definite} times faster, pivoted "
        f"inverses {pivoted} times."
    )


# ---------------------------------------------------------------- products


def reference(a: Any, b: Any) -> tuple[tuple[slice, slice], Any]:
    """A part of a @ b in a higher precision, and which part it is."""
    if a.dtype == np.float32:
        part = slice(0, 256), slice(None)
        return part, a[part[0]].astype(np.float64) @ b.astype(np.float64)
    part = slice(0, 8), slice(0, 64)
    left, right = a[part[0]].get().astype(np.longdouble), b[:, part[1]].get().astype(np.longdouble)
    return part, cupy.asarray((left @ right).astype(np.float64))


def multiplied(n: int, dtype: str) -> list[dict[str, Any]]:
    """Every engine on one n x n product, and torch."""
    rng = cupy.random.default_rng(n)
    a, b = (rng.standard_normal((n, n), dtype=dtype) for _ in range(2))
    part, exact = reference(a, b)
    engines = ("cublas", "split", "half", "tiled") if dtype == "float32" else ("cublas", "tiled")
    outputs = {engine: cupy.full((n, n), np.nan, dtype) for engine in (*engines, "torch")}
    calls: dict[str, Callable[[], Any]] = {
        engine: partial(matmul_gpu.gemm, a, b, outputs[engine], engine=engine) for engine in engines
    }
    ta, tb, tc = (torch.from_dlpack(x) for x in (a, b, outputs["torch"]))
    calls["torch"] = lambda: torch.matmul(ta, tb, out=tc)
    timings, rows = time_on_gpu(calls, repeats=REPEATS), []
    for engine, timing in timings.items():
        c, seconds = outputs[engine], timing["median_s"]
        assert bool(cupy.isfinite(c).all()), f"{engine} left elements unwritten"
        row = {"product": "general", "n": n, "dtype": dtype, "engine": engine, "ms": 1e3 * seconds, "timing": timing}
        row |= {"tflops": 2e-12 * n**3 / seconds, "times_cublas": timings["cublas"]["median_s"] / seconds}
        rows.append(row | {"relative_error": float(cupy.linalg.norm(c[part] - exact) / cupy.linalg.norm(exact))})
    return rows


def products() -> list[dict[str, Any]]:
    torch.backends.cuda.matmul.allow_tf32 = False
    return [row for n in SIZES for dtype in DTYPES for row in multiplied(n, dtype)]


def shown_products(r: dict[str, Any], engines: tuple[str, ...]) -> list[dict[str, Any]]:
    float32 = [p for p in r["products"] if p["product"] == "general" and p["dtype"] == "float32"]
    return [p for p in float32 if p["engine"] in engines]


def product_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    title = (
        "**On a GPU: float32 products.** `split` adds three TF32 products of split operands in float32 outside the "
        "tensor cores; `half` does the same with float16 parts."
    )
    columns = {"engine": "{engine}", "n": "{n}", "TFLOP/s": "{tflops:.0f}"}
    columns |= {"times cuBLAS float32": "{times_cublas:.2f}", "relative error": "{relative_error:sci}"}
    return [table(title, columns, shown_products(r, ("cublas", "split", "half")))]


def product_summary(r: dict[str, Any]) -> str:
    ratios = [p["times_cublas"] for p in shown_products(r, ("split",))]
    return f"Float32 products on an H200 are {min(ratios):.1f} to {max(ratios):.1f} times as fast as cuBLAS's."


# ---------------------------------------------------------------- QR

#: (rows, columns): batches. The published grid for Apple silicon (cormaccinnsealach/qr-apple-silicon), then large
#: single matrices.
GRID: dict[tuple[int, int], tuple[int, ...]] = {
    (64, 64): (100, 500, 1000, 5000, 10000, 15000),
    (128, 64): (100, 500, 1000, 5000, 10000, 15000),
    (256, 128): (100, 500, 1000, 5000),
    (512, 256): (100, 500, 1000),
    (512, 512): (1, 8, 16, 32),
    (1024, 512): (1, 8, 16, 32),
    (5000, 5000): (1, 8),
    (8192, 8192): (1,),
    (16384, 4096): (1,),
    (20000, 1000): (1,),
}
SQUARE = (
    16, 32, 64, 100, 128, 200, 257, 300, 400, 512, 700, 1000, 1500, 2000, 2200, 2400, 2560, 2800, 3000, 3200, 3500,
    4000, 5000, 6400, 8192, 10000,
)  # fmt: skip
TALL = ((128, 16), (512, 64), (1000, 200), (4000, 1000), (6000, 3000), (10000, 500), (10000, 2500))
SWEEP = (*((n, n) for n in SQUARE), *TALL, (3000, 2999), *((n, m) for m, n in TALL), (2500, 3000))
SLOWED = (*((n, n) for n in (64, 300, 1000, 2560, 3500)), (4000, 1000), (5000, 5000), (8192, 8192))


def qr_peers() -> dict[str, Callable[[Any], Callable[[], Any]]]:
    """Name to a function that takes the input and returns the call to time."""
    found: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "cupy": lambda a: partial(cupy.linalg.qr, a),
        "torch": lambda a: partial(torch.linalg.qr, torch.from_dlpack(a)),
    }
    try:
        import jax
    except ImportError:
        return found
    factor = jax.jit(jax.numpy.linalg.qr)

    def with_jax(a: Any) -> Callable[[], Any]:
        b = jax.dlpack.from_dlpack(a)
        return lambda: jax.block_until_ready(factor(b))

    return found | {"jax": with_jax}


def qr_errors(a: Any, q: Any, r: Any) -> dict[str, float]:
    """Worst matrix of (at most 64 of) the stack: ‖QᵀQ−I‖ and ‖QR−A‖/‖A‖, over √n·eps."""
    unit, norm = np.sqrt(min(a.shape[-2:])) * np.finfo(q.dtype).eps, cupy.linalg.norm
    found = []
    for i in range(0, len(a), max(1, len(a) // 64)):
        a64, q64, r64 = (x[i].astype(cupy.float64) for x in (a, q, r))
        found.append((loss_of_orthogonality(q64) / unit, float(norm(q64 @ r64 - a64) / norm(a64)) / unit))
    return dict(zip(("orthogonality", "backward"), map(max, zip(*found))))


def loss_of_orthogonality(q: Any) -> float:
    """‖QᵀQ − I‖ with more digits than float64 has, whose own rounding would be a good part of the result.

    Q is the sum of parts. The products of the first with itself and with the second have so few digits that their sums
    are exact; the other products are rounded, and far smaller.
    """
    digits = (53 - int(np.ceil(np.log2(len(q))))) // 2 - 1
    high = cupy.ldexp(cupy.rint(cupy.ldexp(q, digits)), -digits)
    rest = q - high
    middle = cupy.ldexp(cupy.rint(cupy.ldexp(rest, 2 * digits)), -2 * digits)
    gram = high.T @ high
    gram[cupy.diag_indices(len(gram))] -= 1
    for part in (middle, rest - middle):
        gram += (cross := high.T @ part) + cross.T
    gram += rest.T @ rest
    return float(cupy.linalg.norm(gram))


def factored(a: Any, peers: dict[str, Any], repeats: int) -> dict[str, Any]:
    """One cell: times of all, the best of the others, and our errors."""
    single = a[0] if len(a) == 1 else a
    calls = {"ours": partial(qr, single, check_finite=False)} | {name: make(single) for name, make in peers.items()}
    times = time_on_gpu(calls, repeats=repeats)
    best = min(peers, key=lambda name: times[name]["median_s"])
    q, r = qr(a, check_finite=False)
    row = {"rows": a.shape[1], "columns": a.shape[2], "batch": len(a), "dtype": a.dtype.name}
    row |= {"kernel": choose_qr(single.shape, a.dtype).kernel, "times": times, "best_peer": best}
    row |= {"speedup_over_best": times[best]["median_s"] / times["ours"]["median_s"]}
    row |= {"errors_over_sqrt_n_eps": qr_errors(a, q, r)}
    free_caches()
    return row


def qr_floor(m: int, n: int, dtype: str, rates: dict[str, float]) -> float:
    """Seconds of the operations, or of the memory traffic, for Q and R."""
    k, columns = min(m, n), max(n - m, 0)
    # R of the first k columns and Q of the same, and k reflections applied to the columns beyond.
    operations = 2 * (2 * m * k**2 - 2 * k**3 / 3) + 4 * columns * (m * k - k**2 / 2)
    return max(operations / rates["cublas"], (m * n + m * k + k * n) * np.dtype(dtype).itemsize / rates["copy"])


def sweep(shapes: Iterable[tuple[int, int]], dtype: str) -> list[dict[str, Any]]:
    """Every shape in one dtype."""
    rates, peers, rows = gpu_rates(dtype), qr_peers(), []
    for m, n in shapes:
        a = cupy.random.default_rng(n).standard_normal((1, m, n), dtype=dtype)
        row = factored(a, peers, 3 if m * n > 1 << 24 else 5)
        rows.append(row | {"floor_s": qr_floor(m, n, dtype, rates)})
    return rows


def sweep_slowed() -> list[dict[str, Any]]:
    with slowed_host():
        return sweep(SLOWED, "float32")


def grid() -> list[dict[str, Any]]:
    """All cells of `GRID`."""
    results = []
    for (m, n), batches in GRID.items():
        seconds_each: dict[str, float] = {}
        for batch in batches:
            a = cupy.random.default_rng(batch).standard_normal((batch, m, n), dtype=cupy.float32)
            peers = {name: f for name, f in qr_peers().items() if seconds_each.get(name, 0.0) * batch <= LONGEST}
            big = batch * m * n * n > 2e11 or max(seconds_each.values(), default=0) * batch > 0.1
            row = factored(a, peers, 3 if big else REPEATS)
            seconds_each |= {name: row["times"][name]["median_s"] / batch for name in peers}
            results.append(row)
    return results


def qr_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    title = "**On a GPU: QR in float32, reduced Q and R.** Errors are of orthogonality and of QR − A."
    columns = {"matrix": "{rows} × {columns}", "batch": "{batch}", "kernel": "{kernel}"}
    columns |= {"ms": "{times[ours][median_s]:ms}"}
    best = "{speedup_over_best:.1f} ({best_peer})"
    columns |= {"times faster than the best of torch, CuPy, JAX": best}
    errors = "errors_over_sqrt_n_eps"
    columns |= {"errors / (√n eps)": f"{{{errors}[orthogonality]:.1f}}, {{{errors}[backward]:.2f}}"}
    rows = r.get("sweep", [])
    ratios = sorted(row["speedup_over_best"] for row in rows)
    slower = [
        f"{row['rows']} × {row['columns']} in {row['dtype']} ({row['speedup_over_best']:.2f})"
        for row in rows
        if row["speedup_over_best"] < 1
    ]
    notes = (
        f"Of {len(rows)} shapes of one matrix, square, tall and wide, with sides from 16 to 10000, in both dtypes, "
        f"`qr` is {ratios[0]:.2f} to {ratios[-1]:.1f} times as fast as the best of the three (median "
        f"{ratios[len(ratios) // 2]:.1f}), and slower in {len(slower)}{': ' if slower else ''}{', '.join(slower)}. Its "
        f"error of orthogonality is at most {max(row[errors]['orthogonality'] for row in rows):.1f} √n eps."
        if rows
        else ""
    )
    slowed = {"matrix": "{rows} × {columns}", "ms": "{times[ours][median_s]:ms}"}
    slowed |= {"of the device, ms": "{times[ours][device_s]:ms}", "times faster than the best": best}
    second = "With the host slowed (the process on one core, which another busy one shares), in float32:"
    return [table(title, columns, r.get("grid", []), notes), table(second, slowed, r.get("slowed", []))]


def qr_summary(r: dict[str, Any]) -> str:
    lone = [row["speedup_over_best"] for row in r["sweep"]]
    many = [row["speedup_over_best"] for row in r["grid"] if row["batch"] >= 100]
    return (
        f"QR on an H200 is {min(lone):.1f} to {max(lone):.1f} times as fast as the best library for one matrix "
        f"({len(lone)} shapes), and {min(many):.0f} to {max(many):.0f} times for batches of a hundred and more."
    )


# ---------------------------------------------------------------- the run

#: Of each record: its parts, each with the key of the results, the dtype where the key holds both, and the measurement.
RECORDS: dict[str, dict[str, tuple[str, str, Callable[[], Any]]]] = {
    "gpu_inverse": {
        "float32": ("sizes", "float32", partial(inverses, "float32")),
        "float64": ("sizes", "float64", partial(inverses, "float64")),
        "slowed": ("slowed", "", inverses_slowed),
        "reconstruct": ("reconstruct", "", whole_calls),
    },
    "gpu_matmul": {"products": ("products", "", products)},
    "gpu_qr": {
        "sweep float32": ("sweep", "float32", partial(sweep, SWEEP, "float32")),
        "sweep float64": ("sweep", "float64", partial(sweep, SWEEP, "float64")),
        "slowed": ("slowed", "", sweep_slowed),
        "grid": ("grid", "", grid),
    },
}
SHOWN = {
    "gpu_inverse": (inverse_tables, inverse_summary),
    "gpu_matmul": (product_tables, product_summary),
    "gpu_qr": (qr_tables, qr_summary),
}


def main() -> None:
    options = asked(__doc__, parts=tuple(f"{name}: {part}" for name in RECORDS for part in RECORDS[name]))
    warnings.simplefilter("ignore")
    for chosen in options.parts:
        name, part = chosen.split(": ")
        results, kept = measured_before(name, list(RECORDS[name]))
        key, dtype, measure = RECORDS[name][part]
        found = measure()
        if dtype:
            others = [row for row in results.get(key, []) if row["dtype"] != dtype]
            found = sorted(others + found, key=itemgetter("dtype"))
        results[key] = found
        kept.pop(part, None)
        make_tables, make_summary = SHOWN[name]
        words = make_summary(results) if all(key in results for key, _, _ in RECORDS[name].values()) else ""
        save(name, results, make_tables(results), words, repeats=REPEATS, kept=kept)


if __name__ == "__main__":
    main()
