"""Tables of the results for the terminal, Markdown and CSV: their columns, and the order of their rows."""

from __future__ import annotations

import csv
import io
import math
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, StrictUndefined

from .cases import Case
from .findings import Row

if TYPE_CHECKING:
    from .running import Comparison


class Column(NamedTuple):
    """A column of the tables: a field of `Row`, its sorting and format, its heading and its meaning."""

    name: str
    kind: str
    first: str
    form: str
    heading: str
    meaning: str


def _markup(name: str) -> str:
    """Return a template of Jinja from this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


#: The markup of the page, which also contains the headings and meanings of the columns.
MARKUP = _markup("page.html")
_TERM = r'<dt data-field="(.*)" data-kind="(.*)" data-first="(.*)" data-form="(.*)">(.*)</dt>\n<dd>(.*)</dd>'
COLUMNS = tuple(Column(*map(unescape, found)) for found in re.findall(_TERM, MARKUP))
_FORMS = {column.name: column.form for column in COLUMNS}


def cell(row: Row, column: str) -> str:
    """Return one figure as text; empty if there is none."""
    if column == "method":
        return row.label
    if column == "value":
        given = f"{row.parameter} {row.value:.3g} ({row.how})" if row.value is not None else ""
        return given or ("automatic" if row.how == "automatic" else "")
    value = getattr(row, column)
    if column in ("psnr", "gain") and row.mse == 0:
        return "∞"
    if value is None or isinstance(value, str):
        return value or ""
    return format(value / 2**20 if column == "peak_bytes" else value, _FORMS[column])


def ranked(found: Comparison, case: Case) -> tuple[list[Row], list[Row]]:
    """Return the rows of a case that ran, the best first, and the rows that did not.

    The order is by PSNR to a hundredth of a decibel, or without a truth by whiteness; among equals the faster one is
    first.
    """
    rows = [row for row in found.rows if row.case_key == case.key]

    def rank(row: Row) -> tuple[float, float]:
        quality = row.whiteness if case.truth is None else None if row.psnr is None else -row.psnr
        worst = math.inf if quality is None else round(quality, 3 if case.truth is None else 2)
        return worst, (row.setup_s or 0) + (row.solve_s or 0)

    ran = sorted((row for row in rows if row.status == "ok"), key=rank)
    return ran, [row for row in rows if row.status != "ok"]


def shown_columns(rows: list[Row]) -> list[Column]:
    """Return the columns that have a figure in some row."""
    return [column for column in COLUMNS if any(cell(row, column.name) for row in rows)]


#: Columns on a terminal. If it is too narrow, the last ones are left out first, down to three columns.
_ON_TERMINAL = (
    "method", "psnr", "solve_s", "gain", "value", "setup_s", "assumes", "ssim", "data_residual", "whiteness",
    "peak_bytes",
)  # fmt: skip


def terminal_table(found: Comparison, width: int | None = None) -> str:
    """Return the tables for a terminal of `width` characters; a narrow terminal gets fewer columns."""
    out = []
    for case in found.cases:
        ran, rest = ranked(found, case)
        for most in range(len(_ON_TERMINAL), 2, -1):
            columns = [column for column in shown_columns(ran) if column.name in _ON_TERMINAL[:most]]
            table = [[column.heading, *(cell(row, column.name) for row in ran)] for column in columns]
            widths = [max(map(len, texts)) for texts in table]
            if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
                break
        padded = [
            [text.ljust(room) if column.kind == "text" else text.rjust(room) for text in texts]
            for texts, room, column in zip(table, widths, columns, strict=True)
        ]
        longest = max((len(row.label) for row in rest), default=0)
        out += [case.name, "-" * len(case.name)]
        out += ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
        out += [f"{row.label.ljust(longest)}  {row.status}: {row.reason}" for row in rest] + [""]
    if not found.complete:
        out.append("interrupted: these are the completed rows")
    return "\n".join(out).rstrip("\n")


def markdown_tables(found: Comparison) -> str:
    """Return a table for each case, the meaning of the columns, and the machine, in Markdown."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    # In Markdown a bar would end its cell, and an angle bracket would begin a tag.
    environment.filters["escaped"] = lambda text: re.sub(r"([|\\`*_<>\[\]])", r"\\\1", text)
    environment.globals |= {"ranked": ranked, "shown_columns": shown_columns, "cell": cell}
    return environment.from_string(_markup("tables.md")).render(found=found, explained=COLUMNS)


def csv_table(found: Comparison) -> str:
    """Return one line for each row with all scalar fields."""
    names = [name for name in Row.__dataclass_fields__ if name not in ("history", "curve")]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for values in (row.to_dict() for row in found.rows):
        # A spreadsheet would read a text that begins with one of these characters as a formula.
        quoted = [f"'{v}" if isinstance(v, str) and v[:1] in tuple("=+-@") else v for v in values.values()]
        writer.writerow(dict(zip(values, quoted, strict=True)))
    return out.getvalue()
