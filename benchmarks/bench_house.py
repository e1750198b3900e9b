"""Seconds of every CPU method through the public calls, of this checkout and, if named, of another one beside it.

    python benchmarks/bench_house.py                        prints this checkout's medians and writes nothing
    python benchmarks/bench_house.py --against CHECKOUT     both, in turns; writes benchmarks/results/house.json
    python benchmarks/bench_house.py --cells pcg tv         only the cells whose names begin so; writes nothing

Each checkout has a process of its own. They take turns cell by cell, this one, the other, this one ..., so that what
disturbs the machine disturbs both. In a turn a cell is called until its seconds are spent, and the fastest call is its
figure: what disturbs a call only ever adds to it. The table has the medians over the turns and the median of the
ratios of neighbouring turns. Only arguments that both checkouts know are passed. The norms of the answers are
compared as well, so that a cell which became quicker by doing something else is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECONDS = 0.5  # spent on a cell in a turn
TURNS = 5
LAM = 1e-3


def cells() -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, what is timed); the first part of a name is the method's. Runs in either checkout."""
    import numpy as np

    import deblur

    camera = np.pad(deblur.data.load("camera"), 16, mode="symmetric")  # 512 pixels and what lies beyond
    smooth, shake, tiny = (
        deblur.psf.gaussian(9, 1.5),
        deblur.psf.camera_shake(17, 3),
        deblur.psf.gaussian(3, 0.6),
    )

    def scene(side: int) -> Any:
        at = (len(camera) - side) // 2
        return camera[at : at + side, at : at + side]

    def blurred(side: int, psf: Any, boundary: str = "zero", noise: float = 0.01) -> Any:
        inside = scene(side + (len(psf) - 1 if boundary == "unknown" else 0))
        return deblur.degrade(inside, psf, noise=noise, boundary=boundary, seed=0)

    def cell(
        method: str, side: int, psf: Any, words: str, boundary: str = "zero", lam: float = LAM, **options: Any
    ) -> tuple[str, Callable[[], Any]]:
        g = blurred(side, psf, boundary)
        if method == "richardson-lucy":
            g = np.maximum(g, 0)
        return (
            f"{method} {side}, {words}, {boundary}",
            lambda: deblur.solve(g, psf, lam, method=method, boundary=boundary, check=False, **options).image,
        )

    for side in (128, 512):
        yield cell("fft", side, shake, "camera shake", "periodic")
        yield cell("dct", side, smooth, "gaussian", "reflect")
        yield cell("dst", side, tiny, "gaussian 3 x 3")
        yield cell("kronecker", side, smooth, "gaussian")
    yield cell("dst", 256, smooth, "gaussian", "antireflect")
    yield cell("kronecker", 512, smooth, "gaussian", "unknown", prior="zero")
    yield cell("pcg", 256, smooth, "gaussian")
    yield cell("pcg", 256, shake, "camera shake")
    yield cell("pcg", 256, shake, "camera shake", "unknown", prior="smooth")
    yield cell("banded", 64, tiny, "gaussian 3 x 3")
    yield cell("banded", 48, smooth, "gaussian")
    for method in ("cholesky", "gauss-jordan", "gauss-seidel", "lu", "qr"):
        yield cell(method, 32, smooth, "gaussian")
    yield cell("hybrid-lsqr", 128, shake, "camera shake", lam=1e-2)
    for method in ("gradient", "tv", "tv2"):
        yield cell(method, 256, shake, "camera shake", "unknown")
    yield cell("tv", 256, shake, "camera shake", "reflect")
    yield cell("collaborative", 128, shake, "camera shake", "unknown")
    yield cell("richardson-lucy", 128, shake, "camera shake", "unknown", lam=0.0)

    g = blurred(128, shake, "unknown")
    yield "tv 128, λ chosen", lambda: deblur.solve(g, shake, "auto", method="tv", boundary="unknown").image
    mask = np.random.default_rng(1).random(g.shape) < 0.02
    yield (
        "gradient 128, masked",
        lambda: deblur.solve(g, shake, LAM, method="gradient", boundary="unknown", mask=mask).image,
    )
    restore = deblur.Deblurrer(shake, g.shape, LAM, boundary="unknown", method="pcg", prior="zero")
    restore(g)
    yield "Deblurrer, pcg 128, the next frame", lambda: restore(g)
    kept = deblur.Deblurrer(shake, g.shape, LAM, boundary="unknown", method="tv")
    kept(g)
    yield "Deblurrer, tv 128, the next frame", lambda: kept(g)

    for words, psf, boundary in (("gaussian", smooth, "zero"), ("camera shake", shake, "unknown")):
        blur = deblur.Blur(psf, (128, 128), boundary)
        image = blurred(128, psf, boundary)

        def chosen(blur: Any = blur, image: Any = image) -> Any:
            return deblur.choose_lambda(blur, image, "gcv").lam

        def spread(blur: Any = blur) -> Any:
            return deblur.posterior_std(blur, 1e-2, noise=0.01, probes=16).std

        yield f"choose_lambda 128, {words}, {boundary}", chosen
        yield f"posterior_std 128, {words}, {boundary}", spread

    small = blurred(32, smooth)
    hidden = np.random.default_rng(1).random(small.shape) < 0.02

    def updated() -> Any:
        model = deblur.QRDeblurrer(smooth, small.shape, LAM)
        model.hide(hidden, method="update")
        return model(small)

    yield "QRDeblurrer 32, pixels hidden by updating", updated


