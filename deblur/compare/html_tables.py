"""The tables of a comparison in HTML, for the page and for a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from .cases import Case
from .findings import Findings, Row
from .tables import cell, ranked, reason, shown_columns

_TEXT = ("method", "assumes", "value")
_HIGHER_IS_BETTER = ("psnr", "gain", "ssim")


def notebook_tables(found: Findings) -> str:
    """The tables alone, for a notebook."""
    out = []
    for case in found.cases:
        ran, rest = ranked(found, case)
        out += [
            f"<h4>{escape(case.name)}</h4>",
            *case_table(case, ran, {}, "", sortable=False),
            *not_run(rest),
        ]
    return "\n".join(out)


def overview(found: Findings) -> list[str]:
    """Each method over all cases."""
    rows: dict[str, list[Row]] = {}
    for row in found.rows:
        if row.status == "ok" and row.gain is not None:
            rows.setdefault(row.label, []).append(row)
    if not rows:
        return []
    heads = [
        ("Method", "text", "ascending"), ("Cases", "number", "descending"), ("Mean gain dB", "number", "descending"),
        ("Worst gain dB", "number", "descending"), ("Median solve s", "number", "ascending"),
    ]  # fmt: skip
    out = ["<h2>All cases together</h2>", scroll_open("All cases together"), '<table class="sortable">']
    out.append(
        '<caption class="visually-hidden">Each method over all cases</caption>' + _head(heads) + "<tbody>"
    )
    order = sorted(rows, key=lambda label: -float(np.mean([row.gain or 0 for row in rows[label]])))
    for label in order:
        gains = [row.gain or 0.0 for row in rows[label]]
        seconds = [row.solve_s for row in rows[label] if row.solve_s is not None]
        values = [
            len(gains),
            float(np.mean(gains)),
            min(gains),
            float(np.median(seconds)) if seconds else None,
        ]
        texts = [
            str(values[0]), f"{values[1]:+.2f}", f"{values[2]:+.2f}",
            "" if values[3] is None else f"{values[3]:.3g}",
        ]  # fmt: skip
        cells = "".join(
            f'<td data-value="{"" if value is None else repr(float(value))}">{text}</td>'
            for value, text in zip(values, texts, strict=True)
        )
        out.append(f'<tr><th scope="row" data-value="{escape(label)}">{escape(label)}</th>{cells}</tr>')
    return [*out, "</tbody></table></div>"]


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def scroll_open(label: str) -> str:
    # A region that scrolls must be reachable by keyboard.
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def _head(heads: Sequence[tuple[str, str, str]], titles: Sequence[str] = (), sortable: bool = True) -> str:
    cells = []
    for i, (text, kind, first) in enumerate(heads):
        title = f' title="{escape(titles[i])}"' if titles else ""
        inner = f'<button type="button"{title}>{escape(text)}</button>' if sortable else escape(text)
        cells.append(f'<th scope="col" class="{kind}" data-kind="{kind}" data-first="{first}">{inner}</th>')
    return "<thead><tr>" + "".join(cells) + "</tr></thead>"


def case_table(
    case: Case, ran: list[Row], views: dict[str, str], viewer: str, sortable: bool = True
) -> list[str]:
    columns = shown_columns(ran)
    heads = [
        (
            heading,
            "text" if name in _TEXT else "number",
            "descending" if name in _HIGHER_IS_BETTER else "ascending",
        )
        for name, heading, _ in columns
    ]
    best = best_of(case, ran)
    out = ['<table class="sortable">' if sortable else "<table>"]
    if sortable:
        out.append(f'<caption class="visually-hidden">Methods on {escape(case.name)}</caption>')
    out.append(_head(heads, [text for *_, text in columns], sortable) + "<tbody>")
    for row in ran:
        kind = "baseline" if row.method == "blurred" else "best" if row is best else ""
        out.append(f'<tr class="{kind}">' if kind else "<tr>")
        for name, *_ in columns:
            text, value = escape(cell(row, name)), _sort_value(row, name)
            attributes = f' data-value="{escape(value)}"'
            if name == "method":
                view = views.get(row.key)
                if view:
                    text = f'<button type="button" data-viewer="{viewer}" data-view="{view}">{text}</button>'
                out.append(f'<th scope="row"{attributes}>{text}</th>')
                continue
            kinds = ["text"] if name in _TEXT else []
            if name == "gain" and row.gain is not None and row.gain < 0:
                kinds.append("worse")
                text += ' <span class="visually-hidden">worse than the blurred picture</span>'
            if name == "assumes" and row.assumes != case.boundary:
                text += f" (not {escape(case.boundary)})"
            if name == "value" and row.setting:
                attributes += f' title="{escape(row.setting)}"'
            classes = f' class="{" ".join(kinds)}"' if kinds else ""
            out.append(f"<td{classes}{attributes}>{text}</td>")
        out.append("</tr>")
    return [*out, "</tbody></table>"]


def best_of(case: Case, ran: list[Row]) -> Row | None:
    """The method that is best without having seen the truth; without a truth none is called best."""
    if case.truth is None:
        return None
    return next((row for row in ran if row.method != "blurred" and row.how != "oracle"), None)


def _sort_value(row: Row, name: str) -> str:
    """What a column is sorted by; empty for no figure."""
    if name in ("method", "assumes"):
        return cell(row, name)
    if name == "value":
        return "" if row.value is None else f"{row.how} {row.parameter} {row.value:024.12f}"
    value = getattr(row, name)
    if value is None:
        return "1e308" if name in ("psnr", "gain") and row.mse == 0 else ""
    return repr(float(value)) if math.isfinite(value) else "1e308"


def not_run(rest: list[Row]) -> list[str]:
    if not rest:
        return []
    out = ["<h3>What did not run, and why</h3>", '<ul class="why">']
    words = {
        "refused": "cannot serve this case",
        "not installed": "not installed",
        "failed": "ran and failed",
        "too slow": "too slow",
    }
    together: dict[tuple[str, str], list[str]] = {}
    for row in rest:
        together.setdefault((row.status, reason(row)), []).append(row.label)
    for (status, why), labels in together.items():
        names = ", ".join(f"<b>{escape(label)}</b>" for label in labels)
        out.append(f"<li>{names}, {words[status]}: {escape(why)}</li>")
    return [*out, "</ul>"]
