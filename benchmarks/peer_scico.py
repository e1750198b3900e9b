"""SCICO's ADMM-TV on the cases of bench_variational.py, at its best parameter, found with the truth at hand.

    python benchmarks/peer_scico.py --out scico.json [--workers N] [--cases N] [--size PIXELS]

Needs `scico` and JAX, which the rest of the benchmark does not; with a GPU it takes a minute or two, on two
cores about an hour. bench_variational.py reads the file with --scico.

0.5 ‖Ax − y‖² + λ ‖Dx‖₂,₁ with A the 'valid' convolution where the scene goes on beyond the frame and the
'same' one where there is nothing, by `ADMM` with `LinearSubproblemSolver`, as in SCICO's own examples. λ runs
over powers of two, upwards and downwards from a guess, until PSNR has fallen on both sides of the best, then
over half a step; for the best two other regularizers ρ are tried as well.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

START = {  # λ of the first try, by noise
    "none": 2e-5,
    "gaussian 0.01": 3e-4,
    "gaussian 0.04": 4e-3,
    "salt & pepper 2 %": 3e-2,
    "poisson 400": 3e-3,
    "8 bit": 3e-5,
}
ITERATIONS, CG = 400, {"tol": 1e-5, "maxiter": 50}
SPLIT = 20.0  # ρ = SPLIT λ: differences below 1/SPLIT are taken for noise at first
_FLOOR = 1e-6  # the smallest λ tried


def solve(case: Any, lam: float, rho: float, iterations: int = ITERATIONS) -> tuple[Any, float]:
    """The restored image inside its frame, and the seconds it took."""
    import jax
    import numpy as np
    from scico import functional, linop, loss
    from scico.optimize.admm import ADMM, LinearSubproblemSolver

    blur, g, _ = case.make()
    h, y = jax.numpy.asarray(blur.psf, "float32"), jax.numpy.asarray(g, "float32")
    mode = "valid" if case.boundary == "unknown" else "same"
    a = linop.Convolve(h=h, input_shape=blur.scene_shape, mode=mode)
    d = linop.FiniteDifference(input_shape=blur.scene_shape, append=0)
    start = np.pad(g, [(c.start, n - c.stop) for c, n in zip(blur.crop, blur.scene_shape)], mode="edge")
    solver = ADMM(
        f=loss.SquaredL2Loss(y=y, A=a),
        g_list=[lam * functional.L21Norm()],
        C_list=[d],
        rho_list=[rho],
        x0=jax.numpy.asarray(start, "float32"),
        maxiter=iterations,
        subproblem_solver=LinearSubproblemSolver(cg_kwargs=CG),
        itstat_options={"display": False, "itstat_func": lambda obj: (), "fields": {}},
    )
    solver.subproblem_solver.lhs_op.jit()
    begin = time.perf_counter()
    x = np.asarray(solver.solve()).astype(float)
    return x[blur.crop], time.perf_counter() - begin


def one_case(arguments: tuple[int, int]) -> dict[str, Any]:
    at, size = arguments
    from variational_cases import cases, score

    case = cases(size)[at]
    truth = case.make()[2]
    seen: dict[float, float] = {}
    seconds: list[float] = []

    def psnr(lam: float, rho: float) -> float:
        image, took = solve(case, lam, rho)
        seconds.append(took)
        return score(truth, image)

    def at_lam(lam: float) -> float:
        if lam not in seen:
            seen[lam] = psnr(lam, SPLIT * lam)
        return seen[lam]

    lam, step = START[case.noise], 2.0
    if at_lam(lam * step) < at_lam(lam):
        step = 1 / step
    while lam * step >= _FLOOR and at_lam(lam * step) > at_lam(lam):
        lam *= step
    best: dict[str, float] = {"psnr": seen[lam], "lam": lam, "rho": SPLIT * lam}
    for near in (lam / 2**0.5, lam * 2**0.5):
        if at_lam(near) > best["psnr"]:
            best = {"psnr": seen[near], "lam": near, "rho": SPLIT * near}
    lam = best["lam"]
    for split in (SPLIT / 4, SPLIT * 4):
        value = psnr(lam, split * lam)
        if value > best["psnr"]:
            best = {"psnr": value, "lam": lam, "rho": split * lam}
    return {"case": str(case), **best, "tried": seen, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import _common
    import jax
    import scico
    from tqdm import tqdm
    from variational_cases import cases

    count = len(cases(options.size)[: options.cases])
    start = time.perf_counter()
    rows: list[dict[str, Any]] = []

    def write() -> None:
        record = {
            "environment": _common.environment(),
            "scico": scico.__version__,
            "jax": jax.__version__,
            "device": jax.devices()[0].device_kind,
            "settings": {"iterations": ITERATIONS, "cg": CG, "size": options.size},
            "seconds": time.perf_counter() - start,
            "cases": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    work = [(at, options.size) for at in range(count)]
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        started = [pool.submit(one_case, arguments) for arguments in work]
        for done in tqdm(as_completed(started), total=count, disable=None):
            rows.append(done.result())
            write()  # a run that is cut short keeps what it has
    print(f"{count} cases in {time.perf_counter() - start:.0f} s on {jax.devices()[0].device_kind}")


if __name__ == "__main__":
    main()
