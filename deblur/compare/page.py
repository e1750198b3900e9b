"""The HTML page of a comparison: tables, pictures and plots in one file that needs no network.

The markup is in ``page.html``, a template of Jinja, which escapes names of files, error messages and other text from
users. The scripts of the page only sort the tables and move the dividing line of the pictures.
"""

from __future__ import annotations

import base64
import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from .cases import Case
from .findings import Row
from .store import as_8_bit, names, residual_scale
from .tables import MARKUP, cell, ranked, shown_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .running import Comparison

#: Largest number of bytes of all pictures in the page, as base64; the text is not included.
PAGE_BYTES = 4_200_000
#: Ways to store the pictures, the best first: format, quality, and the factor by which they are reduced.
LEVELS: tuple[tuple[str, int, int], ...] = (
    ("PNG", 100, 1), ("WEBP", 90, 1), ("WEBP", 75, 1), ("WEBP", 50, 1), ("WEBP", 75, 2), ("WEBP", 50, 2),
    ("WEBP", 50, 4), ("WEBP", 30, 8),
)  # fmt: skip


def page(found: Comparison) -> str:
    """Return the whole page, under 5 MB: pictures are compressed, and then reduced, until they fit."""
    panels = [_panel(found, case, f"case{n}") for n, case in enumerate(found.cases, 1)]
    uris, remark = encode({name: picture for panel in panels for name, picture in panel["pictures"].items()})
    for panel in panels:
        panel["groups"] = {group: rows for group, rows in panel["groups"].items() if group in uris}
        panel["views"] = {row.key: group for group, rows in panel["groups"].items() for row in rows}
    values = {"found": found, "panels": panels, "overview": _overview(found), "uris": uris, "remark": remark}
    return _template().render(values, settings=vars(found.settings), plots=_plots, notebook=False)


def notebook_tables(found: Comparison) -> str:
    """Return only the tables, for a notebook."""
    return _template().render(panels=[_panel(found, case, "") for case in found.cases], notebook=True)


def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"counted": counted, "sortable": _sortable}
    environment.globals |= {"cell": cell, "sort_key": _sort_key, "residual_scale": residual_scale}
    return environment.from_string(MARKUP)


def counted(things: Iterable[Any], noun: str) -> str:
    """Return the number of things with their noun."""
    n = len(list(things))
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _overview(found: Comparison) -> list[tuple[str, list[tuple[float | None, str]]]]:
    """Return the figures of each method over all cases, with their formatted texts, sorted by the mean gain in PSNR."""
    by_method: dict[str, list[Row]] = {}
    for row in found.rows:
        if row.status == "ok" and row.gain is not None:
            by_method.setdefault(row.label, []).append(row)
    lines = []
    for label, rows in by_method.items():
        gains = [row.gain for row in rows if row.gain is not None]
        seconds = [row.solve_s for row in rows if row.solve_s is not None]
        mean, median = statistics.fmean(gains), statistics.median(seconds) if seconds else None
        figures = ((len(rows), "d"), (mean, "+.2f"), (min(gains), "+.2f"), (median, ".3g"))
        lines.append((-mean, label, [(x, "" if x is None else format(x, form)) for x, form in figures]))
    return [(label, cells) for _, label, cells in sorted(lines, key=lambda line: line[0])]


def _sort_key(row: Row, name: str) -> float | str | None:
    """Return the value by which a cell is sorted."""
    if name == "value":
        return None if row.value is None else f"{row.how} {row.parameter} {row.value:024.12f}"
    return math.inf if name in ("psnr", "gain") and row.mse == 0 else getattr(row, name)


def _sortable(value: float | str | None) -> str:
    """Return a sort key as text that JavaScript can read; empty for None."""
    return str(value or "") if value is None or isinstance(value, str) else str(float(value)).replace("inf", "Infinity")


def _panel(found: Comparison, case: Case, name: str) -> dict[str, Any]:
    """Return the data of one case on the page: the rows that ran, the other rows by reason, and the pictures by name.

    "groups" maps the name of a picture to the rows whose pictures look like it.
    """
    ran, rest = ranked(found, case)
    pictures = {f"{name}-blurred": as_8_bit(case.blurred)}
    if case.truth is not None:
        pictures[f"{name}-sharp"] = as_8_bit(case.truth)
    peak = max(float(np.abs(case.psf).max()), 1e-300)
    # A black frame shows the extent of the PSF even if the PSF is flat.
    pictures[f"{name}-psf"] = as_8_bit(np.pad(case.psf / peak, 2))
    groups: dict[str, list[Row]] = {}
    for row in ran:
        restored, residual = (found.pictures.get(picture) for picture in names(row.key))
        if restored is None or row.method == "blurred":
            continue
        group = next((known for known in groups if alike(pictures[known], restored)), f"{name}-{len(groups) + 1}")
        groups.setdefault(group, []).append(row)
        pictures.setdefault(group, restored)
        if residual is not None:
            pictures.setdefault(f"{group}-residual", residual)
    words, missing = {"refused": "cannot be used for this case", "failed": "ran and failed"}, dict[str, list[str]]()
    for row in rest:
        missing.setdefault(f"{words.get(row.status, row.status)}: {row.reason}", []).append(row.label)
    fair = (row for row in ran if row.method != "blurred" and row.how != "oracle")
    best = next(fair, None) if case.truth is not None else None
    return {
        "id": name, "case": case, "ran": ran, "missing": missing, "best": best, "columns": shown_columns(ran),
        "pictures": pictures, "groups": groups,
    }  # fmt: skip


# -- pictures ----------------------------------------------------------------------------------


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two pictures differ by at most one grey level of 255."""
    return a.shape == b.shape and bool((np.abs(a.astype(np.int16) - b.astype(np.int16)) <= 1).all())


def encode(pictures: dict[str, np.ndarray]) -> tuple[dict[str, str], str]:
    """Return the pictures as data URIs within `PAGE_BYTES`, and a sentence about their compression."""
    for kind, quality, factor in LEVELS:
        uris: dict[str, str] = {}
        room = PAGE_BYTES
        for name, picture in pictures.items():
            uri = _data_uri(picture, kind, quality, 1 if name.endswith("-psf") else factor)
            room -= len(uri)
            if room < 0:
                break
            uris[name] = uri
        else:
            how = "without loss" if kind == "PNG" else f"as {kind} of quality {quality}"
            how += f", reduced {factor} times" if factor > 1 else ""
            break
    else:
        how = f"with loss; {len(pictures) - len(uris)} of the last ones are left out, as the page cannot hold them"
    return uris, (
        f"The pictures in this page are rounded to 8 bits and stored {how}; the figures come from the unrounded ones."
    )


def _data_uri(picture: np.ndarray, kind: str, quality: int, factor: int) -> str:
    """Return a picture as a data URI."""
    from PIL import Image

    shown = Image.fromarray(picture)
    if factor > 1:
        shown = shown.resize([max(1, n // factor) for n in shown.size], Image.Resampling.LANCZOS)
    out = io.BytesIO()
    shown.save(out, kind, quality=quality)  # PNG ignores the quality
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


# -- plots -------------------------------------------------------------------------------------


def _axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, 3.6), layout="constrained").add_subplot()


def _figure(ax: Axes, name: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the figure as inline SVG in the colours of the page; `titles` are tooltips of the artists with
    these gids.
    """
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
    """Return a plot of PSNR over seconds with one point per method, except for methods 3 dB below the blurred picture.

    A method gets a label if no other method is better in both. Without two points there is no plot.
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
    return [{"svg": _figure(ax, name, titles), "left_out": counted(range(left_out), "method") if left_out else ""}]
