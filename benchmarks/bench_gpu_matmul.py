"""The GPU product against cuBLAS and PyTorch: time and error of every engine; the transposes against a copy.

Writes benchmarks/results/gpu_matmul.json (or into $OUT). Needs one GPU and CuPy; PyTorch is a peer where it
is installed. Errors are relative, in the Frobenius norm: of 256 rows against float64 for float32, of 8 x 64
elements against long double for float64. The symmetric product counts the operations of one half.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path
from typing import Any

import _common
import cupy
import numpy as np

from deblur.linalg import matmul_gpu, transpose
from deblur.linalg.transpose import mirror_lower

FLOAT32, FLOAT64 = ("cublas", "split", "half"), ("cublas",)


def seconds(contestants: dict[str, Any], repeats: int) -> dict[str, dict[str, Any]]:
    return _common.time_together(
        contestants, repeats=repeats, warmup=2, synchronize=cupy.cuda.Device().synchronize
    )


def reference(a: Any, b: Any) -> tuple[tuple[slice, slice], Any]:
    """A part of a @ b in a higher precision, and which part it is."""
    if a.dtype == np.float32:
        part = slice(0, 256), slice(None)
        return part, a[part[0]].astype(np.float64) @ b.astype(np.float64)
    part = slice(0, 8), slice(0, 64)
    left, right = a[part[0]].get().astype(np.longdouble), b[:, part[1]].get().astype(np.longdouble)
    return part, cupy.asarray((left @ right).astype(np.float64))


def product(n: int, dtype: Any, repeats: int, torch: Any) -> list[dict[str, Any]]:
    """Every engine on one n x n product."""
    rng = cupy.random.default_rng(n)
    a = rng.standard_normal((n, n), dtype=dtype)
    b = rng.standard_normal((n, n), dtype=dtype)
    part, exact = reference(a, b)
    outputs, contestants = {}, {}
    for engine in FLOAT32 if dtype == np.float32 else FLOAT64:
        c = outputs[engine] = cupy.full((n, n), np.nan, dtype)
        contestants[engine] = lambda engine=engine, c=c: matmul_gpu.gemm(a, b, c, engine=engine)
    if torch is not None:
        ta, tb = torch.from_dlpack(a), torch.from_dlpack(b)
        tc = torch.full((n, n), float("nan"), dtype=ta.dtype, device="cuda")
        outputs["torch"] = cupy.from_dlpack(tc)
        contestants["torch"] = lambda: torch.matmul(ta, tb, out=tc)
    timings = seconds(contestants, repeats)
    rows = []
    for engine, timing in timings.items():
        c = outputs[engine]
        error = float(cupy.linalg.norm(c[part] - exact) / cupy.linalg.norm(exact))
        assert bool(cupy.isfinite(c).all()), f"{engine} left elements unwritten"
        rows.append(
            {
                "product": "general",
                "n": n,
                "dtype": np.dtype(dtype).name,
                "engine": engine,
                "ms": timing["median_s"] * 1e3,
                "tflops": 2 * n**3 / timing["median_s"] * 1e-12,
                "times_cublas": timings["cublas"]["median_s"] / timing["median_s"],
                "relative_error": error,
                "timing": timing,
            }
        )
    rows += symmetric(a, repeats, rows)
    return rows


def symmetric(a: Any, repeats: int, general: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A'A, lower half, by every engine."""
    n = len(a)
    engines = FLOAT32 if a.dtype == np.float32 else FLOAT64
    c = cupy.empty_like(a)
    timings = seconds(
        {e: lambda e=e: matmul_gpu.gemm(a.T, a, c, lower_only=True, engine=e) for e in engines},
        repeats,
    )
    part, exact = reference(a.T, a)
    exact = cupy.tril(exact)
    rows = []
    for engine, timing in timings.items():
        c[...] = np.nan
        matmul_gpu.gemm(a.T, a, c, lower_only=True, engine=engine)
        error = float(cupy.linalg.norm(cupy.tril(c[part]) - exact) / cupy.linalg.norm(exact))
        rows.append(
            {
                **{key: general[0][key] for key in ("n", "dtype")},
                "product": "A'A, lower half",
                "engine": engine,
                "ms": timing["median_s"] * 1e3,
                "tflops": n**3 / timing["median_s"] * 1e-12,
                "times_cublas": timings["cublas"]["median_s"] / timing["median_s"],
                "relative_error": error,
                "timing": timing,
            }
        )
    return rows


