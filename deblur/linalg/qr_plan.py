"""Prediction of whether an update of A = QR is faster than a new factorisation, from (m, n, p, k).

Operations and steps of both are counted. ``tools/fit_update_costs.py`` fits the
seconds of each, once for each device, and ``update_costs.json`` holds them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import check_choice, check_count, check_dtype, check_flags
from .sweeps import BLOCK

# Number of rows or columns up to which SciPy's rotations are used (benchmarks/bench_qr_update.py shows both).
ROTATIONS = {"add_rows": 16, "remove_rows": 8, "add_columns": 16, "remove_columns": 32}
CACHED = 1 << 16  # entries of Q up to which four times as many are rotated
UPDATES = ("add_rows", "remove_rows", "add_columns", "remove_columns")


@dataclass(frozen=True)
class UpdatePlan:
    """Result of `plan_update`: the choice and its reasons.

    Attributes
    ----------
    choice : {"update", "refactor"}
    reason : str
        The prediction, in one sentence.
    update_seconds, refactor_seconds : float
        Predicted times.
    """

    choice: str
    reason: str
    update_seconds: float
    refactor_seconds: float

    def __str__(self) -> str:
        return f"{self.choice}: {self.reason}"


def plan_update(
    which: str,
    m: int,
    n: int,
    p: int = 1,
    k: int = 0,
    *,
    keep_q: bool = True,
    rhs: int = 1,
    dtype: Any = np.float64,
    device: str = "cpu",
) -> UpdatePlan:
    """Predict whether updating the economic factorisation of an m × n matrix is faster than a new one.

    Parameters
    ----------
    which : {"add_rows", "remove_rows", "add_columns", "remove_columns"}
    m, n : int
        Rows and columns before the update.
    p : int
        Number of rows or columns that are added or removed.
    k : int
        Position of the first one. It matters for columns only, since those to the
        left of it are not touched.
    keep_q : bool
        Whether Q is updated, too, or R and d alone.
    rhs : int
        Number of right-hand sides.
    dtype : float32 or float64
    device : {"cpu", "gpu"}
        Device whose measured rates are used.

    Returns
    -------
    UpdatePlan

    Raises
    ------
    ValueError
        For an unknown `which` or `device`, or sizes that do not fit such an update.

    Notes
    -----
    The times were measured on one machine. They rank two ways to the same result; on
    other machines they are estimates.

    Examples
    --------
    >>> from deblur.linalg import plan_update
    >>> plan_update("remove_columns", 20000, 500, p=50, k=400, keep_q=False).choice
    'update'
    >>> plan_update("remove_rows", 1100, 500, p=550).choice
    'refactor'
    """
    check_choice(which, UPDATES, "update")
    check_choice(device, ("cpu", "gpu"), "device")
    check_flags(keep_q=keep_q)
    m, n, p, k, rhs = (check_count(v, "each of m, n, p, k and rhs", 0) for v in (m, n, p, k, rhs))
    last = (m if which.endswith("rows") else n) - (p if which.startswith("remove") else 0)
    if k > last:
        raise ValueError(f"no update {which} of {p} at {k} exists for a {m} x {n} matrix")
    work = Update(which, m, n, p, k, keep_q, rhs, (check_dtype(dtype) or np.dtype(float)).itemsize, device)
    rates = _rates()[device]
    update_s = predict(rates[work.rate_name()], work.features())
    refactor_s = predict(rates[work.rate_name(refactor=True)], work.refactor_features())
    grounds = f"{1e3 * update_s:.2g} ms predicted against {1e3 * refactor_s:.2g} ms"
    # On a GPU without Q, these two repeat products until they are orthogonal; how often cannot be predicted.
    unsure = device == "gpu" and not keep_q and which in ("remove_rows", "add_columns")
    choice = choose(update_s, refactor_s, 0.55 if unsure else 0.8)
    words = "updating is the faster" if choice == "update" else "a new factorisation is the faster"
    what = f"{which.replace('_', ' ')}, p = {p} at k = {k} of a {m} x {n} matrix, {'with' if keep_q else 'without'} Q"
    return UpdatePlan(choice, f"{what}: {words}, {grounds}", update_s, refactor_s)


def choose(update_seconds: float, refactor_seconds: float, share: float = 0.8) -> str:
    """Return the choice: an update if it is predicted to take at most `share` of the time of a new factorisation.

    Predictions are off by about a fifth, and a new factorisation is more accurate.
    """
    return "update" if update_seconds <= share * refactor_seconds else "refactor"


class Update(NamedTuple):
    """The arguments of `plan_update` and the bytes of a number, with the work of both choices.

    The work is counted in calls, operations, bytes moved, blocks and consecutive passes. Operations and
    bytes are those of float64; numbers of 4 bytes count half.
    """

    which: str
    m: int
    n: int
    p: int
    k: int
    keep_q: bool
    rhs: int
    item: int
    device: str

    def rotates(self) -> bool:
        """Return whether SciPy's rotations do the update."""
        return self.keep_q and self.device == "cpu" and rotations_are_faster(*self[:4])

    def features(self) -> dict[str, float]:
        """Return the work of the update."""
        which, m, n, p, rhs, keep_q = self.which, self.m, self.n, self.p, self.rhs, self.keep_q
        t = {"remove_columns": n - self.k - p, "add_columns": n - self.k}.get(which, n)
        width, moved = t + 2 * rhs, 2.0 * n * n + keep_q * 2.0 * m * (n + p)
        if self.rotates():
            operations = 6.0 * p * t * (m + n / 2)
        else:
            operations = 2.0 * p * t * width + BLOCK * t * width + float(t) * p * p
            operations += keep_q * (4.0 * p + 2 * BLOCK) * m * t
        upwards = which in ("remove_rows", "add_columns")
        if upwards:  # the complement of Q takes products with all of Q, or with A and R instead
            products = (2 if keep_q else 10) if which == "remove_rows" else (4 if keep_q else 12)
            operations += float(products) * m * n * p + 4.0 * m * p * p
            moved += (2.0 if keep_q else 6.0) * m * (n + p)
        # A kernel takes a limited number of rows or columns, and each pass waits for the one before.
        passes = 1 if self.device == "cpu" else -(-p // (32 if upwards else 1024 // self.item))
        return self._scaled(operations, 8 * moved, passes * -(-t // BLOCK), passes)

    def refactor_features(self) -> dict[str, float]:
        """Return the work of a new factorisation of the changed matrix."""
        change = self.p if self.which.startswith("add") else -self.p
        of_rows = self.which.endswith("rows")
        m, n = self.m + change * of_rows, self.n + change * (not of_rows)
        operations = 2.0 * m * n * (n + 2 * self.rhs + n * self.keep_q) - 2.0 / 3 * n**3 * (1 + self.keep_q)
        return self._scaled(operations, 16.0 * m * n, -(-n // BLOCK), 1)

    def rate_name(self, refactor: bool = False) -> str:
        """Return the name of the measured rates of this work in `update_costs.json`."""
        parts = ["refactor" if refactor else self.which, "Q and R" if self.keep_q else "R alone"]
        if not refactor and self.rotates():
            parts.append("rotations")
        if self.device == "gpu":  # a chain of dependent steps is not twice as fast in float32
            parts.append("float32" if self.item == 4 else "float64")
        return ", ".join(parts)

    def _scaled(self, operations: float, moved: float, blocks: int, passes: int) -> dict[str, float]:
        scale = self.item / 8
        return {
            "call": 1.0, "operation": scale * operations, "byte": scale * moved, "block": float(blocks),
            "pass": float(passes - 1),
        }  # fmt: skip


def rotations_are_faster(which: str, m: int, n: int, p: int, economic: bool = True) -> bool:
    """Return whether SciPy's rotations are faster for an update of NumPy arrays by p rows or columns.

    The rotations are compiled, but work one at a time, so they lose their advantage when Q no longer fits the cache.
    For blocks of rows in the full form, SciPy uses reflections of Q's whole length, which are never faster. For no
    columns it calls BLAS with a wrong argument, which prints a message.
    """
    if which == "add_rows" and not economic:
        return p == 1
    return n > 0 and p <= ROTATIONS[which] * (4 if m * n <= CACHED else 1)


def predict(rate: dict[str, float], feature: dict[str, float]) -> float:
    """Return the predicted seconds for counts of work (`feature`) at measured rates."""
    return sum(rate.get(name, 0.0) * x for name, x in feature.items())


@functools.cache
def _rates() -> dict[str, dict[str, dict[str, float]]]:
    """Return {"cpu" | "gpu": {name: seconds for a call, an operation, a byte, a block, a pass}}."""
    return json.loads((Path(__file__).parent / "update_costs.json").read_text())
