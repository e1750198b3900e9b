"""Seconds of the methods through the public calls, of this checkout beside another one (A/B), in turns.

    python benchmarks/bench_ab.py                        prints this checkout's medians and writes nothing
    python benchmarks/bench_ab.py --against CHECKOUT     both, in turns; writes benchmarks/results/ab.json
    python benchmarks/bench_ab.py --gpu --against ...    on CuPy arrays; writes benchmarks/results/ab_gpu.json
    python benchmarks/bench_ab.py --cells pcg tv         only cells whose names begin so; writes nothing

Each checkout has a process of its own. They take turns cell by cell, so that a disturbance of the machine affects both.
In a turn a cell is called until its seconds are spent, and the fastest call counts: a disturbance only adds time. The
table has the medians over the turns, and the median and the range of the ratios of neighbouring turns. Only arguments
that both checkouts accept are passed. The norms of the answers are compared as well: a cell that became quicker by
computing something else shows there. A cell that fails in a checkout is left out, and said so.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECONDS, TURNS = 0.5, 5  # spent on a cell in a turn; turns of each checkout
SMOOTH, SHAKE, TINY = "gaussian:9,1.5", "shake:17,3", "gaussian:3,0.6"
#: method, pixels a side, PSF, boundary, λ, other options
CPU: list[tuple[str, int, str, str, float | str, dict[str, Any]]] = [
    *(("fft", side, SHAKE, "periodic", 1e-3, {}) for side in (128, 512)),
    *(("dct", side, SMOOTH, "reflect", 1e-3, {}) for side in (128, 512)),
    *(("dst", side, TINY, "zero", 1e-3, {}) for side in (128, 512)),
    ("dst", 256, SMOOTH, "antireflect", 1e-3, {}),
    *(("kronecker", side, SMOOTH, "zero", 1e-3, {}) for side in (128, 512)),
    ("kronecker", 512, SMOOTH, "unknown", 1e-3, {"prior": "zero"}),
    *(("pcg", 256, form, "zero", 1e-3, {}) for form in (SMOOTH, SHAKE)),
    ("pcg", 256, SHAKE, "unknown", 1e-3, {"prior": "smooth"}),
    ("banded", 64, TINY, "zero", 1e-3, {}),
    ("banded", 48, SMOOTH, "zero", 1e-3, {}),
    *((name, 32, SMOOTH, "zero", 1e-3, {}) for name in ("cholesky", "gauss-jordan", "gauss-seidel", "lu", "qr")),
    ("hybrid-lsqr", 128, SHAKE, "zero", 1e-2, {}),
    *((name, 256, SHAKE, "unknown", 1e-3, {}) for name in ("gradient", "tv", "tv2")),
    ("tv", 256, SHAKE, "reflect", 1e-3, {}),
    ("collaborative", 128, SHAKE, "unknown", 1e-3, {}),
    ("richardson-lucy", 128, SHAKE, "unknown", 0.0, {}),
    ("tv", 128, SHAKE, "unknown", "auto", {}),
    ("gradient", 128, SHAKE, "unknown", 1e-3, {"mask": "2 %"}),
    ("auto", 64, SMOOTH, "auto", "auto", {}),
    ("auto", 256, SHAKE, "auto", "auto", {}),
]
GPU: list[tuple[str, int, str, str, float | str, dict[str, Any]]] = [
    ("fft", 1024, SHAKE, "periodic", 1e-3, {}),
    ("dct", 1024, SMOOTH, "reflect", 1e-3, {}),
    ("dst", 1024, TINY, "zero", 1e-3, {}),
    ("kronecker", 1024, SMOOTH, "zero", 1e-3, {}),
    *((name, 1024, SHAKE, "unknown", 1e-2, {}) for name in ("pcg", "hybrid-lsqr", "gradient")),
    ("banded", 64, SMOOTH, "unknown", 1e-2, {}),
    *((name, 64, SMOOTH, "zero", 1e-3, {}) for name in ("cholesky", "gauss-jordan", "lu", "qr")),
    *(("tv", side, SHAKE, "unknown", 2e-3, {}) for side in (256, 1024, 4096)),
    *((name, 1024, SHAKE, "unknown", 2e-3, {}) for name in ("tv2", "collaborative")),
    ("tv", 1024, SHAKE, "unknown", "auto", {}),
    ("richardson-lucy", 1024, SHAKE, "unknown", 0.0, {}),
    *(("auto", side, SHAKE, "auto", "auto", {}) for side in (256, 4096)),
]


def cells(gpu: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, the call); the first part of a name is the method's. Runs in either checkout."""
    import numpy as np

    import deblur
    from deblur.problem import Problem

    camera, xp = np.tile(deblur.data.load("camera"), (9, 9)), np
    if gpu:
        import cupy as xp

    def blurred(side: int, psf: Any, boundary: str, method: str = "") -> Any:
        beyond = len(psf) - 1 if boundary in ("unknown", "auto") else 0
        known = "unknown" if boundary == "auto" else boundary
        g = deblur.degrade(camera[: side + beyond, : side + beyond], psf, noise=0.01, boundary=known, seed=0)
        g = np.maximum(g, 0) if method == "richardson-lucy" else g
        return xp.asarray(g.astype(np.float32) if gpu else g)

    for method, side, form, boundary, lam, more in GPU if gpu else CPU:
        psf = deblur.psf.parse(form)
        options = more | {"method": method} | ({} if boundary == "auto" else {"boundary": boundary})
        if "mask" in options:
            options["mask"] = np.random.default_rng(1).random((side, side)) < 0.02

        g = blurred(side, psf, boundary, method)
        call = functools.partial(deblur.solve, g, psf, lam, check=False, **options)
        words = ", masked" if "mask" in more else ", λ chosen" if lam == "auto" else ""
        yield f"{method} {side}, {form}, {boundary}{words}", lambda call=call: call().image

    side, psf = (1024 if gpu else 128), deblur.psf.parse(SHAKE)
    g = blurred(side, psf, "unknown")
    for method in ("pcg", "tv"):
        given = {"gpu": True, "dtype": np.float32} if gpu else {}
        restore = deblur.Deblurrer(psf, g.shape, 1e-3, boundary="unknown", method=method, **given)
        yield f"Deblurrer, {method} {side}, the next frame", lambda restore=restore: restore(g)
    if gpu:
        return
    for form, boundary in ((SMOOTH, "zero"), (SHAKE, "unknown")):
        blur = deblur.Blur(deblur.psf.parse(form), (128, 128), boundary)
        image = blurred(128, deblur.psf.parse(form), boundary)
        yield (
            f"choose_lambda 128, {form}, {boundary}",
            lambda blur=blur, image=image: deblur.choose_lambda(blur, image, "gcv").lam,
        )
        yield (
            f"posterior_std 128, {form}, {boundary}",
            lambda blur=blur: deblur.posterior_std(Problem(blur, 1e-2), noise=0.01, probes=16).std,
        )
    small, smooth = blurred(32, deblur.psf.parse(SMOOTH), "zero"), deblur.psf.parse(SMOOTH)
    hidden = np.random.default_rng(1).random(small.shape) < 0.02

    def updated() -> Any:
        model = deblur.QRDeblurrer(smooth, small.shape, 1e-3)
        model.hide(hidden, method="update")
        return model(small)

    yield "QRDeblurrer 32, pixels masked by updating", updated