def serve() -> None:
    """Measure the cells whose names come in, one a line, with the `deblur` that is imported here."""
    import warnings

    import numpy as np

    import deblur

    warnings.simplefilter("ignore")
    table = dict(cells())
    print(json.dumps({"deblur": str(Path(deblur.__file__).resolve()), "cells": list(table)}), flush=True)
    norms: dict[str, float] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        call = table[name]
        if name not in norms:
            norms[name] = float(np.linalg.norm(call()))
        taken: list[float] = []
        while sum(taken) < SECONDS and len(taken) < 50:
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        print(json.dumps({"seconds": min(taken), "norm": norms[name]}), flush=True)


class Checkout:
    """A process that measures one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # From its own directory and with it first on the path: whatever else is installed is not looked at.
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self._answer()
        self.cells: list[str] = said["cells"]
        if not Path(said["deblur"]).is_relative_to(root):
            raise SystemExit(f"{root} was to be measured, and {said['deblur']} was imported")

    def __call__(self, cell: str) -> dict[str, float]:
        """Seconds and norm of a cell."""
        assert self._process.stdin is not None
        self._process.stdin.write(cell + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.root}: its process ended; its error is above")
        return json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="the other one, 'before'")
    parser.add_argument(
        "--turns", type=int, default=TURNS, help=f"of each checkout and cell; default {TURNS}"
    )
    parser.add_argument("--cells", nargs="+", default=[""], metavar="NAME")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return

    import _common
    from tqdm import tqdm

    roots = {"before": options.against.resolve()} if options.against else {}
    checkouts = {name: Checkout(root) for name, root in (roots | {"after": _common.ROOT}).items()}
    rows: list[dict[str, Any]] = []
    for cell in tqdm(
        [c for c in checkouts["after"].cells if c.startswith(tuple(options.cells))], disable=None
    ):
        found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
        for _ in range(options.turns):
            for name, checkout in checkouts.items():
                found[name].append(checkout(cell))
        row: dict[str, Any] = {"cell": cell}
        for name, turns in found.items():
            row[f"{name}_s"] = statistics.median(turn["seconds"] for turn in turns)
        if options.against:
            ratios = [a["seconds"] / b["seconds"] for a, b in zip(found["after"], found["before"])]
            row |= {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
            before, after = (found[name][0]["norm"] for name in ("before", "after"))
            row["answers_differ_by"] = abs(after - before) / before
        rows.append(row)
    for checkout in checkouts.values():
        checkout.close()
    _common.print_table(rows)
    if options.against and options.cells == [""]:
        every = [row["ratio"] for row in rows]
        summary = {"median_ratio": statistics.median(every), "largest_ratio": max(every)}
        path = _common.save(
            "house",
            {"summary": summary, "cells": rows},
            before=_common.record.output("git", "rev-parse", "HEAD", cwd=roots["before"]),
            turns=options.turns,
            seconds_a_turn=SECONDS,
        )
        print(f"\n{summary}\nwritten: {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()
