"""Measure what updates and new factorisations cost here, and write deblur/linalg/update_costs.json.

    python tools/fit_update_costs.py          on the CPU, about 2 minutes
    python tools/fit_update_costs.py --gpu    on the GPU

Seconds are fitted as a sum of calls, operations, bytes, blocks and passes, each times a non-negative constant, by least
squares on relative errors; `deblur.linalg.plan_update` predicts with them. The grid lies off the one of
``bench_qr_update.py``, which tests the plan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import ROOT, environment, time_together
from bench_qr_update import Case
from scipy.optimize import nnls

from deblur.linalg import qr_plan

TARGET = ROOT / "deblur" / "linalg" / "update_costs.json"
SIZES = {
    "cpu": [(150, 30), (200, 80), (500, 150), (500, 400), (1500, 200), (1500, 750), (3500, 250), (3000, 500)],
    "gpu": [(600, 200), (1000, 500), (2000, 1000), (3000, 2000), (6000, 1000), (8000, 4000)],
}
COUNTS = {"cpu": [1, 7, 30, 130], "gpu": [1, 16, 64, 200]}


def cases(place: str):
    for (m, n), p, which, keep_q in itertools.product(SIZES[place], COUNTS[place], qr_plan.UPDATES, (True, False)):
        if which == "remove_columns" and p > n // 2:
            continue
        if which in ("remove_rows", "add_columns") and n + p > m:
            continue
        last = n - p if which == "remove_columns" else n
        places = {0, (9 * last) // 10} | ({last // 2} if place == "cpu" else set())
        for k in sorted(places) if which.endswith("columns") else [0]:
            yield which, m, n, p, k, keep_q


def fit(features: list[dict[str, float]], seconds: list[float]) -> dict[str, float]:
    names = list(features[0])
    columns, seconds_ = np.array([[f[name] for name in names] for f in features]), np.array(seconds)
    scales = columns.max(axis=0)
    scales[scales == 0] = 1
    coefficients, _ = nnls(columns / scales / seconds_[:, None], np.ones(len(seconds_)))
    return dict(zip(names, (coefficients / scales).tolist(), strict=True))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpu", action="store_true")
parser.add_argument("--repeats", type=int, default=3)
parser.add_argument("--output", default=TARGET, help="default deblur/linalg/update_costs.json")
arguments = parser.parse_args()
place, xp, options = "cpu", np, {}
if arguments.gpu:
    import cupy as xp

    place, options = "gpu", {"synchronize": xp.cuda.Device().synchronize}

work: dict[str, tuple[list, list]] = {}
measured = []
dtypes = [np.float64] if place == "cpu" else [np.float32, np.float64]
for dtype, what in itertools.product(dtypes, cases(place)):
    which, m, n, p, k, keep_q = what
    case = Case(what, xp=xp, dtype=dtype)
    seconds = time_together(
        {name: lambda name=name, case=case: case.change(name) for name in ("update", "refactor")},
        repeats=arguments.repeats if m * n > 1e5 else 4 * arguments.repeats,
        **options,
    )
    work_of = qr_plan.Update(*what, 1, np.dtype(dtype).itemsize, place)
    counted = {
        work_of.rate_name(): (work_of.features(), seconds["update"]["min_s"]),
        work_of.rate_name(refactor=True): (work_of.refactor_features(), seconds["refactor"]["min_s"]),
    }
    for name, (feature, s) in counted.items():
        found = work.setdefault(name, ([], []))
        found[0].append(feature)
        found[1].append(s)
    measured.append((counted, what))

rates = {name: fit(*found) for name, found in sorted(work.items())}
for name, rate in rates.items():
    ratio = np.array([qr_plan.predict(rate, f) / s for f, s in zip(*work[name], strict=True)])
    print(f"{name:<38}predicted / measured {ratio.min():.2f} to {ratio.max():.2f}, median {np.median(ratio):.2f}")
worst = []
for counted, what in measured:
    (_, (update, update_s)), (_, (refactor, refactor_s)) = counted.items()
    names = list(counted)
    chosen = qr_plan.choose(qr_plan.predict(rates[names[0]], update), qr_plan.predict(rates[names[1]], refactor))
    worst.append(((update_s if chosen == "update" else refactor_s) / refactor_s, what))
print("over this grid the plan's choice takes, against a new factorisation, at worst:")
for ratio, what in sorted(worst, reverse=True)[:5]:
    print(f"  {ratio:.2f} times as long, at {what}")

stored = json.loads(TARGET.read_text())
stored[place] = rates
stored.setdefault("measured", {})[place] = environment()
with open(arguments.output, "w") as f:
    json.dump(stored, f, indent=1, sort_keys=True)
    f.write("\n")
