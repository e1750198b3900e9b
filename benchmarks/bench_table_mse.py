"""Table 6.3 of the thesis as recorded figures: `examples/table_mse.py`, and how far they depend on the noise drawn.

python benchmarks/bench_table_mse.py        about a minute on 2 cores
"""

from __future__ import annotations

import sys

from _common import ROOT, print_table, save

sys.path.insert(0, str(ROOT / "examples"))

import table_mse

SEEDS = range(5)
COLUMNS = ("degraded", "plain, best λ", "plain, chosen λ", "suited, best λ", "suited, chosen λ")


def main() -> None:
    rows = []
    for row in table_mse.PUBLISHED:
        found = [
            table_mse.measure(row, seed) for seed in (SEEDS if row.noise != "no noise" else [table_mse.SEED])
        ]
        rows.append(
            {
                "row": row.name,
                "published degraded": row.degraded,
                "published recovered": row.recovered,
                **{name: found[table_mse.SEED][name] for name in COLUMNS},
                "how": found[table_mse.SEED]["how"],
                "over seeds": {name: [f[name] for f in found] for name in COLUMNS},
            }
        )
        print(f"{row.name}: suited, chosen λ {rows[-1]['over seeds']['suited, chosen λ']}")
    print_table([{k: v for k, v in row.items() if k != "over seeds"} for row in rows])
    save(
        "table_mse",
        rows,
        seeds=list(SEEDS),
        crop=[[at.start, at.stop] for at in table_mse.CROP],
        filters=table_mse.FILTERS,
    )


if __name__ == "__main__":
    main()
