"""How long `deblur compare` takes with all methods on one 256 x 256 picture, and what it finds.

    python benchmarks/bench_compare.py          # about two minutes on two cores

Writes benchmarks/results/compare.json: the seconds of the whole comparison, the bytes of its page, and every row.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import _common

import deblur

NOISES = ("gaussian:0.01",)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = deblur.compare.run(noises=NOISES, folder=folder)  # camera, 256 x 256, as the command does it
        compared = time.perf_counter() - start
        page = found.to_html(Path(folder) / "compare.html")
        written = time.perf_counter() - start - compared
    print(found)
    print(
        f"\n{compared:.1f} s to compare, {written:.1f} s to write a page of {len(page.encode()) / 1e6:.2f} MB"
    )
    rows = [
        {name: value for name, value in row.to_dict().items() if name not in ("history", "curve")}
        for row in found.rows
    ]
    path = _common.save(
        "compare",
        {"compare_s": compared, "page_s": written, "page_bytes": len(page.encode()), "rows": rows},
        case=found.cases[0].name,
        **vars(found.settings),
    )
    print(f"written: {path}")


if __name__ == "__main__":
    main()
