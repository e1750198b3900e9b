"""One HTML page of a comparison: tables, pictures and plots in a single file that needs no network.

The markup stands in ``page.html``: first the page, whose scripts only sort the
tables and move the dividing line of the pictures, then its pieces, which this
module fills in. Text from users (names of files, messages of errors) is
escaped in one place, `Html`.
"""

from __future__ import annotations

import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from .cases import Case
from .findings import Findings, Row
from .pictures import alike, as_8_bit, encode, names, residual_scale
from .tables import MARKUP, TEXT, cell, ranked, reason, shown_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Html(str):
    """Markup, which is inserted unchanged; any other text is escaped."""

    @classmethod
    def of(cls, value: object) -> Html:
        """`value` as markup; the parts of a list one after the other."""
        if isinstance(value, list):
            return cls("".join(map(cls.of, value)))
        return value if isinstance(value, cls) else cls(escape(str(value)))


@cache
def _pieces() -> dict[str, str]:
    """The pieces of ``page.html`` by name; the page itself has no name."""
    page, *rest = re.split(r"<!-- piece ([\w ]+) -->\n", MARKUP)
    return {"": page, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _fill(piece: str, /, **values: object) -> Html:
    """A piece with its placeholders filled in."""
    filled = {name: Html.of(value) for name, value in values.items()}
    return Html(Template(_pieces()[piece].rstrip("\n")).substitute(filled))


def _tag(name: str, content: object = "", /, **attributes: object) -> Html:
    """An element; attributes that are None are left out, and "_" in their names stands for "-"."""
    opening = "".join(
        f' {key.strip("_").replace("_", "-")}="{Html.of(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{opening}>{Html.of(content)}" + ("" if name == "img" else f"</{name}>"))


def page(found: Findings) -> str:
    """The whole page, under 5 MB: pictures are compressed, then reduced, until they fit."""
    panels = [_Panel(found, case, f"case{n + 1}") for n, case in enumerate(found.cases)]
    uris, remark = encode({name: picture for p in panels for name, picture in p.pictures.items()})
    methods = [row for row in found.rows if row.method != "blurred"]
    oracle = any(row.how == "oracle" for row in methods)
    body = _fill(
        "body",
        interrupted="" if found.complete else _fill("interrupted"),
        methods=counted(len({row.label for row in methods}), "method"),
        pictures=counted(len(panels), "blurred picture"),
        ran=len({row.label for row in methods if row.status == "ok"}),
        oracle=", unless its row says “oracle”" if oracle else "",
        overview=_overview(found, panels) if len(panels) > 1 else "",
        cases=[panel.html(uris) for panel in panels],
        remark=remark,
        sessions=[_session(found, n) for n in range(len(found.sessions))],
        settings=", ".join(f"{name} {value}" for name, value in vars(found.settings).items()),
    )
    return _pieces()[""].replace("<!--BODY-->", body)


def notebook_tables(found: Findings) -> str:
    """The tables alone, for a notebook."""
    out: list[Html] = []
    for case in found.cases:
        ran, rest = ranked(found, case)
        out += [_tag("h4", case.name), _tag("table", _case_rows(case, ran)), _missing(rest)]
    return Html.of(out)


def counted(n: int, noun: str) -> str:
    """A number and its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _terms(pairs: Iterable[tuple[str, str]]) -> Html:
    return Html.of([[_tag("dt", term), _tag("dd", text)] for term, text in pairs])


def _session(found: Findings, n: int) -> Html:
    """Machine and versions of the rows that one session measured."""
    session, count = found.sessions[n], sum(row.session == n for row in found.rows)
    if not count:
        return Html("")
    changed = " with changes not committed" if session["uncommitted_changes"] else ""
    version = f" (commit {session['commit'][:12]}{changed})" if session["commit"] else ""
    threads = "".join(f", {name}={value}" for name, value in session["thread_limits"].items())
    packages = ", ".join(f"{name} {value}" for name, value in session["packages"].items())
    values = {**session, "rows": counted(count, "row"), "version": version, "threads": threads}
    return _fill("session", **values | {"packages": packages})


# -- tables ------------------------------------------------------------------------------------


def _head(columns: Iterable[tuple[str, str, str, str | None]], buttons: bool) -> Html:
    """The head of a table of (heading, kind, first order when sorted, explanation)."""
    cells = []
    for heading, kind, first, title in columns:
        label = _tag("button", heading, type="button", title=title) if buttons else heading
        cells.append(_tag("th", label, scope="col", class_=kind, data_kind=kind, data_first=first))
    return _tag("thead", _tag("tr", cells))


def _overview(found: Findings, panels: list[_Panel]) -> Html:
    """Links to the cases, and each method over all of them."""
    by_method: dict[str, list[Row]] = {}
    for row in found.rows:
        if row.status == "ok" and row.gain is not None:
            by_method.setdefault(row.label, []).append(row)
    lines: list[tuple[float, Html]] = []
    for label, rows in by_method.items():
        gains = [row.gain for row in rows if row.gain is not None]
        mean = statistics.fmean(gains)
        seconds = [row.solve_s for row in rows if row.solve_s is not None]
        median = statistics.median(seconds) if seconds else None
        figures = ((len(rows), "d"), (mean, "+.2f"), (min(gains), "+.2f"), (median, ".3g"))
        cells = [_tag("th", label, scope="row", data_value=label)]
        for value, form in figures:
            cells.append(_tag("td", "" if value is None else format(value, form), data_value=_number(value)))
        lines.append((-mean, _tag("tr", cells)))
    heads = [("Method", "text", "ascending", None)]
    heads += [(text, "number", "descending", None) for text in ("Cases", "Mean gain dB", "Worst gain dB")]
    heads += [("Median solve s", "number", "ascending", None)]
    body = _tag("tbody", [line for _, line in sorted(lines, key=lambda line: line[0])])
    links = [_tag("li", _tag("a", panel.case.name, href=f"#{panel.id}")) for panel in panels]
    table = _fill("table", label="Each method over all cases", rows=[_head(heads, True), body])
    return _fill("overview", links=links, table=table)


def _number(value: float | None) -> str:
    """The value that a column is sorted by, as JavaScript reads it; empty for no figure."""
    return "" if value is None else str(float(value)).replace("inf", "Infinity")


def _sort_value(row: Row, name: str) -> str:
    if name in ("method", "assumes"):
        return cell(row, name)
    if name == "value":
        return "" if row.value is None else f"{row.how} {row.parameter} {row.value:024.12f}"
    exact = name in ("psnr", "gain") and row.mse == 0
    return _number(math.inf if exact else getattr(row, name))


def _case_rows(case: Case, ran: list[Row], views: Mapping[str, str] | None = None, viewer: str = "") -> Html:
    """Head and body of the table of one case, with buttons if `views` maps keys of rows to pictures in a viewer."""
    columns = shown_columns(ran)
    heads = [
        (
            column.heading,
            "text" if column.name in TEXT else "number",
            "descending" if column.name in ("psnr", "gain", "ssim") else "ascending",
            column.meaning,
        )
        for column in columns
    ]
    best, lines = best_of(case, ran), []
    for row in ran:
        view = (views or {}).get(row.key)
        label: object = row.label
        if view:
            label = _tag("button", label, type="button", data_viewer=viewer, data_view=view)
        cells = [_tag("th", label, scope="row", data_value=row.label)]
        for column in columns[1:]:
            name = column.name
            content: object = cell(row, name)
            kind = "text" if name in TEXT else None
            if name == "gain" and row.gain is not None and row.gain < 0:
                kind = "worse"
                content = [content, _tag("span", " worse than the blurred picture", class_="visually-hidden")]
            if name == "assumes" and row.assumes != case.boundary:
                content = f"{row.assumes} (not {case.boundary})"
            title = row.setting or None if name == "value" else None
            cells.append(_tag("td", content, class_=kind, data_value=_sort_value(row, name), title=title))
        mark = "baseline" if row.method == "blurred" else "best" if row is best else None
        lines.append(_tag("tr", cells, class_=mark))
    return Html.of([_head(heads, views is not None), _tag("tbody", lines)])


def best_of(case: Case, ran: list[Row]) -> Row | None:
    """The best method that has not seen the truth; None without a truth."""
    if case.truth is None:
        return None
    return next((row for row in ran if row.method != "blurred" and row.how != "oracle"), None)


def _missing(rest: list[Row]) -> Html:
    """The methods that did not run, those with one reason together."""
    words = {"refused": "cannot serve this case", "failed": "ran and failed"}
    together: dict[str, list[str]] = {}
    for row in rest:
        together.setdefault(f"{words.get(row.status, row.status)}: {reason(row)}", []).append(row.label)
    items = [
        _tag("li", [_tag("b", ", ".join(labels)), f", {explanation}"])
        for explanation, labels in together.items()
    ]
    return _fill("missing", items=items) if items else Html("")


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

    def html(self, uris: dict[str, str]) -> Html:
        """The section of the case, with the pictures that `uris` holds."""
        self.groups = {group: rows for group, rows in self.groups.items() if group in uris}
        views = {row.key: group for group, rows in self.groups.items() for row in rows}
        rows = _case_rows(self.case, self.ran, views, f"{self.id}-viewer")
        plots = _plots(self.case, self.ran, self.id)
        cards = [self._card(group, rows, uris) for group, rows in self.groups.items()]
        return _fill(
            "case",
            id=self.id,
            name=self.case.name,
            notes=[_tag("p", note, class_="hint") for note in self.case.notes],
            summary=self._summary(),
            viewer=self._viewer(uris),
            table=_fill("table", label=f"Figures for {self.case.name}", rows=rows),
            missing=_missing(self.rest),
            plots=_fill("plots", figures=plots) if plots else "",
            gallery=_fill("gallery", cards=cards) if cards else "",
        )

    def _summary(self) -> Html:
        best = best_of(self.case, self.ran)
        if self.case.truth is None:
            return _fill("blind")
        if best is None:
            return Html("No method ran on this case.")
        figures = worse = ""
        if best.psnr is not None and math.isfinite(best.psnr) and best.gain is not None:
            than = "above" if best.gain >= 0 else "below"
            figures = f", {best.psnr:.2f} dB, {abs(best.gain):.2f} dB {than} the blurred picture"
        losers = [row.label for row in self.ran if row.method != "blurred" and (row.gain or 0) < 0]
        if losers:
            worse = f" {counted(len(losers), 'method')} made the picture worse: {', '.join(losers)}."
        return _fill("best", label=best.label, figures=figures, worse=worse)

    def _viewer(self, uris: dict[str, str]) -> Html:
        blurred, sharp, psf = (f"{self.id}-{kind}" for kind in ("blurred", "sharp", "psf"))
        if blurred not in uris or psf not in uris:
            return _fill("left out")
        options = {blurred: "blurred"} | ({sharp: "sharp (the truth)"} if sharp in uris else {})
        hidden = [_tag("img", id=name, alt="", src=uris[name], hidden="") for name in options]
        for group, (first, *others) in self.groups.items():
            options[group] = f"{first.label} (and {counted(len(others), 'other')})" if others else first.label
        right = next(iter(self.groups), list(options)[-1])

        def choices(chosen: str) -> list[Html]:
            return [
                _tag("option", text, value=name, selected="" if name == chosen else None)
                for name, text in options.items()
            ]

        return _fill(
            "viewer",
            id=self.id,
            hidden=hidden,
            left=choices(blurred),
            right=choices(right),
            under=uris[right],
            over=uris[blurred],
            limit=f"{residual_scale(self.case):.3g}",
            psf=uris[psf],
            size=" × ".join(map(str, self.case.psf.shape)),
        )

    def _card(self, group: str, rows: list[Row], uris: dict[str, str]) -> Html:
        """The picture of a group in the gallery, and the facts that the viewer shows with it."""
        row, methods = rows[0], ", ".join(row.label for row in rows)
        units = {"psnr": " dB", "gain": " dB against the blurred picture", "ssim": " SSIM"}
        quality = ", ".join(cell(row, name) + unit for name, unit in units.items() if cell(row, name))
        beyond = row.assumes + ("" if row.assumes == self.case.boundary else f", not {self.case.boundary}")
        facts = [("Methods" if len(rows) > 1 else "Method", methods)]
        facts += [("Quality", quality)] if quality else []
        facts += [("Assumes beyond the frame", beyond), (cell(row, "value") or "Parameter", row.setting)]
        facts += [(f"Note on {other.label}", other.note) for other in rows if other.note]
        figures = [
            f", {cell(row, n)} {u}" for n, u in (("psnr", "dB"), ("whiteness", "whiteness")) if cell(row, n)
        ]
        pair = {group: f"Restored by {methods}", f"{group}-residual": "Its residual"}
        return _fill(
            "card",
            id=group,
            facts=_terms(facts),
            pictures=[_tag("img", id=n, alt=alt, src=uris[n]) for n, alt in pair.items() if n in uris],
            names=methods,
            figure=figures[0] if figures else "",
            viewer=f"{self.id}-viewer",
        )


# -- plots -------------------------------------------------------------------------------------


def _axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, 3.6), layout="constrained").add_subplot()


def _figure(ax: Axes, name: str, caption: str, titles: Mapping[str, str] | None = None) -> Html:
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
        svg = svg.replace(f'<g id="{name}-{gid}">', f'<g id="{name}-{gid}">{_tag("title", title)}')
    described = escape(f"{ax.get_ylabel()} against {ax.get_xlabel()}")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{described}"', 1)
    return _tag("figure", [Html(svg), _tag("figcaption", caption)])


def _plots(case: Case, ran: list[Row], name: str) -> Html:
    figures = []
    if case.truth is not None:
        methods = [row for row in ran if row.method != "blurred" and row.how != "oracle"]
        blurred = [row.psnr for row in ran if row.method == "blurred" and row.psnr is not None]
        figures.append(quality_against_time(methods, max(blurred, default=-math.inf), f"{name}-quality"))
    curves = {row.assumes: row.curve for row in reversed(ran) if row.curve}
    for n, (assumed, curve) in enumerate(curves.items()):
        ax, at = _axes(), curve["at"]
        point = curve["x"][at], curve["y"][at]
        ax.loglog(curve["x"], curve["y"])
        ax.plot(*point, "o")
        ax.annotate(f"λ = {curve['lam']:.2g}", point, (6, 6), textcoords="offset points")
        ax.set(xlabel="‖g − Hf‖", ylabel="‖f‖")
        caption = (
            f"L-curve with boundary {assumed}: the norm of the restored picture (upwards) against the norm of its "
            "residual for each λ. The dot is the λ that the rule chose."
        )
        figures.append(_figure(ax, f"{name}-lcurve{n}", caption))
    series = [row for row in ran if sum(r > 0 for _, r in row.history) > 1]
    for start in range(0, len(series), 6):
        ax = _axes()
        for row in series[start : start + 6]:
            ax.semilogy(*zip(*((i, r) for i, r in row.history if r > 0), strict=True), label=row.label)
        ax.set(xlabel="iterations", ylabel="relative residual")
        ax.legend(fontsize="small")
        caption = (
            "Convergence, as the iterative methods reported it: the quantity that they reduce against iterations. "
            "Different methods count different things."
        )
        figures.append(_figure(ax, f"{name}-convergence{start}", caption))
    return Html.of(figures)


def quality_against_time(rows: Iterable[Row], blurred: float, name: str) -> Html:
    """Every method as a point, PSNR over seconds, except those 3 dB below the blurred picture.

    Methods that no other beats in both are named. Empty if fewer than two points remain.
    """
    points = sorted(
        ((row.setup_s or 0) + row.solve_s, row.psnr, row.label)
        for row in rows
        if row.psnr is not None and math.isfinite(row.psnr) and row.solve_s
    )
    shown = [point for point in points if point[1] >= blurred - 3]
    if len(shown) < 2:
        return Html("")
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
    caption = (
        "Quality against time (choosing the parameter apart). Methods that no faster one equals are named; the others "
        "are the small dots (point at one to see its name)."
    )
    caption += f" {counted(left_out, 'method')} far below the blurred picture left out." if left_out else ""
    return _figure(ax, name, caption, titles)
