"""Run every method on every case, and hand over what was found: `run` and `Comparison`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import image
from ..options import check_lam
from .adapters import PACKAGES, Contestant, contestants
from .cases import Case, Task, make_cases
from .findings import Findings, Row, Settings
from .html_tables import notebook_tables
from .judge import baseline, judge
from .page import page
from .pictures import shown
from .record import environment
from .store import Store
from .tables import csv_table, markdown_tables, terminal_table

#: Called before each row with (rows done, rows in all, the method that is next).
Progress = Callable[[int, int, str], None]


class Comparison(Findings):
    """What a comparison found.

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

    def __str__(self) -> str:
        return terminal_table(self)

    def _repr_html_(self) -> str:
        return notebook_tables(self)

    def best(self, case: Case | str | None = None) -> Row | None:
        """The row with the highest PSNR of a case (or of all), oracles aside; None without a truth."""
        key = case.key if isinstance(case, Case) else case
        fair = [
            row
            for row in self.rows
            if row.psnr is not None and row.how != "oracle" and key in (None, row.case_key)
        ]
        return max(fair, key=lambda row: row.psnr or -math.inf, default=None)

    def to_json(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Everything but the pictures, as JSON; written to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return _deliver(text + "\n", path, overwrite)

    def to_csv(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One line a row, every scalar field; written to `path` if one is given."""
        return _deliver(csv_table(self), path, overwrite)

    def to_markdown(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """A table for each case, and why the other methods did not run; written to `path` if one is given."""
        return _deliver(markdown_tables(self), path, overwrite)

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One page that needs nothing else, with tables, pictures and plots; written to `path` if one is given."""
        return _deliver(page(self), path, overwrite)


def _deliver(text: str, path: str | Path | None, overwrite: bool) -> str:
    if path is not None:
        image.write_whole(path, text.encode(), overwrite)
    return text


def check_methods(methods: str | Sequence[str] | None) -> list[Contestant]:
    """The contestants of these names, all of them by default; ValueError for a name that is none."""
    known = contestants()
    names = [methods] if isinstance(methods, str) else methods
    if names is None:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}; choose among {', '.join(known)}")
    if not names:
        raise ValueError("no method was named")
    return [known[name] for name in dict.fromkeys(names)]


def check_settings(settings: Settings) -> Settings:
    """`settings` itself, or an error that says what is wrong with them."""
    check_lam(settings.lam)
    if settings.other_boundary not in ("own", "refuse"):
        raise ValueError(f"other_boundary must be 'own' or 'refuse', not {settings.other_boundary!r}")
    if not (math.isfinite(settings.time_limit) and settings.time_limit > 0):
        raise ValueError(f"time_limit must be a positive number of seconds, not {settings.time_limit!r}")
    if int(settings.repeats) != settings.repeats or settings.repeats < 1:
        raise ValueError(f"repeats must be a positive whole number, not {settings.repeats!r}")
    return settings


def run(
    images: Any = None,
    psfs: Any = "gaussian:9,1.5",
    noises: Any = 0.01,
    boundaries: str | Sequence[str] = "unknown",
    methods: str | Sequence[str] | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    blurred: bool = False,
    lam: float | str = "gcv",
    other_boundary: str = "own",
    oracle: bool = False,
    time_limit: float = 20.0,
    repeats: int = 3,
    memory: bool = True,
    folder: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods on every combination of pictures, PSFs, noises and boundaries.

    Parameters
    ----------
    images, psfs, noises, boundaries, size, seed, blurred
        As for `deblur.compare.make_cases`.
    methods : str or list of str, optional
        Names of contestants (`deblur.compare.contestants`); by default all of them. One that is not installed gets a
        row that says how to install it.
    lam : float or {"gcv", "discrepancy", "lcurve", "upre"}
        λ, or the rule for it, of the methods that take one.
    other_boundary : {"own", "refuse"}
        What happens to a method that cannot assume the case's boundary: it is run on the same picture with the
        boundary it has, and its row says so ("own"), or it is shown as refused.
    oracle : bool
        Add rows with each method's best parameter, found with the truth and marked "oracle".
    time_limit : float
        Time limit in seconds for one restoration; choosing its parameter may take twice as long. A method that
        would take more by the cost model is not run; one that does is stopped.
    repeats : int
        Timed runs after the warm-up; fewer for a method that takes a good part of the time limit.
    memory : bool
        Measure memory in one run more.
    folder : path, optional
        Keep every row there as it is done (``rows.jsonl``, ``pictures/``), so that an interrupted run can go on.
    resume : bool
        Go on with what `folder` holds: rows of the same pictures and settings are not measured again.
    overwrite : bool
        Begin afresh in a folder that holds a comparison.
    progress : callable, optional
        Called before each row with (rows done, rows in all, the method that is next).

    Returns
    -------
    Comparison
        An interruption (Ctrl-C) ends it early; what was done is returned with ``complete=False``.

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
    settings = check_settings(Settings(lam, other_boundary, oracle, time_limit, repeats, memory, seed))
    entered = check_methods(methods)
    cases = make_cases(images, psfs, noises, boundaries, size=size, seed=seed, blurred=blurred)
    store = Store(folder, resume, overwrite) if folder is not None else None
    session = environment(PACKAGES)
    earlier = store.sessions if store else []
    comparison = Comparison([], cases, settings, [*earlier, session])
    if store:
        store.add_session(session)
    plan = [
        (case, contestant, with_truth)
        for case in cases
        for contestant, with_truth in [(None, False), *_entries(entered, case, oracle)]
    ]
    tasks = {case.key: Task(_frozen(case.blurred), _frozen(case.psf), case.boundary, lam) for case in cases}
    try:
        for done, (case, contestant, with_truth) in enumerate(plan):
            name = contestant.name if contestant else "blurred"
            key = _row_key(case, name, with_truth, settings)
            row = store.kept(key) if store else None
            if store and row:
                pictures = store.pictures(row)
            else:
                if progress:
                    progress(done, len(plan), name)
                if contestant is None:
                    judged = baseline(case, key)
                else:
                    judged = judge(contestant, case, tasks[case.key], key, settings, with_truth)
                row, pictures = judged.row, shown(judged, case)
                row.session = len(earlier)
                if store:
                    store.add(row, pictures)
            comparison.rows.append(row)
            comparison.pictures.update(pictures)
        if progress:
            progress(len(plan), len(plan), "")
    except KeyboardInterrupt:
        comparison.complete = False
    return comparison


def _entries(entered: Iterable[Contestant], case: Case, oracle: bool) -> list[tuple[Contestant, bool]]:
    """The methods as they are, then those whose parameter the oracle can set."""
    entered = list(entered)
    seen = [(c, True) for c in entered if c.search] if oracle and case.truth is not None else []
    return [(c, False) for c in entered] + seen


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view: what methods are shown of the task cannot be changed under the next one."""
    view = array.view()
    view.flags.writeable = False
    return view


def _row_key(case: Case, method: str, oracle: bool, settings: Settings) -> str:
    text = json.dumps([case.key, method, oracle, settings.lam, settings.other_boundary, settings.time_limit])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
