"""How long `deblur compare` takes with all methods on one 256 x 256 picture, and what it finds.

    python benchmarks/bench_compare.py          # about two minutes on two cores

Writes benchmarks/results/compare.json: the seconds of the whole comparison, and every row.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from _common import save, table

import deblur

SHOWN = ("blurred", "auto", "tv", "tv2", "collaborative", "pnp", "richardson-lucy")


def tables(rows: list[dict[str, Any]], case: str) -> list[dict[str, Any]]:
    found = []
    for row in sorted((r for r in rows if r["psnr"] is not None), key=lambda r: -r["psnr"]):
        if row["method"] in SHOWN or row["method"].startswith("skimage"):
            seconds = sum(row[k] or 0.0 for k in ("choose_s", "setup_s", "solve_s")) if row["solve_s"] else None
            name = "blurred" if row["method"] == "blurred" else f"`{row['method']}`"
            found.append({"name": name, "seconds": seconds} | row)
    title = (
        f"`deblur compare`: one picture, no method knew the sharp one ({case}; seconds include choosing λ; "
        "scikit-image's as its users call it, and padded)."
    )
    columns = {"method": "{name}", "PSNR, dB": "{psnr:.1f}", "SSIM": "{ssim:.2f}", "seconds": "{seconds:.2f}"}
    return [table(title, columns, found)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = deblur.compare.run(
            noises=("gaussian:0.01",), folder=folder
        )  # camera, 256 x 256, as the command does it
        compared = time.perf_counter() - start
    rows = [
        {name: value for name, value in row.to_dict().items() if name not in ("history", "curve")} for row in found.rows
    ]
    case = found.cases[0].name
    save("compare", {"compare_s": compared, "rows": rows}, tables(rows, case), case=case, **vars(found.settings))


if __name__ == "__main__":
    main()
