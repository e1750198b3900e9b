"""Run every method on every case: `run` returns a `Comparison`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import check_callback, check_choice
from ..image.outputs import write_whole
from ..pipeline import solve
from .adapters import PACKAGES, Entrant, entrants
from .cases import Case, Task, make_cases
from .findings import Row, Settings
from .page import notebook_tables, page
from .record import environment
from .scoring import baseline, score
from .store import Store
from .tables import csv_table, markdown_tables, terminal_table

#: A function that is called before each row with (completed rows, all rows, the next method).
Progress = Callable[[int, int, str], None]


@dataclass
class Comparison:
    """The results of a comparison.

    Attributes
    ----------
    rows : list of Row
        The rows of each case: first the blurred picture, then every method.
    cases : list of Case
        The cases.
    settings : Settings
        The settings.
    sessions : list of dict
        Machine, versions and commit of each run that measured some of the rows.
    complete : bool
        False if the run was interrupted.
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
        """Return everything except the pictures, as plain values."""
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
        """Return the row with the highest PSNR of a case (or of all cases), without oracles; None without a truth."""
        key = case.key if isinstance(case, Case) else case
        fair = [row for row in self.rows if row.how != "oracle" and key in (None, row.case_key)]
        return max([row for row in fair if row.psnr is not None], key=lambda row: row.psnr or 0.0, default=None)

    def to_json(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Return everything except the pictures as JSON, and write it to `path` if that is given."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return _written(text + "\n", path, overwrite)

    def to_csv(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Return one line for each row with all scalar fields, and write it to `path` if that is given."""
        return _written(csv_table(self), path, overwrite)

    def to_markdown(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Return a table for each case, with the reasons why methods did not run, and write it to `path` if that is
        given.
        """
        return _written(markdown_tables(self), path, overwrite)

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Return one self-contained page with tables, pictures and plots, and write it to `path` if that is given."""
        return _written(page(self), path, overwrite)


def _written(text: str, path: str | Path | None, overwrite: bool) -> str:
    if path is not None:
        write_whole(path, text.encode(), overwrite)
    return text


def check_methods(methods: str | Sequence[str] | None) -> list[Entrant]:
    """Return the entrants with these names, by default all; raise ValueError for an unknown name."""
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
    noises: Any = None,
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
        Names of entrants (`deblur.compare.entrants`); by default all. The row of a method that is not installed says
        how to install it.
    folder : path, optional
        Folder that stores each row when it is finished (``rows.jsonl``, ``pictures/``), so that an interrupted run can
        be resumed.
    progress : callable, optional
        Called before each row with (completed rows, all rows, the next method).
    **settings
        Fields of `deblur.compare.Settings`, such as ``size``, ``lam``, ``time_limit`` and ``resume``.

    Returns
    -------
    Comparison
        The results. After an interruption (Ctrl-C) it has only the completed rows, and ``complete`` is False.

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        For any invalid input, before any work starts. A method that fails raises no error: its row has the reason.

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
    report = progress or (lambda done, total, method: None)
    plan: list[tuple[Case, Entrant | None, bool]] = []
    for case in cases:
        plan += [(case, None, False), *((case, entrant, False) for entrant in entered)]
        if how.oracle and case.truth is not None:
            plan += [(case, entrant, True) for entrant in entered if entrant.search]
    tasks = {}
    for case in cases:  # views that cannot be written, so that a method cannot change the task of the next one
        g, h = (np.broadcast_to(array, array.shape) for array in (case.blurred, case.psf))
        tasks[case.key] = Task(g, h, case.boundary, how.lam)
    if any(entrant.name == "collaborative" for entrant in entered):  # compile Numba's code before any method is timed
        solve(np.random.default_rng(0).random((16, 16)), np.ones((1, 1)), 1e-2, method="collaborative")
    try:
        for done, (case, entrant, oracle) in enumerate(plan):
            name = entrant.name if entrant else "blurred"
            text = json.dumps([case.key, name, oracle, how.lam, how.other_boundary, how.time_limit])
            key = hashlib.sha256(text.encode()).hexdigest()[:16]
            found = store.get(key) if store else None
            if not found:
                report(done, len(plan), name)
                found = score(entrant, case, tasks[case.key], key, how, oracle) if entrant else baseline(case, key)
                found[0].session = len(earlier)
                if store:
                    store.add(*found)
            comparison.rows.append(found[0])
            comparison.pictures.update(found[1])
        report(len(plan), len(plan), "")
    except KeyboardInterrupt:
        comparison.complete = False
    return comparison
