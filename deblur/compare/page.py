"""One HTML page of a comparison: tables, pictures and plots in a single file that needs no network.

The markup stands in ``page.html``: first the page, whose scripts only sort the
tables and move the dividing line of the pictures, then the pieces that stand in
more than one place. This module computes the values that `render` fills in, and
which it escapes: names of files, messages of errors and other text from users.
"""

from __future__ import annotations

import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .cases import Case
from .findings import Findings, Row
from .pictures import alike, as_8_bit, encode, names, residual_scale
from .tables import MARKUP, cell, ranked, shown_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PIECES = dict(re.findall(r"<!-- piece (\w+) -->\n(.*?)\n(?=<!-- piece|\Z)", MARKUP, re.DOTALL))
_MARK = re.compile(r"\{\{([#?^])(\w+)\}\}(.*?)\{\{/\1\2\}\}|\{\{([&>]?)(\w+)\}\}", re.DOTALL)


def render(template: str, values: Mapping[str, Any]) -> str:
    """A template with its placeholders filled in.

    ``{{name}}`` is a value as text and ``{{&name}}`` as markup; ``{{>name}}`` is a piece of ``page.html``. What stands
    between ``{{#name}}`` and ``{{/#name}}`` is repeated for each mapping in a list, between ``{{?name}}`` and
    ``{{/?name}}`` it is kept if there is such a value, and between ``{{^name}}`` and ``{{/^name}}`` if there is none.
    """

    def filled(match: re.Match[str]) -> str:
        block, about, inner, kind, name = match.groups()
        if kind == ">":
            return render(_PIECES[name], values)
        if not block:
            return str(values[name]) if kind else escape(str(values[name]))
        if block == "#":
            return "".join(render(inner, {**values, **item}) for item in values[about])
        return render(inner, values) if bool(values[about]) == (block == "?") else ""

    return _MARK.sub(filled, template)


def page(found: Findings) -> str:
    """The whole page, under 5 MB: pictures are compressed, then reduced, until they fit."""
    panels = [_Panel(found, case, f"case{n + 1}") for n, case in enumerate(found.cases)]
    uris, remark = encode({name: picture for p in panels for name, picture in p.pictures.items()})
    methods = [row for row in found.rows if row.method != "blurred"]
    values = {
        "interrupted": not found.complete,
        "methods": counted(len({row.label for row in methods}), "method"),
        "pictures": counted(len(panels), "blurred picture"),
        "run": len({row.label for row in methods if row.status == "ok"}),
        "oracle": any(row.how == "oracle" for row in methods),
        "several": len(panels) > 1,
        "overview": _overview(found),
        "cases": [panel.values(uris) for panel in panels],
        "remark": remark,
        "sessions": _sessions(found),
        "settings": ", ".join(f"{name} {value}" for name, value in vars(found.settings).items()),
    }
    return render(MARKUP.partition("<!-- piece ")[0], values)


def notebook_tables(found: Findings) -> str:
    """The tables alone, for a notebook."""
    return "".join(
        render("<h4>{{name}}</h4><table>{{>rows}}</table>{{>missing}}", _table(case, *ranked(found, case)))
        for case in found.cases
    )