def serve(gpu: bool) -> None:
    """Measure the cells whose names arrive, one a line, with the `deblur` that is imported here."""
    import numpy as np

    import deblur

    wait = lambda: None  # noqa: E731
    if gpu:
        import cupy

        wait = cupy.cuda.Device().synchronize
    warnings.simplefilter("ignore")
    calls = dict(cells(gpu))
    print(json.dumps({"deblur": str(Path(deblur.__file__).resolve()), "cells": list(calls)}), flush=True)
    norms: dict[str, float] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            if name not in norms:
                answer = calls[name]()
                norms[name] = float(np.linalg.norm(answer.get() if gpu else answer))
            taken: list[float] = []
            while sum(taken) < SECONDS and len(taken) < 50:
                start = time.perf_counter()
                calls[name]()
                wait()
                taken.append(time.perf_counter() - start)
            found: dict[str, Any] = {"seconds": min(taken), "norm": norms[name]}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)


class Checkout:
    """A process that measures one checkout, with that first on its path."""

    def __init__(self, root: Path, gpu: bool) -> None:
        self.root = root
        command = [sys.executable, __file__, "--serve", *(["--gpu"] if gpu else [])]
        environ = os.environ | {"PYTHONPATH": str(root)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=root, env=environ, stdin=pipe, stdout=pipe, text=True)
        first = self._answer()
        self.cells: list[str] = first["cells"]
        if not Path(first["deblur"]).is_relative_to(root):
            raise SystemExit(f"{root} was to be measured, and {first['deblur']} was imported")

    def __call__(self, cell: str) -> dict[str, Any]:
        """Seconds and norm of a cell, or its error."""
        assert self._process.stdin is not None
        self._process.stdin.write(cell + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.root}: its process ended; its error is above")
        return json.loads(line)


