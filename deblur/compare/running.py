"""Run every method on every case: `run`, which returns a `Comparison`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import image
from ..errors import check_callback, check_choice
from ..pipeline import solve
from .adapters import PACKAGES, Entrant, entrants
from .cases import Case, Task, make_cases
from .findings import Row, Settings
from .page import notebook_tables, page
from .record import environment
from .scoring import baseline, score
from .store import Store
from .tables import csv_table, markdown_tables, terminal_table

#: Called before each row with (completed rows, all rows, the next method).
Progress = Callable[[int, int, str], None]


@dataclass
class Comparison:
    """The results of a comparison.

    Attributes
    ----------
    rows : list of Row
        The blurred picture and every method, case by case.
    cases : list of Case
    settings : Settings
    sessions : list of dict
        Machine, versions and commit of each run that measured some of the rows.
    complete : bool
        False if it was interrupted.
    pictures : dict of str to array
        8-bit pictures: "<row key>-restored", "<row key>-residual".
    """

    rows: list[Row]
    cases: list[Case]
    settings: Settings
    sessions: list[dict[str, Any]]
    complete: bool = True
    pictures: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values."""
        return {
            "complete": self.complete,
            "settings": vars(self.settings),
            "sessions": self.sessions,
            "cases": [
                {"key": c.key, "name": c.name, "sigma": c.sigma, "truth": c.truth is not None, "notes": list(c.notes)}
                for c in self.cases
            ],
            "rows": [row.to_dict() for row in self.rows],
        }  # fmt: skip

    def __str__(self) -> str:
        return terminal_table(self)

    def _repr_html_(self) -> str:
        return notebook_tables(self)

    def best(self, case: Case | str | None = None) -> Row | None:
        """The row with the highest PSNR of a case (or of all), without oracles; None without a truth."""
        key = case.key if isinstance(case, Case) else case
        fair = [row for row in self.rows if row.how != "oracle" and key in (None, row.case_key)]
        return max([row for row in fair if row.psnr is not None], key=lambda row: row.psnr or 0.0, default=None)

    def to_json(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Everything but the pictures, as JSON; written to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return _written(text + "\n", path, overwrite)

    def to_csv(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One line a row, every scalar field; written to `path` if one is given."""
        return _written(csv_table(self), path, overwrite)

    def to_markdown(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """A table for each case, and why the other methods did not run; written to `path` if one is given."""
        return _written(markdown_tables(self), path, overwrite)

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One self-contained page with tables, pictures and plots; written to `path` if one is given."""
        return _written(page(self), path, overwrite)


def _written(text: str, path: str | Path | None, overwrite: bool) -> str:
    if path is not None:
        image.write_whole(path, text.encode(), overwrite)
    return text


def check_methods(methods: str | Sequence[str] | None) -> list[Entrant]:
    """The entrants of these names, by default all; ValueError for an unknown name."""
    known = entrants()
    names = list(known) if methods is None else [methods] if isinstance(methods, str) else methods
    for name in names:
        check_choice(name, known, "method")
    if not names:
        raise ValueError("no method was named")
    return [known[name] for name in dict.fromkeys(names)]


def run(
    images: Any = None,
    psfs: Any = "gaussian:9,1.5",
    noises: Any = 0.01,
    boundaries: str | Sequence[str] = "unknown",
    methods: str | Sequence[str] | None = None,
    *,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Comparison:
    """Compare methods on every combination of pictures, PSFs, noises and boundaries.

    Parameters
    ----------
    images, psfs, noises, boundaries
        As for `deblur.compare.make_cases`.
    methods : str or list of str, optional
        Names of entrants (`deblur.compare.entrants`); by default all. A method that is not installed gets a row that
        says how to install it.
    folder : path, optional
        Keep every row there as it is completed (``rows.jsonl``, ``pictures/``), so that an interrupted run can resume.
    progress : callable, optional
        Called before each row with (completed rows, all rows, the next method).
    **settings
        The fields of `deblur.compare.Settings`, such as ``size``, ``lam``, ``time_limit`` and ``resume``.

    Returns
    -------
    Comparison
        An interruption (Ctrl-C) ends it early and returns the completed rows with ``complete=False``.

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        Before any work, for anything that cannot be used. A method that fails raises nothing: its row says why.

    Examples
    --------
    >>> import deblur
    >>> found = deblur.compare.run("camera64", "gaussian:5,1", methods=["kronecker", "pcg"], repeats=1)
    >>> [row.method for row in found.rows]
    ['blurred', 'kronecker', 'pcg']
    """
    check_callback(progress, "progress", "completed", "all", "method")
    how = Settings(**settings)
    entered = check_methods(methods)
    cases = make_cases(images, psfs, noises, boundaries, size=how.size, seed=how.seed, blurred=how.blurred)
    store = Store(folder, how) if folder is not None else None
    session = environment(PACKAGES)
    earlier = store.sessions if store else []
    comparison = Comparison([], cases, how, [*earlier, session])
    if store:
        store.append(session=session)
    plan: list[tuple[Case, Entrant | None, bool]] = []
    for case in cases:
        plan += [(case, None, False), *((case, entrant, False) for entrant in entered)]
        if how.oracle and case.truth is not None:
            plan += [(case, entrant, True) for entrant in entered if entrant.search]
    tasks = {}
    for case in cases:  # broadcast to views that cannot be written, so that no method changes the task of the next
        g, h = (np.broadcast_to(array, array.shape) for array in (case.blurred, case.psf))
        tasks[case.key] = Task(g, h, case.boundary, how.lam)
    if any(entrant.name == "collaborative" for entrant in entered):  # what Numba compiles once is no time of a method
        solve(np.random.default_rng(0).random((16, 16)), np.ones((1, 1)), 1e-2, method="collaborative")
    try:
        for done, (case, entrant, oracle) in enumerate(plan):
            name = entrant.name if entrant else "blurred"
            text = json.dumps([case.key, name, oracle, how.lam, how.other_boundary, how.time_limit])
            key = hashlib.sha256(text.encode()).hexdigest()[:16]
            found = store.get(key) if store else None
            if not found:
                if progress:
                    progress(done, len(plan), name)
                found = score(entrant, case, tasks[case.key], key, how, oracle) if entrant else baseline(case, key)
                found[0].session = len(earlier)
                if store:
                    store.add(*found)
            comparison.rows.append(found[0])
            comparison.pictures.update(found[1])
        if progress:
            progress(len(plan), len(plan), "")
    except KeyboardInterrupt:
        comparison.complete = False
    return comparison