def counted(n: int, noun: str) -> str:
    """A number and its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _sessions(found: Findings) -> list[dict[str, Any]]:
    """Machine and versions of the sessions that measured rows."""
    counts = [sum(row.session == n for row in found.rows) for n in range(len(found.sessions))]
    return [
        {
            **session,
            "rows": counted(count, "row"),
            "commit": (session["commit"] or "")[:12],
            "threads": "".join(f", {name}={value}" for name, value in session["thread_limits"].items()),
            "packages": ", ".join(f"{name} {value}" for name, value in session["packages"].items()),
        }
        for session, count in zip(found.sessions, counts, strict=True)
        if count
    ]


# -- tables ------------------------------------------------------------------------------------


def _overview(found: Findings) -> list[dict[str, Any]]:
    """Each method over all cases, the largest mean gain first."""
    by_method: dict[str, list[Row]] = {}
    for row in found.rows:
        if row.status == "ok" and row.gain is not None:
            by_method.setdefault(row.label, []).append(row)
    lines: list[dict[str, Any]] = []
    for label, rows in by_method.items():
        gains = [row.gain for row in rows if row.gain is not None]
        seconds = [row.solve_s for row in rows if row.solve_s is not None]
        mean, median = statistics.fmean(gains), statistics.median(seconds) if seconds else None
        figures = ((len(rows), "d"), (mean, "+.2f"), (min(gains), "+.2f"), (median, ".3g"))
        cells = [{"sort": _number(x), "text": "" if x is None else format(x, form)} for x, form in figures]
        lines.append({"label": label, "mean": mean, "cells": cells})
    return sorted(lines, key=lambda line: -line["mean"])


def _number(value: float | None) -> str:
    """The value that a column is sorted by, as JavaScript reads it; empty for no figure."""
    return "" if value is None else str(float(value)).replace("inf", "Infinity")


def _cell(row: Row, name: str, case: Case) -> dict[str, Any]:
    """A cell: its text, what it is sorted by, and what is said of it."""
    text = sort = cell(row, name)
    if name == "value":
        sort = "" if row.value is None else f"{row.how} {row.parameter} {row.value:024.12f}"
    elif name == "assumes":
        text += "" if row.assumes == case.boundary else f" (not {case.boundary})"
    else:
        sort = _number(math.inf if name in ("psnr", "gain") and row.mse == 0 else getattr(row, name))
    worse = name == "gain" and row.gain is not None and row.gain < 0
    kind = "text" if name in ("value", "assumes") else "worse" if worse else ""
    return {
        "text": text,
        "sort": sort,
        "kind": kind,
        "worse": worse,
        "title": row.setting if name == "value" else "",
    }


def _table(case: Case, ran: list[Row], rest: list[Row], views: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The table of one case, with buttons if `views` maps keys of rows to pictures; and the methods that did not run.

    Those of the latter that have one reason stand together.
    """
    columns, best = shown_columns(ran), best_of(case, ran)
    words = {"refused": "cannot serve this case", "failed": "ran and failed"}
    together: dict[str, list[str]] = {}
    for row in rest:
        together.setdefault(f"{words.get(row.status, row.status)}: {row.reason}", []).append(row.label)
    return {
        "name": case.name,
        "sortable": views is not None,
        "heads": [column._asdict() for column in columns],
        "lines": [
            {
                "label": row.label,
                "view": (views or {}).get(row.key),
                "mark": "baseline" if row.method == "blurred" else "best" if row is best else "",
                "cells": [_cell(row, column.name, case) for column in columns[1:]],
            }
            for row in ran
        ],
        "missing": [{"labels": ", ".join(labels), "why": why} for why, labels in together.items()],
    }


def best_of(case: Case, ran: list[Row]) -> Row | None:
    """The best method that has not seen the truth; None without a truth."""
    fair = (row for row in ran if row.method != "blurred" and row.how != "oracle")
    return next(fair, None) if case.truth is not None else None


# -- cases -------------------------------------------------------------------------------------