def measured(cell: str, checkouts: dict[str, Checkout], turns: int) -> dict[str, Any]:
    """One row: medians in milliseconds, and the ratios of neighbouring turns."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(turns):
        for name, checkout in checkouts.items():
            found[name].append(checkout(cell))
            if "error" in found[name][-1]:
                return {"cell": cell, "error": f"{name}: {found[name][-1]['error'][:200]}"}
    row: dict[str, Any] = {"cell": cell}
    for name, all_turns in found.items():
        row[f"{name}_s"] = statistics.median(turn["seconds"] for turn in all_turns)
    if "before" in found:
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(found["after"], found["before"])]
        before, after = (found[name][0]["norm"] for name in ("before", "after"))
        row |= {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        row["answers_differ_by"] = abs(after - before) / before
    return row


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from _common import table

    columns = {
        "method, pixels a side, PSF, boundary": "{cell}",
        "before, ms": "{before_s:ms}",
        "after, ms": "{after_s:ms}",
    }
    columns |= {"ratio": "{ratio:.2f}", "spread": "{least:.2f} to {most:.2f}", "answers": "{answers_differ_by:.0e}"}
    failed = "; ".join(f"{row['cell']}: {row['error']}" for row in rows if "error" in row)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    notes = f"Median ratio {statistics.median(ratios):.3f}, largest {max(ratios):.2f}. " if ratios else ""
    title = "**Two checkouts in turns.** Medians; the ratio is that of neighbouring turns."
    shown = [row for row in rows if "error" not in row]
    return [table(title, columns, shown, notes + (f"Failed: {failed}." if failed else ""))]


def main() -> None:
    import _common

    arguments = _common.parser(__doc__)
    arguments.add_argument("--against", type=Path, metavar="CHECKOUT", help="the other one, 'before'")
    arguments.add_argument("--turns", type=int, default=TURNS, help="of each checkout and cell")
    arguments.add_argument("--cells", nargs="+", default=[""], metavar="NAME")
    arguments.add_argument("--gpu", action="store_true")
    options = arguments.parse_args()
    from tqdm import tqdm

    roots = {"before": options.against.resolve()} if options.against else {}
    checkouts = {name: Checkout(root, options.gpu) for name, root in (roots | {"after": _common.ROOT}).items()}
    wanted = [cell for cell in checkouts["after"].cells if cell.startswith(tuple(options.cells))]
    rows = [measured(cell, checkouts, options.turns) for cell in tqdm(wanted, disable=None)]
    for checkout in checkouts.values():
        checkout.close()
    if not options.against or options.cells != [""]:
        _common.show(tables(rows))
        return
    before = _common.record.output("git", "rev-parse", "HEAD", cwd=roots["before"])
    name = "ab_gpu" if options.gpu else "ab"
    _common.save(name, rows, tables(rows), before=before, turns=options.turns, seconds_a_turn=SECONDS)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve("--gpu" in sys.argv)
    else:
        main()