SHAPES = [
    (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (3072, 3072, 3072),
    (4096, 4096, 64), (4096, 4096, 128), (4096, 4096, 256), (4096, 4096, 512), (4096, 4096, 1024),
    (4096, 256, 4096), (4096, 512, 4096), (512, 4096, 512), (1024, 4096, 1024),
    (12288, 12288, 128), (12288, 12288, 256), (12288, 12288, 512), (12288, 12288, 1024),
]  # fmt: skip


def update(m: int, n: int, k: int, dtype: Any, repeats: int) -> dict[str, Any]:
    """C -= A B, by which the engines' crossing is found: small squares, and the thin products of blocked work."""
    a, b = cupy.random.standard_normal((m, k), dtype), cupy.random.standard_normal((k, n), dtype)
    c = cupy.zeros((m, n), dtype)
    engines = FLOAT32 if dtype == np.float32 else FLOAT64
    timings = seconds(
        {e: lambda e=e: matmul_gpu.gemm(a, b, c, -1.0, 1.0, engine=e) for e in engines}, repeats
    )
    row: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": np.dtype(dtype).name}
    row |= {e: t["median_s"] * 1e3 for e, t in timings.items()}
    return row | {"auto": matmul_gpu.choose_engine(m, n, k, dtype), "timing": timings}


def transposes(n: int, dtype: Any, repeats: int) -> list[dict[str, Any]]:
    """Bytes read and written in a second, beside a copy and CuPy's own transpose."""
    a = cupy.random.standard_normal((n, n), dtype)
    b = cupy.empty_like(a)
    timings = seconds(
        {
            "copy": lambda: cupy.copyto(b, a),
            "cupy transpose": lambda: cupy.copyto(b, a.T),
            "transpose": lambda: transpose(a, out=b),
            "transpose in place": lambda: transpose(a, overwrite_a=True),
            "mirror": lambda: mirror_lower(a),
        },
        repeats,
    )
    return [
        {
            "n": n,
            "dtype": np.dtype(dtype).name,
            "what": name,
            "ms": t["median_s"] * 1e3,
            "TB/s": (1 if name == "mirror" else 2) * a.nbytes / t["median_s"] * 1e-12,
            "timing": t,
        }
        for name, t in timings.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 6400, 9216, 16384])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="squares only")
    args = parser.parse_args()
    torch = None
    if importlib.util.find_spec("torch"):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"products": []}
    for n in args.sizes:
        for dtype in (np.float32, np.float64):
            results["products"] += product(n, dtype, args.repeats, torch)
            cupy.get_default_memory_pool().free_all_blocks()
    hidden = {"timing"}
    _common.print_table([{k: v for k, v in r.items() if k not in hidden} for r in results["products"]])
    if not args.quick:
        dtypes = (np.float32, np.float64)
        results["updates_ms"] = [update(*shape, d, args.repeats) for shape in SHAPES for d in dtypes]
        for dtype in ("float32", "float64"):
            print()
            rows = [r for r in results["updates_ms"] if r["dtype"] == dtype]
            _common.print_table([{k: v for k, v in r.items() if k not in hidden} for r in rows])
        results["transposes"] = [r for d in dtypes for r in transposes(args.sizes[-1], d, args.repeats)]
        print()
        _common.print_table([{k: v for k, v in r.items() if k not in hidden} for r in results["transposes"]])
    if "OUT" in os.environ:  # a read-only checkout: leave the record there
        _common.RESULTS = Path(os.environ["OUT"])
    _common.save("gpu_matmul", results, repeats=args.repeats, sizes=args.sizes)


if __name__ == "__main__":
    main()