class _Panel:
    """One case of the page; `groups` holds, by the name of their picture, rows whose pictures look the same."""

    def __init__(self, found: Findings, case: Case, name: str) -> None:
        self.case, self.id = case, name
        self.ran, self.rest = ranked(found, case)
        self.pictures = {f"{name}-blurred": as_8_bit(case.blurred)}
        if case.truth is not None:
            self.pictures[f"{name}-sharp"] = as_8_bit(case.truth)
        peak = max(float(np.abs(case.psf).max()), 1e-300)
        # The frame shows the extent even of a flat PSF.
        self.pictures[f"{name}-psf"] = as_8_bit(np.pad(case.psf / peak, 2))
        self.groups: dict[str, list[Row]] = {}
        for row in self.ran:
            restored, residual = (found.pictures.get(picture) for picture in names(row.key))
            if restored is None or row.method == "blurred":
                continue
            same = next((group for group in self.groups if alike(self.pictures[group], restored)), None)
            if same is not None:
                self.groups[same].append(row)
                continue
            group = f"{name}-{len(self.groups) + 1}"
            self.groups[group], self.pictures[group] = [row], restored
            if residual is not None:
                self.pictures[f"{group}-residual"] = residual

    def values(self, uris: dict[str, str]) -> dict[str, Any]:
        """What the section of the case says, with the pictures that `uris` holds."""
        case, groups = self.case, {group: rows for group, rows in self.groups.items() if group in uris}
        views = {row.key: group for group, rows in groups.items() for row in rows}
        best = best_of(case, self.ran)
        measured = best is not None and best.gain is not None
        losers = [row.label for row in self.ran if row.method != "blurred" and (row.gain or 0) < 0]
        blurred, sharp, psf = (f"{self.id}-{kind}" for kind in ("blurred", "sharp", "psf"))
        own = {blurred: "blurred"} | ({sharp: "sharp (the truth)"} if sharp in uris else {})
        options = dict(own)
        for group, (first, *others) in groups.items():
            options[group] = f"{first.label} (and {counted(len(others), 'other')})" if others else first.label
        right, plots = next(iter(groups), list(options)[-1]), _plots(case, self.ran, self.id)
        return {
            **_table(case, self.ran, self.rest, views),
            "id": self.id,
            "notes": [{"note": note} for note in case.notes],
            "blind": case.truth is None,
            "best": best and best.label,
            "figures": best and measured and f"{best.psnr:.2f} dB, {abs(best.gain or 0):.2f} dB",
            "than": "below" if best and (best.gain or 0) < 0 else "above",
            "worse": losers and counted(len(losers), "method"),
            "losers": ", ".join(losers),
            "viewer": blurred in uris and psf in uris,
            "hidden": [{"picture": name, "src": uris.get(name)} for name in own],
            "options": [{"picture": name, "text": text, "right": name == right} for name, text in options.items()],
            "under": uris.get(right),
            "over": uris.get(blurred),
            "limit": f"{residual_scale(case):.3g}",
            "psf": uris.get(psf),
            "size": " × ".join(map(str, case.psf.shape)),
            **plots,
            "plots": any(plots.values()),
            "cards": [self._card(group, rows, uris) for group, rows in groups.items()],
        }

    def _card(self, group: str, rows: list[Row], uris: dict[str, str]) -> dict[str, Any]:
        """The picture of a group in the gallery, and the facts that the viewer shows with it."""
        row, labels = rows[0], ", ".join(row.label for row in rows)
        pair = {group: f"Restored by {labels}", f"{group}-residual": "Its residual"}
        return {
            **{name: cell(row, name) for name in ("psnr", "gain", "ssim", "whiteness", "value", "assumes")},
            "group": group,
            "labels": labels,
            "many": len(rows) > 1,
            "setting": row.setting,
            "other": row.assumes != self.case.boundary and self.case.boundary,
            "remarks": [{"label": other.label, "remark": other.note} for other in rows if other.note],
            "pair": [{"picture": n, "alt": alt, "src": uris[n]} for n, alt in pair.items() if n in uris],
        }


# -- plots -------------------------------------------------------------------------------------


def _axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, 3.6), layout="constrained").add_subplot()


