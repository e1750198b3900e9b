"""One HTML page of a comparison: tables, pictures and plots in a single file that needs no network.

The page is written as plain HTML that can be read without scripts; the
scripts in ``report.html`` only sort the tables and move the dividing line of
the pictures. Whatever comes from a user (names of files, messages of errors)
is escaped.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Case
from .comparison import (
    COLUMNS,
    Comparison,
    as_8_bit,
    cell,
    ranked,
    residual_scale,
    shown_columns,
)
from .judge import Row

#: Bytes that the pictures may take in the page, as base64; the text comes on top.
_PICTURE_BYTES = 4_200_000
#: Ways to store the pictures, the best first: format, quality, and the factor they are reduced by.
_LEVELS: tuple[tuple[str, int, int], ...] = (
    ("PNG", 100, 1), ("WEBP", 90, 1), ("WEBP", 75, 1), ("WEBP", 50, 1), ("WEBP", 75, 2), ("WEBP", 50, 2),
    ("WEBP", 50, 4), ("WEBP", 30, 8),
)  # fmt: skip
_REDUCED = {2: "half", 4: "a quarter", 8: "an eighth"}
_TEXT = ("method", "assumes", "value")
_HIGHER_IS_BETTER = ("psnr", "gain", "ssim")


def page(comparison: Comparison) -> str:
    """The whole page.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    str
        HTML, under 5 MB: pictures are compressed, then reduced, until they fit.
    """
    panels = [_Panel(comparison, case, n) for n, case in enumerate(comparison.cases)]
    uris, remark = _encode({name: picture for p in panels for name, picture in p.pictures.items()})
    body = [
        "<header><h1>Deblurring methods compared</h1>",
        *_summary(comparison, panels),
        "</header>",
        '<main id="results">',
        *(part for panel in panels for part in panel.html(uris)),
        *_explanations(remark),
        "</main>",
        *_record(comparison),
    ]
    template = (Path(__file__).parent / "report.html").read_text(encoding="utf-8")
    return template.replace("<!--BODY-->", "\n".join(body))


def table_html(comparison: Comparison) -> str:
    """The tables alone, for a notebook."""
    out = []
    for case in comparison.cases:
        ran, rest = ranked(comparison, case)
        out += [f"<h4>{escape(case.name)}</h4>", *_table(case, ran, {}, "", sortable=False), *_not_run(rest)]
    return "\n".join(out)


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _summary(comparison: Comparison, panels: list[_Panel]) -> list[str]:
    out = []
    if not comparison.complete:
        out.append('<p class="note">The run was interrupted; this page shows the rows that were done.</p>')
    methods = {row.label for row in comparison.rows if row.method != "blurred"}
    ran = {row.label for row in comparison.rows if row.method != "blurred" and row.status == "ok"}
    out.append(
        f"<p>{_count(len(methods), 'method')} on {_count(len(panels), 'blurred picture')}; "
        f"{len(ran)} of them ran. No method has seen the sharp picture"
        + (", unless its row says “oracle”" if any(row.how == "oracle" for row in comparison.rows) else "")
        + '. <a href="#columns">What the figures mean</a> and <a href="#machine">how and where they were '
        "measured</a> is said below.</p>"
    )
    if len(panels) > 1:
        out.append('<nav aria-label="Cases"><ul>')
        out += [f'<li><a href="#{p.id}">{escape(p.case.name)}</a></li>' for p in panels]
        out.append("</ul></nav>")
        out += _overview(comparison)
    return out


def _overview(comparison: Comparison) -> list[str]:
    """Each method over all cases."""
    rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.status == "ok" and row.gain is not None:
            rows.setdefault(row.label, []).append(row)
    if not rows:
        return []
    heads = [
        ("Method", "text", "ascending"), ("Cases", "number", "descending"), ("Mean gain dB", "number", "descending"),
        ("Worst gain dB", "number", "descending"), ("Median solve s", "number", "ascending"),
    ]  # fmt: skip
    out = ["<h2>All cases together</h2>", _scroll_open("All cases together"), '<table class="sortable">']
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


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _scroll_open(label: str) -> str:
    # A region that scrolls must be reachable by keyboard.
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def _head(heads: Sequence[tuple[str, str, str]], titles: Sequence[str] = (), sortable: bool = True) -> str:
    cells = []
    for i, (text, kind, first) in enumerate(heads):
        title = f' title="{escape(titles[i])}"' if titles else ""
        inner = f'<button type="button"{title}>{escape(text)}</button>' if sortable else escape(text)
        cells.append(f'<th scope="col" class="{kind}" data-kind="{kind}" data-first="{first}">{inner}</th>')
    return "<thead><tr>" + "".join(cells) + "</tr></thead>"


def _table(
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
    best = _best(case, ran)
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


def _best(case: Case, ran: list[Row]) -> Row | None:
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


def _not_run(rest: list[Row]) -> list[str]:
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
        reason = row.reason.removeprefix(f"{row.status}: ")
        together.setdefault((row.status, reason), []).append(row.label)
    for (status, reason), labels in together.items():
        names = ", ".join(f"<b>{escape(label)}</b>" for label in labels)
        out.append(f"<li>{names}, {words[status]}: {escape(reason)}</li>")
    return [*out, "</ul>"]


@dataclass
class _Group:
    """Methods whose pictures cannot be told apart, shown once."""

    id: str
    rows: list[Row]
    picture: np.ndarray
    residual: np.ndarray | None

    @property
    def name(self) -> str:
        first, *others = self.rows
        return first.label if not others else f"{first.label} (and {_count(len(others), 'other')})"


@dataclass
class _Panel:
    """One case of the page."""

    comparison: Comparison
    case: Case
    number: int
    groups: list[_Group] = field(default_factory=list)
    pictures: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.id = f"case{self.number + 1}"
        self.viewer = f"{self.id}-viewer"
        self.ran, self.rest = ranked(self.comparison, self.case)
        for row in self.ran:
            picture = self.comparison.pictures.get(f"{row.key}-restored")
            if picture is None or row.method == "blurred":
                continue
            same = next((g for g in self.groups if _alike(g.picture, picture)), None)
            if same is not None:
                same.rows.append(row)
                continue
            residual = self.comparison.pictures.get(f"{row.key}-residual")
            self.groups.append(_Group(f"{self.id}-{len(self.groups) + 1}", [row], picture, residual))
        self.pictures[f"{self.id}-blurred"] = as_8_bit(self.case.blurred)
        if self.case.truth is not None:
            self.pictures[f"{self.id}-sharp"] = as_8_bit(self.case.truth)
        psf = self.case.psf
        framed = np.pad(psf / max(float(np.abs(psf).max()), 1e-300), 2)  # an even blur is white all over
        self.pictures[f"{self.id}-psf"] = as_8_bit(framed)
        for group in self.groups:
            self.pictures[group.id] = group.picture
            if group.residual is not None:
                self.pictures[f"{group.id}-residual"] = group.residual

    def html(self, uris: dict[str, str]) -> list[str]:
        case = self.case
        views = {row.key: group.id for group in self.groups for row in group.rows if group.id in uris}
        return [
            f'<section id="{self.id}" aria-labelledby="{self.id}-title">',
            f'<h2 id="{self.id}-title">{escape(case.name)}</h2>',
            *(f'<p class="hint">{escape(note)}</p>' for note in case.notes),
            f"<p>{self._verdict()}</p>",
            *self._viewer_html(uris),
            "<h3>Figures</h3>",
            '<p class="hint">Click a heading to sort, a method to see its picture. '
            '<a href="#columns">What the columns mean</a>.</p>',
            _scroll_open(f"Figures for {case.name}"),
            *_table(case, self.ran, views, self.viewer),
            "</div>",
            *_not_run(self.rest),
            *self._plots(),
            *self._gallery(uris),
            "</section>",
        ]

    def _verdict(self) -> str:
        best = _best(self.case, self.ran)
        methods = [row for row in self.ran if row.method != "blurred"]
        if self.case.truth is None:
            return (
                "This picture came blurred, so there is no sharp one to compare with: no MSE, PSNR or SSIM. Judge by "
                "the pictures; a small misfit with a whiteness near 0 says that what is left over looks like noise."
            )
        if best is None:
            return "No method ran on this case."
        words = f"Best without knowing the truth: <b>{escape(best.label)}</b>"
        if best.psnr is not None and math.isfinite(best.psnr) and best.gain is not None:
            than = "above" if best.gain >= 0 else "below"
            words += f", {best.psnr:.2f} dB, {abs(best.gain):.2f} dB {than} the blurred picture"
        words += "."
        worse = [row for row in methods if row.gain is not None and row.gain < 0]
        if worse:
            words += (
                f" {_count(len(worse), 'method')} made the picture worse than it was: "
                + ", ".join(escape(row.label) for row in worse)
                + "."
            )
        return words

    def _viewer_html(self, uris: dict[str, str]) -> list[str]:
        if f"{self.id}-blurred" not in uris or f"{self.id}-psf" not in uris:
            return ['<p class="note">The pictures of this case did not fit into the page.</p>']
        groups = [group for group in self.groups if group.id in uris]
        options = [(f"{self.id}-blurred", "blurred")]
        if f"{self.id}-sharp" in uris:
            options.append((f"{self.id}-sharp", "sharp (the truth)"))
        options += [(group.id, group.name) for group in groups]
        shown = groups[0].id if groups else options[-1][0]

        def select(label: str, chosen: str) -> str:
            inner = "".join(
                f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
                for value, text in options
            )
            return f'<label>{label} <select autocomplete="off">{inner}</select></label>'

        hidden = "".join(
            f'<img id="{name}" alt="" src="{uris[name]}" hidden>'
            for name in (f"{self.id}-blurred", f"{self.id}-sharp")
            if name in uris
        )
        first = uris[f"{self.id}-blurred"]
        limit = residual_scale(self.case)
        return [
            hidden,
            f'<div class="viewer" id="{self.viewer}"><div>',
            f'<div class="picks">{select("Left of the line", f"{self.id}-blurred")}'
            f"{select('Right of the line', shown)}</div>",
            '<div class="stage">',
            f'<img class="under" alt="" src="{uris.get(shown, first)}"><img class="over" alt="" src="{first}">',
            '<div class="line"></div>',
            '<input type="range" min="0" max="100" value="50" autocomplete="off" '
            'aria-label="Dividing line between the two pictures">',
            "</div>",
            '<div class="sides"><span class="left-name">◂ blurred</span><span class="right-name"></span></div>',
            '<p class="hint">Drag the line, or use the arrow keys, Home and End when it has the focus.</p>',
            '</div><div class="aside"><div class="pair">',
            '<figure class="rest" hidden><img alt=""><figcaption>Residual of <b></b>: the blurred picture less the '
            f"restored one blurred again. Grey is zero; black and white are ∓{limit:.3g}. Good is noise without "
            "traces of the picture.</figcaption></figure>",
            f'<figure><img alt="Point spread function" src="{uris[f"{self.id}-psf"]}"><figcaption>PSF, '
            f"{self.case.psf.shape[0]} × {self.case.psf.shape[1]} pixels, enlarged, in a "
            "black frame</figcaption></figure>",
            '</div><div class="facts" hidden></div></div></div>',
        ]

    def _facts(self, group: _Group) -> str:
        """What the viewer says of the picture at the right of its line."""
        row = group.rows[0]
        quality = [
            f"{cell(row, name)}{unit}"
            for name, unit in (
                ("psnr", " dB"),
                ("gain", " dB against the blurred picture"),
                ("ssim", " SSIM"),
            )
            if cell(row, name)
        ]
        facts = [("Methods" if len(group.rows) > 1 else "Method", ", ".join(r.label for r in group.rows))]
        if quality:
            facts.append(("Quality", ", ".join(quality)))
        beyond = row.assumes + ("" if row.assumes == self.case.boundary else f", not {self.case.boundary}")
        facts.append(("Assumes beyond the frame", beyond))
        facts.append((cell(row, "value") or "Parameter", row.setting))
        facts += [(f"Note on {r.label}", r.note) for r in group.rows if r.note]
        inner = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
        return f'<div id="{group.id}-facts" hidden><dl>{inner}</dl></div>'

    def _gallery(self, uris: dict[str, str]) -> list[str]:
        groups = [group for group in self.groups if group.id in uris]
        if not groups:
            return []  # a group's picture comes after the blurred one and the PSF
        out = [
            "<h3>Every picture</h3>",
            '<p class="hint">Restored at the left, residual at the right. Methods whose pictures differ by no more '
            "than one grey level in 255 are shown once.</p>",
            '<div class="cards">',
        ]
        for group in groups:
            row = group.rows[0]
            figure = next(
                (
                    f"{cell(row, n)} {unit}"
                    for n, unit in (("psnr", "dB"), ("whiteness", "whiteness"))
                    if cell(row, n)
                ),
                "",
            )
            names = escape(", ".join(r.label for r in group.rows))
            label = f'aria-label="Compare {names} above"'
            pair = f'<img id="{group.id}" alt="Restored by {names}" src="{uris[group.id]}">'
            if f"{group.id}-residual" in uris:
                pair += (
                    f'<img id="{group.id}-residual" alt="Its residual" src="{uris[f"{group.id}-residual"]}">'
                )
            out.append(self._facts(group))
            out.append(
                f'<figure class="card"><div class="pair">{pair}</div><figcaption><b>{names}</b>'
                f'{", " + figure if figure else ""}<br><button type="button" data-viewer="{self.viewer}" '
                f'data-view="{group.id}" {label}>Compare above</button></figcaption></figure>'
            )
        return [*out, "</div>"]

    def _plots(self) -> list[str]:
        curves: dict[str, Row] = {}
        for row in self.ran:
            if row.curve:
                curves.setdefault(row.assumes, row)
        out = []
        if self.case.truth is not None:
            blurred = next((row.psnr for row in self.ran if row.method == "blurred"), None)
            methods = [row for row in self.ran if row.method != "blurred" and row.how != "oracle"]
            svg, left_out = quality_against_time(methods, -math.inf if blurred is None else blurred)
            if svg:
                out.append(
                    f"<figure>{svg}<figcaption>Quality against time (choosing the parameter apart). Named are "
                    "the methods that no faster one equals; the others are the small dots (point at one to see "
                    "its name)."
                    + (
                        f" {_count(left_out, 'method')} far below the blurred picture left out."
                        if left_out
                        else ""
                    )
                    + "</figcaption></figure>"
                )
        for assumed, row in curves.items():
            curve = row.curve
            assert curve is not None
            mark = (curve["x"][curve["at"]], curve["y"][curve["at"]], f"λ = {curve['lam']:.2g}")
            svg = plot([(assumed, curve["x"], curve["y"])], "‖g − Hf‖", "‖f‖", mark=mark, log_x=True)
            out.append(
                f"<figure>{svg}<figcaption>L-curve with boundary {escape(assumed)}: how much of the picture's energy "
                "(upwards) each λ pays for how close a fit (to the left). The dot is the λ that the rule chose."
                "</figcaption></figure>"
            )
        series = [
            (row.label, [float(i) for i, _ in row.history], [r for _, r in row.history])
            for row in self.ran
            if sum(r > 0 for _, r in row.history) > 1
        ]
        for start in range(0, len(series), 6):
            svg = plot(series[start : start + 6], "iterations", "relative residual")
            out.append(
                f"<figure>{svg}<figcaption>Convergence, as the iterative methods reported it: what they make small, "
                "against iterations. Different methods count different things.</figcaption></figure>"
            )
        return ["<h3>Curves</h3>", '<div class="plots">', *out, "</div>"] if out else []


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((np.abs(a.astype(np.int16) - b.astype(np.int16)) <= 1).all())


def _explanations(remark: str) -> list[str]:
    items = "".join(f"<dt>{escape(heading)}</dt><dd>{escape(text)}</dd>" for _, heading, text in COLUMNS)
    return [
        '<section aria-labelledby="columns"><h2 id="columns">What the columns mean</h2>',
        f"<dl>{items}</dl>",
        "<h3>How it was judged</h3>",
        "<ul><li>Every method is given the same blurred picture and PSF, and never the sharp picture.</li>"
        "<li>Its first answer is checked (right size, no NaN, the input untouched; for linear methods the equations "
        "are checked with the blur itself) before anything is timed.</li>"
        "<li>That first run is the warm-up; the timed ones follow, and memory is measured in a run of its own.</li>"
        "<li>A method that cannot assume what the case says of the world beyond the frame is run with what it can "
        "assume, and its row says so, or is shown as refused.</li>"
        "<li>A method that fails, refuses, is not installed or takes too long keeps its place with the reason.</li>"
        f"<li>{escape(remark)}</li></ul></section>",
    ]


def _record(comparison: Comparison) -> list[str]:
    out = ['<footer><h2 id="machine">Machine, versions and settings</h2>']
    for n, session in enumerate(comparison.sessions):
        count = sum(row.session == n for row in comparison.rows)
        if not count:
            continue
        packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        threads = ", ".join(f"{name}={value}" for name, value in session["thread_limits"].items())
        commit = session["commit"]
        changed = " with changes not committed" if session["uncommitted_changes"] else ""
        out.append(
            f"<p>{_count(count, 'row')} measured {escape(session['date'])} on {escape(session['cpu'])}, "
            f"{session['cpus_usable']} CPUs usable, load average {session['load_average']} at the start"
            f"{escape(f', {threads}' if threads else '')}; {escape(session['system'])}, "
            f"BLAS {escape(session['blas'])}, Python {escape(session['python'])}, deblur {escape(session['deblur'])}"
            f"{f' (commit {escape(commit[:12])}{changed})' if commit else ''}, {escape(packages)}.</p>"
        )
    settings = ", ".join(f"{name} {value}" for name, value in vars(comparison.settings).items())
    return [*out, f"<p>Settings: {escape(settings)}.</p></footer>"]


# ---------------------------------------------------------------------------------------------
# Pictures
# ---------------------------------------------------------------------------------------------


def _encode(pictures: dict[str, np.ndarray]) -> tuple[dict[str, str], str]:
    """Data addresses of the pictures within the budget, and a sentence on how they are stored."""
    from PIL import features

    lossy = "WEBP" if features.check("webp") else "JPEG"
    for kind, quality, shrink in _LEVELS:
        form = "PNG" if kind == "PNG" else lossy
        uris: dict[str, str] = {}
        total = 0
        for name, picture in pictures.items():
            uris[name] = _data_uri(picture, form, quality, 1 if name.endswith("-psf") else shrink)
            total += len(uris[name])
            # Hopeless after a few pictures is hopeless; the next level is tried.
            if total > _PICTURE_BYTES or (
                len(uris) >= 4 and total / len(uris) * len(pictures) > 2 * _PICTURE_BYTES
            ):
                break
        else:
            how = "without loss" if form == "PNG" else f"as {form} of quality {quality}"
            small = f", {_REDUCED[shrink]} as wide and high" if shrink > 1 else ""
            return uris, (
                f"The pictures in this page are rounded to 8 bits and stored {how}{small}; the figures come from the "
                "unrounded ones."
            )
    kept: dict[str, str] = {}
    for name, picture in pictures.items():
        uri = _data_uri(picture, form, quality, shrink)
        if sum(map(len, kept.values())) + len(uri) > _PICTURE_BYTES:
            break
        kept[name] = uri
    return kept, (
        f"There are more pictures than this page can hold: {len(pictures) - len(kept)} of the last ones are left out; "
        "the figures come from the unrounded ones."
    )


def _data_uri(picture: np.ndarray, form: str, quality: int, shrink: int) -> str:
    from PIL import Image

    shown = Image.fromarray(picture)
    if shrink > 1:
        shown = shown.resize([max(1, n // shrink) for n in shown.size], Image.Resampling.LANCZOS)
    out = io.BytesIO()
    options: dict[str, Any] = {} if form == "PNG" else {"quality": quality}
    shown.save(out, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


# ---------------------------------------------------------------------------------------------
# Plots
# ---------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 44
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "4 2", "1 2")


def plot(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    x_label: str,
    y_label: str,
    *,
    mark: tuple[float, float, str] | None = None,
    log_x: bool = False,
) -> str:
    """A line plot as inline SVG, its y axis logarithmic, in the colours of the page.

    Parameters
    ----------
    series : sequence of (name, x, y)
        At most six; points that a logarithm cannot show are left out.
    x_label, y_label : str
    mark : (x, y, text), optional
        A point to be marked.
    log_x : bool
    """
    shown = [
        (name, [(x, y) for x, y in zip(xs, ys, strict=True) if y > 0 and (x > 0 or not log_x)])
        for name, xs, ys in series
    ]
    x_axis = _Axis([x for _, points in shown for x, _ in points], _LEFT, _WIDTH - _RIGHT, log_x)
    y_axis = _Axis([y for _, points in shown for _, y in points], _HEIGHT - _BOTTOM, _TOP, True)
    names = ", ".join(name for name, _ in shown)
    out = _frame_svg(
        x_axis, y_axis, x_label, y_label, f"{y_label} against {x_label}: {names}", 16 * len(shown)
    )
    for n, (name, points) in enumerate(shown):
        path = "M" + "L".join(f"{x_axis(x):.1f} {y_axis(y):.1f}" for x, y in points)
        dash = f' stroke-dasharray="{_DASHES[n % 6]}"' if _DASHES[n % 6] else ""
        out.append(f'<g class="s{n % 6}"><path class="series"{dash} d="{path}"/>')
        if len(shown) > 1:
            line = _HEIGHT + 16 * n + 8
            out.append(f'<path class="series"{dash} d="M{_LEFT} {line - 4}h34"/>')
            out.append(f'<text class="name" x="{_LEFT + 42}" y="{line}">{escape(name)}</text>')
        out.append("</g>")
    if mark is not None:
        x, y = x_axis(mark[0]), y_axis(mark[1])
        right = x > 0.7 * _WIDTH  # the text goes where there is room
        at = f'x="{x + (-9 if right else 9):.1f}" y="{max(y - 7, _TOP + 12):.1f}"'
        out.append(f'<g class="s1"><circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>')
        out.append(f'<text {at} text-anchor="{"end" if right else "start"}">{escape(mark[2])}</text>')
    return "".join(out) + "</svg>"


def _frame_svg(
    x_axis: _Axis, y_axis: _Axis, x_label: str, y_label: str, label: str, below: int = 0
) -> list[str]:
    """The opening of a plot: its axes, ticks and their labels, with so many pixels left below them."""
    out = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + below}" role="img" aria-label="{escape(label)}">']
    for value, text in x_axis.ticks():
        x = x_axis(value)
        out.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        out.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{text}</text>')
    for value, text in y_axis.ticks():
        y = y_axis(value)
        out.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        out.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    out.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>')
    centre, middle = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2
    out.append(f'<text x="{centre}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 13 {middle})"'
    out.append(f'<text x="13" y="{middle}" text-anchor="middle" {turned}>{escape(y_label)}</text>')
    return out


def quality_against_time(rows: Sequence[Row], blurred: float) -> tuple[str, int]:
    """Every method as a point, PSNR over seconds; those that no other beats in both are named.

    Parameters
    ----------
    rows : sequence of Row
        Rows with a PSNR and times.
    blurred : float
        PSNR of the blurred picture; what lies more than 3 dB below it is left out.

    Returns
    -------
    svg : str
        Empty if fewer than two points remain.
    left_out : int
    """
    points = sorted(
        ((row.setup_s or 0) + row.solve_s, row.psnr, row.label)
        for row in rows
        if row.psnr is not None and math.isfinite(row.psnr) and row.solve_s
    )
    shown = [point for point in points if point[1] >= blurred - 3]
    if len(shown) < 2:
        return "", len(points) - len(shown)
    x_axis = _Axis([0.7 * shown[0][0], *(1.4 * x for x, _, _ in shown)], _LEFT, _WIDTH - _RIGHT, True)
    values = [blurred, *(y for _, y, _ in shown)]
    room = 0.06 * (max(values) - min(values))
    y_axis = _Axis([min(values) - room, max(values) + 2 * room], _HEIGHT - _BOTTOM, _TOP, False)
    out = _frame_svg(
        x_axis, y_axis, "seconds, set-up and solve", "PSNR dB", "PSNR against seconds of each method"
    )
    level = y_axis(blurred)
    out.append(f'<path class="axis" stroke-dasharray="4 3" d="M{_LEFT} {level:.1f}H{_WIDTH - _RIGHT}"/>')
    out.append(f'<text x="{_WIDTH - _RIGHT - 4}" y="{level - 4:.1f}" text-anchor="end">blurred</text>')
    best, lowest = -math.inf, math.inf
    for seconds, psnr, label in shown:
        x, y = x_axis(seconds), y_axis(psnr)
        unbeaten = psnr > best + 0.005  # all that came before were faster
        colour, radius = ("s0", 5) if unbeaten else ("s1", 3.5)
        out.append(
            f'<g class="{colour}"><circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
            f"<title>{escape(label)}: {psnr:.2f} dB, {seconds:.3g} s</title></circle></g>"
        )
        if unbeaten:
            best = psnr
            right = x > 0.6 * _WIDTH
            height = min(y - 8, lowest - 13)  # above the name before it
            lowest = height
            out.append(
                f'<text x="{x + (4 if right else -4):.1f}" y="{max(height, _TOP + 9):.1f}" '
                f'text-anchor="{"end" if right else "start"}">{escape(label)}</text>'
            )
    return "".join(out) + "</svg>", len(points) - len(shown)


class _Axis:
    """Values to pixels."""

    def __init__(self, values: Iterable[float], start: float, end: float, log: bool) -> None:
        self.log, self.start, self.end = log, start, end
        numbers = [self._scale(v) for v in values] or [0.0, 1.0]
        self.low, self.high = min(numbers), max(numbers)
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.5, self.high + 0.5

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        return self.start + (self._scale(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """At most six round values with their texts."""
        span = self.high - self.low
        if self.log and span >= 1.5:
            step = math.ceil(span / 5)
            exponents = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1, step)
            return [(10.0**e, f'10<tspan dy="-5" font-size="9">{e}</tspan>') for e in exponents]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        step = 10 ** math.floor(math.log10((high - low) / 3))
        step *= next(f for f in (5, 2, 1) if (high - low) / (f * step) >= 2)
        first = math.ceil(low / step - 1e-9)
        return [(k * step, f"{k * step:.4g}") for k in range(first, math.floor(high / step + 1e-9) + 1)]
