"""Tables of what a comparison found: the columns, the order of the rows, the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable

from .cases import Case
from .findings import Findings, Row

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


def ranked(found: Findings, case: Case) -> tuple[list[Row], list[Row]]:
    """The rows of a case that ran, best first, and those that did not.

    Best is by PSNR to a hundredth of a decibel, without a truth by whiteness; of equals the faster.
    """
    rows = [row for row in found.rows if row.case_key == case.key]
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


def terminal_table(found: Findings, width: int | None = None) -> str:
    """The tables for a terminal of so many columns: what does not fit is left out, the least important first."""
    out = []
    for case in found.cases:
        ran, rest = ranked(found, case)
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
        out += [f"{row.label.ljust(longest)}  {row.status}: {reason(row)}" for row in rest]
        out.append("")
    if not found.complete:
        out.append("interrupted: these are the rows that were done")
    return "\n".join(out).rstrip("\n")


def reason(row: Row) -> str:
    """Why a row has no figures, without the status that stands before it in every table."""
    return row.reason.removeprefix(f"{row.status}: ")


def markdown_tables(found: Findings) -> str:
    """A table for each case, what the columns mean, and where it was measured."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(_escaped(text) for text in cells) + " |"

    out = ["# Comparison of deblurring methods", ""]
    for case in found.cases:
        ran, rest = ranked(found, case)
        columns = shown_columns(ran)
        out += [f"## {_escaped(case.name)}", ""]
        out += [line(heading for _, heading, _ in columns), "|" + " --- |" * len(columns)]
        out += [line(cell(row, name) for name, _, _ in columns) for row in ran]
        out += [""]
        if rest:
            out += ["Not run:", ""]
            out += [f"- {_escaped(row.label)}: {row.status}: {_escaped(reason(row))}" for row in rest]
            out += [""]
    out += [f"- **{heading}**: {text}" for _, heading, text in COLUMNS]
    for session in found.sessions:
        packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        out += [
            "",
            f"Measured {session['date']} on {session['cpu']} ({session['cpus_usable']} CPUs, load "
            f"{session['load_average']}), Python {session['python']}, deblur {session['deblur']} "
            f"(commit {(session['commit'] or 'unknown')[:12]}), {packages}.",
        ]
    if not found.complete:
        out += ["", "Interrupted: these are the rows that were done."]
    return "\n".join(out) + "\n"


def _escaped(text: str) -> str:
    """Text in Markdown: a bar would end its cell, and an angle bracket begin a tag."""
    return re.sub(r"([|\\`*_<>\[\]])", r"\\\1", text)


def csv_table(found: Findings) -> str:
    """One line a row, every scalar field."""
    names = [name for name in Row.__dataclass_fields__ if name not in ("history", "curve")]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in found.rows:
        # A spreadsheet would take a text that begins so for a formula.
        writer.writerow(
            {k: f"'{v}" if isinstance(v, str) and v[:1] in "=+-@" else v for k, v in row.to_dict().items()}
        )
    return out.getvalue()