def _figure(ax: Axes, name: str, titles: Mapping[str, str] | None = None) -> str:
    """The figure as inline SVG in the colours of the page; `titles` appear over artists with those gids."""
    import matplotlib

    out = io.StringIO()
    figure = ax.get_figure(root=True)
    assert figure is not None
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(out, format="svg", transparent=True)
    svg = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>", "", out.getvalue(), flags=re.DOTALL)
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    svg = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", svg)  # names are unique in a page
    for gid, title in (titles or {}).items():
        svg = svg.replace(f'<g id="{name}-{gid}">', f'<g id="{name}-{gid}"><title>{escape(title)}</title>')
    described = escape(f"{ax.get_ylabel()} against {ax.get_xlabel()}")
    return svg.replace("<svg", f'<svg role="img" aria-label="{described}"', 1)


def _plots(case: Case, ran: list[Row], name: str) -> dict[str, list[dict[str, str]]]:
    figures: dict[str, list[dict[str, str]]] = {"quality": [], "lcurves": [], "convergence": []}
    if case.truth is not None:
        methods = [row for row in ran if row.method != "blurred" and row.how != "oracle"]
        blurred = [row.psnr for row in ran if row.method == "blurred" and row.psnr is not None]
        figures["quality"] = quality_against_time(methods, max(blurred, default=-math.inf), f"{name}-quality")
    curves = {row.assumes: row.curve for row in reversed(ran) if row.curve}
    for n, (assumed, curve) in enumerate(curves.items()):
        ax, at = _axes(), curve["at"]
        point = curve["x"][at], curve["y"][at]
        ax.loglog(curve["x"], curve["y"])
        ax.plot(*point, "o")
        ax.annotate(f"λ = {curve['lam']:.2g}", point, (6, 6), textcoords="offset points")
        ax.set(xlabel="‖g − Hf‖", ylabel="‖f‖")
        figures["lcurves"].append({"assumed": assumed, "svg": _figure(ax, f"{name}-lcurve{n}")})
    series = [row for row in ran if sum(r > 0 for _, r in row.history) > 1]
    for start in range(0, len(series), 6):
        ax = _axes()
        for row in series[start : start + 6]:
            ax.semilogy(*zip(*((i, r) for i, r in row.history if r > 0), strict=True), label=row.label)
        ax.set(xlabel="iterations", ylabel="relative residual")
        ax.legend(fontsize="small")
        figures["convergence"].append({"svg": _figure(ax, f"{name}-convergence{start}")})
    return figures


def quality_against_time(rows: Iterable[Row], blurred: float, name: str) -> list[dict[str, str]]:
    """Every method as a point, PSNR over seconds, except those 3 dB below the blurred picture.

    Methods that no other beats in both are named. No figure if fewer than two points remain.
    """
    points = sorted(
        ((row.setup_s or 0) + row.solve_s, row.psnr, row.label)
        for row in rows
        if row.psnr is not None and math.isfinite(row.psnr) and row.solve_s
    )
    shown = [point for point in points if point[1] >= blurred - 3]
    if len(shown) < 2:
        return []
    ax, best, titles = _axes(), -math.inf, {}
    ax.set(xscale="log", xlabel="seconds, set-up and solve", ylabel="PSNR dB")
    if math.isfinite(blurred):
        ax.axhline(blurred, color="0.5", linestyle="--", linewidth=1)
        ax.annotate("blurred", (1, blurred), (-2, 2), ax.get_yaxis_transform(), "offset points", ha="right")
    for n, (seconds, psnr, label) in enumerate(shown):
        unbeaten = psnr > best + 0.005  # all points before it are faster
        titles[f"dot{n}"] = f"{label}: {psnr:.2f} dB, {seconds:.3g} s"
        ax.plot(seconds, psnr, "o", color="C0" if unbeaten else "C1", ms=6 if unbeaten else 4, gid=f"dot{n}")
        if unbeaten:
            best, at = psnr, (seconds, psnr)
            ax.annotate(label, at, (0, 5), textcoords="offset points", ha="center", fontsize="small")
    left_out = len(points) - len(shown)
    return [{"svg": _figure(ax, name, titles), "left_out": counted(left_out, "method") if left_out else ""}]
