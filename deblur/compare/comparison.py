"""Run every method on every case, keep what is done, and hand it over as tables and a page."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import image
from ..pipeline import check_lam
from .adapters import PACKAGES, Contestant, contestants
from .cases import Case, Task, make_cases
from .judge import Judged, Row, Settings, baseline, judge
from .record import environment

#: Called before each row with (rows done, rows in all, the method that is next).
Progress = Callable[[int, int, str], None]

#: The columns of every table: name, heading, and what it means in plain words.
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("method", "Method", "Which method restored the picture. “oracle” means that the truth was used to set its "
     "parameter: the best anyone could get from it, not what a user gets."),
    ("assumes", "Assumes", "What the method takes to lie beyond the frame. Where this differs from the case, the "
     "method cannot assume what is true, and edges show it."),
    ("value", "Parameter", "Its parameter and where it came from: a rule that sees only the blurred picture, the "
     "package's default, a number you gave, or the oracle."),
    ("psnr", "PSNR dB", "Peak signal-to-noise ratio against the sharp picture: higher is better; 1 dB is about "
     "the least that an eye notices. Values are not clipped before."),
    ("gain", "Gain dB", "PSNR less that of the blurred picture. Below zero, doing nothing would have been better."),
    ("ssim", "SSIM", "Structural similarity with the sharp picture: 1 is equal."),
    ("mse", "MSE", "Mean squared error against the sharp picture, white being 1: lower is better."),
    ("misfit", "Misfit", "The restored picture, blurred again, against the data: ‖g − h∗f‖ / ‖g‖ where nothing "
     "beyond the frame is needed. Much below the noise, noise has been fitted; much above, detail was lost."),
    ("whiteness", "Whiteness", "How far what is left over is from white noise, 0 to 1. Near 0 only noise is left; "
     "otherwise part of the picture is, or noise has been fitted."),
    ("residual", "Residual", "How exactly the method solved its linear equations, measured by deblur with the blur "
     "itself. It says nothing about the picture."),
    ("choose_s", "Choose s", "Seconds to choose the parameter, spent once; deblur's linear methods share one choice."),
    ("setup_s", "Set-up s", "Seconds for all that does not depend on the picture, and can be kept for the next one."),
    ("solve_s", "Solve s", "Seconds to restore one picture after that: the median after a warm-up."),
    ("peak_bytes", "Memory MiB", "Most memory held at once."),
)  # fmt: skip


@dataclass
class Comparison:
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
    """

    rows: list[Row]
    cases: list[Case]
    settings: Settings
    sessions: list[dict[str, Any]]
    complete: bool = True
    #: 8-bit pictures by name: "<row key>-restored", "<row key>-residual".
    pictures: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return terminal_table(self)

    def _repr_html_(self) -> str:
        from .report import table_html

        return table_html(self)

    def best(self, case: Case | str | None = None) -> Row | None:
        """The row with the highest PSNR of a case (or of all), oracles aside; None without a truth."""
        key = case.key if isinstance(case, Case) else case
        fair = [
            row
            for row in self.rows
            if row.psnr is not None and row.how != "oracle" and key in (None, row.case_key)
        ]
        return max(fair, key=lambda row: row.psnr or -math.inf, default=None)

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

    def to_json(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """Everything but the pictures, as JSON; written to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return _deliver(text + "\n", path, overwrite)

    def to_csv(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One line a row, every scalar field; written to `path` if one is given."""
        rows = [row.to_dict() for row in self.rows]
        names = [name for name in Row.__dataclass_fields__ if name not in ("history", "curve")]
        out = io.StringIO()
        writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            # A spreadsheet would take a text that begins so for a formula.
            writer.writerow(
                {k: f"'{v}" if isinstance(v, str) and v[:1] in "=+-@" else v for k, v in row.items()}
            )
        return _deliver(out.getvalue(), path, overwrite)

    def to_markdown(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """A table for each case, and why the other methods did not run; written to `path` if one is given."""
        return _deliver(_markdown(self), path, overwrite)

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """One page that needs nothing else, with tables, pictures and plots; written to `path` if one is given."""
        from .report import page

        return _deliver(page(self), path, overwrite)


def _deliver(text: str, path: str | Path | None, overwrite: bool) -> str:
    if path is not None:
        image.check_writable(path, overwrite).write_text(text, encoding="utf-8")
    return text


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


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
        Seconds that one restoration may take, and half of what choosing its parameter may. A method that would
        take more by the cost model is not run; one that does is stopped.
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
    store = _Store(folder, resume, overwrite) if folder is not None else None
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
            kept = store.kept(key) if store else None
            if kept is None:
                if progress:
                    progress(done, len(plan), name)
                if contestant is None:
                    kept = baseline(case, key)
                else:
                    kept = judge(contestant, case, tasks[case.key], key, settings, with_truth)
                kept.row.session = len(earlier)
                pictures = _pictures(kept, case)
                if store:
                    store.add(kept.row, pictures)
            else:
                assert store is not None
                pictures = store.pictures(kept.row)
            comparison.rows.append(kept.row)
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


def residual_scale(case: Case) -> float:
    """What is drawn as white (and, negative, as black) in the residual pictures of a case."""
    return 4 * max(case.sigma, 1 / 255)


def as_8_bit(picture: np.ndarray) -> np.ndarray:
    """A picture on [0, 1] as it is shown: clipped and rounded to 8 bits."""
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _pictures(judged: Judged, case: Case) -> dict[str, np.ndarray]:
    pictures = {}
    if judged.restored is not None:
        pictures[f"{judged.row.key}-restored"] = as_8_bit(judged.restored)
    if judged.residual is not None:
        grey = judged.residual if judged.residual.ndim == 2 else judged.residual.mean(axis=-1)
        pictures[f"{judged.row.key}-residual"] = as_8_bit(0.5 + 0.5 * grey / residual_scale(case))
    return pictures


class _Store:
    """A folder that holds the rows of a comparison, one JSON line each, and their pictures.

    A line is either ``{"session": ...}`` or ``{"row": ...}``. It is appended when its row is done; a last line that
    was cut off by a crash is dropped.
    """

    def __init__(self, folder: str | Path, resume: bool, overwrite: bool) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder} is a file; name a folder for the comparison")
        self._file = self.folder / "rows.jsonl"
        self._pictures = self.folder / "pictures"
        self.sessions: list[dict[str, Any]] = []
        self._rows: dict[str, Row] = {}
        if self._file.exists():
            if resume:
                self._load()
            elif overwrite:
                self._file.unlink()
            else:
                raise FileExistsError(
                    f"{self._file} is there already: go on with it (resume=True, --resume), begin afresh "
                    "(overwrite=True, --force), or name another folder"
                )
        self._pictures.mkdir(parents=True, exist_ok=True)

    def _load(self) -> None:
        lines = self._file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if "session" in entry:
                    self.sessions.append(entry["session"])
                else:
                    row = Row(**entry["row"])
                    row.history = [(i, r) for i, r in row.history]
                    # What a session could not run may run now; what it measured stands.
                    if row.status not in ("not installed", "refused"):
                        self._rows[row.key] = row
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, json.JSONDecodeError) and number == len(lines) > 1:
                    lines.pop()  # cut off by a crash
                    break
                raise ValueError(
                    f"line {number} of {self._file} is no row of this version ({error}); begin afresh (--force) or "
                    "name another folder"
                ) from error
        self._file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _append(self, entry: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as f:
            f.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")

    def add_session(self, session: dict[str, Any]) -> None:
        self._append({"session": session})

    def add(self, row: Row, pictures: dict[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            image.write(self._pictures / f"{name}.png", picture, overwrite=True)
        self._append({"row": row.to_dict()})

    def kept(self, key: str) -> Judged | None:
        row = self._rows.get(key)
        missing = row is not None and row.status == "ok" and not self._picture(f"{key}-restored").exists()
        return None if row is None or missing else Judged(row)

    def _picture(self, name: str) -> Path:
        return self._pictures / f"{name}.png"

    def pictures(self, row: Row) -> dict[str, np.ndarray]:
        names = [f"{row.key}-{kind}" for kind in ("restored", "residual")]
        return {
            name: image.read(self._picture(name), as_float=False)
            for name in names
            if self._picture(name).exists()
        }


# ---------------------------------------------------------------------------------------------
# Tables of text
# ---------------------------------------------------------------------------------------------


def cell(row: Row, column: str) -> str:
    """One figure as it is printed; an empty text where there is none."""
    if column == "method":
        return row.label
    if column == "value":
        if row.value is None:
            return "automatic" if row.how == "automatic" else ""
        return f"{row.parameter} {row.value:.3g} ({row.how})"
    value = getattr(row, column)
    if column in ("psnr", "gain") and value is None and row.mse == 0:
        return "∞"
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return value
    return {
        "psnr": lambda v: f"{v:.2f}" if math.isfinite(v) else "∞",
        "gain": lambda v: f"{v:+.2f}",
        "ssim": lambda v: f"{v:.4f}",
        "whiteness": lambda v: f"{v:.3f}",
        "peak_bytes": lambda v: f"{v / 2**20:.1f}",
        "mse": lambda v: f"{v:.3g}",
        "residual": lambda v: f"{v:.1e}",
    }.get(column, lambda v: f"{v:.3g}")(value)


def ranked(comparison: Comparison, case: Case) -> tuple[list[Row], list[Row]]:
    """The rows of a case that ran, best first, and those that did not.

    Best is by PSNR to a hundredth of a decibel, without a truth by whiteness; of equals the faster.
    """
    rows = [row for row in comparison.rows if row.case_key == case.key]
    ran = [row for row in rows if row.status == "ok"]

    def rank(row: Row) -> tuple[float, float]:
        if case.truth is not None:
            quality = -round(row.psnr, 2) if row.psnr is not None else -math.inf
        else:
            quality = round(row.whiteness, 3) if row.whiteness is not None else math.inf
        return quality, (row.setup_s or 0) + (row.solve_s or 0)

    return sorted(ran, key=rank), [row for row in rows if row.status != "ok"]


def shown_columns(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    """The columns in which some row has a figure."""
    rows = list(rows)
    return [column for column in COLUMNS if any(cell(row, column[0]) for row in rows)]


#: Columns that a terminal shows; where it is too narrow, those after the first three go, the last first.
_ON_TERMINAL = (
    "method", "psnr", "solve_s", "gain", "value", "setup_s", "assumes", "ssim", "misfit", "whiteness", "peak_bytes",
)  # fmt: skip


def terminal_table(comparison: Comparison, width: int | None = None) -> str:
    """The tables as they are printed on a terminal.

    Parameters
    ----------
    comparison : Comparison
    width : int, optional
        Columns of the terminal: what does not fit is left out, the least important first.
    """
    out = []
    for case in comparison.cases:
        ran, rest = ranked(comparison, case)
        kept = list(_ON_TERMINAL)
        while True:
            columns = [c for c in shown_columns(ran) if c[0] in kept]
            lines = [[heading for _, heading, _ in columns]]
            lines += [[cell(row, name) for name, _, _ in columns] for row in ran]
            widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
            if width is None or sum(widths) + 2 * (len(widths) - 1) <= width or len(kept) <= 3:
                break
            kept.pop()
        left = ("method", "assumes", "value")
        out.append(case.name)
        out.append("-" * len(case.name))
        for line in lines:
            out.append(
                "  ".join(
                    text.ljust(room) if name in left else text.rjust(room)
                    for text, room, (name, _, _) in zip(line, widths, columns, strict=True)
                ).rstrip()
            )
        longest = max((len(row.label) for row in rest), default=0)
        out += [f"{row.label.ljust(longest)}  {row.status}: {_short(row)}" for row in rest]
        out.append("")
    if not comparison.complete:
        out.append("interrupted: these are the rows that were done")
    return "\n".join(out).rstrip("\n")


def _short(row: Row) -> str:
    return row.reason.removeprefix(f"{row.status}: ")


def _markdown(comparison: Comparison) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(_escaped(text) for text in cells) + " |"

    out = ["# Comparison of deblurring methods", ""]
    for case in comparison.cases:
        ran, rest = ranked(comparison, case)
        columns = shown_columns(ran)
        out += [f"## {_escaped(case.name)}", ""]
        out += [line(heading for _, heading, _ in columns), "|" + " --- |" * len(columns)]
        out += [line(cell(row, name) for name, _, _ in columns) for row in ran]
        out += [""]
        if rest:
            out += ["Not run:", ""]
            out += [f"- {_escaped(row.label)}: {row.status}: {_escaped(_short(row))}" for row in rest]
            out += [""]
    out += [f"- **{heading}**: {text}" for _, heading, text in COLUMNS]
    for session in comparison.sessions:
        packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        out += [
            "",
            f"Measured {session['date']} on {session['cpu']} ({session['cpus_usable']} CPUs, load "
            f"{session['load_average']}), Python {session['python']}, deblur {session['deblur']} "
            f"(commit {(session['commit'] or 'unknown')[:12]}), {packages}.",
        ]
    if not comparison.complete:
        out += ["", "Interrupted: these are the rows that were done."]
    return "\n".join(out) + "\n"


def _escaped(text: str) -> str:
    """Text in Markdown: a bar would end its cell, and an angle bracket begin a tag."""
    return re.sub(r"([|\\`*_<>\[\]])", r"\\\1", text)
