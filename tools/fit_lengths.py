"""Measure what cuFFT takes for lines of each length, and write deblur/operators/lengths.json; half a minute on a GPU.

    python tools/fit_lengths.py

Seconds for 1024 columns, and for 1024 rows, of each 5-smooth length: the real transform of images, there and back in
place, whose other side is 1024. Each is the least of twelve, the lengths in turn, in three rounds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import ROOT, environment

from deblur.device import cupy
from deblur.operators.torus_gpu import new_plans

TARGET = ROOT / "deblur" / "operators" / "lengths.json"
SIDE, PIXELS, ROUNDS, LEAST, MOST = 1024, 1 << 24, 3, 128, 4608


def seconds(rows: int, cols: int) -> float:
    """For 1024 lines."""
    batch, wide = max(PIXELS // (rows * cols), 1), 2 * (cols // 2 + 1)
    x = cupy.random.random((batch, rows, wide), dtype=np.float32)
    there, back = new_plans((rows, cols), batch, x.dtype, wide)
    times = []
    for _ in range(5):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        there.fft(x, x.view(np.complex64), 0)
        back.fft(x.view(np.complex64), x, 0)
        end.record()
        end.synchronize()
        times.append(1e-3 * cupy.cuda.get_elapsed_time(begin, end) / batch)
        x /= rows * cols
    return min(times[1:])


def main() -> None:
    smooth = sorted({2**a * 3**b * 5**c for a in range(13) for b in range(9) for c in range(7)})
    lengths = [n for n in smooth if LEAST <= n <= MOST]
    found: dict[str, dict[str, float]] = {"columns": {}, "rows": {}}
    for _ in range(ROUNDS):
        for n in lengths:
            for name, shape in (("columns", (n, SIDE)), ("rows", (SIDE, n))):
                known = found[name].get(str(n), np.inf)
                found[name][str(n)] = float(f"{min(known, seconds(*shape)):.4g}")
    TARGET.write_text(json.dumps({"environment": environment(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
