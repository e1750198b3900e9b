"""One HTML page of a comparison: tables, pictures and plots in a single file that needs no network.

The page is written as plain HTML that can be read without scripts; the
scripts in ``page.html`` only sort the tables and move the dividing line of
the pictures. Whatever comes from a user (names of files, messages of errors)
is escaped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np

from .cases import Case
from .findings import Findings, Row
from .html_tables import best_of, case_table, counted, not_run, overview, scroll_open
from .pictures import alike, as_8_bit, encode, names, residual_scale
from .svg import plot, quality_against_time
from .tables import COLUMNS, cell, ranked


def page(found: Findings) -> str:
    """The whole page, under 5 MB: pictures are compressed, then reduced, until they fit."""
    panels = [_Panel(found, case, n) for n, case in enumerate(found.cases)]
    uris, remark = encode({name: picture for p in panels for name, picture in p.pictures.items()})
    body = [
        "<header><h1>Deblurring methods compared</h1>",
        *_summary(found, panels),
        "</header>",
        '<main id="results">',
        *(part for panel in panels for part in panel.html(uris)),
        *_explanations(remark),
        "</main>",
        *_record(found),
    ]
    template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return template.replace("<!--BODY-->", "\n".join(body))


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _summary(found: Findings, panels: list[_Panel]) -> list[str]:
    out = []
    if not found.complete:
        out.append('<p class="note">The run was interrupted; this page shows the rows that were done.</p>')
    methods = {row.label for row in found.rows if row.method != "blurred"}
    ran = {row.label for row in found.rows if row.method != "blurred" and row.status == "ok"}
    out.append(
        f"<p>{counted(len(methods), 'method')} on {counted(len(panels), 'blurred picture')}; "
        f"{len(ran)} of them ran. No method has seen the sharp picture"
        + (", unless its row says “oracle”" if any(row.how == "oracle" for row in found.rows) else "")
        + '. <a href="#columns">What the figures mean</a> and <a href="#machine">how and where they were '
        "measured</a> is said below.</p>"
    )
    if len(panels) > 1:
        out.append('<nav aria-label="Cases"><ul>')
        out += [f'<li><a href="#{p.id}">{escape(p.case.name)}</a></li>' for p in panels]
        out.append("</ul></nav>")
        out += overview(found)
    return out


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
        return first.label if not others else f"{first.label} (and {counted(len(others), 'other')})"


@dataclass
class _Panel:
    """One case of the page."""

    found: Findings
    case: Case
    number: int
    groups: list[_Group] = field(default_factory=list)
    pictures: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.id = f"case{self.number + 1}"
        self.viewer = f"{self.id}-viewer"
        self.ran, self.rest = ranked(self.found, self.case)
        for row in self.ran:
            restored, residual = (self.found.pictures.get(name) for name in names(row.key))
            if restored is None or row.method == "blurred":
                continue
            same = next((g for g in self.groups if alike(g.picture, restored)), None)
            if same is not None:
                same.rows.append(row)
                continue
            self.groups.append(_Group(f"{self.id}-{len(self.groups) + 1}", [row], restored, residual))
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
            scroll_open(f"Figures for {case.name}"),
            *case_table(case, self.ran, views, self.viewer),
            "</div>",
            *not_run(self.rest),
            *self._plots(),
            *self._gallery(uris),
            "</section>",
        ]

    def _verdict(self) -> str:
        best = best_of(self.case, self.ran)
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
                f" {counted(len(worse), 'method')} made the picture worse than it was: "
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
                        f" {counted(left_out, 'method')} far below the blurred picture left out."
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


def _record(found: Findings) -> list[str]:
    out = ['<footer><h2 id="machine">Machine, versions and settings</h2>']
    for n, session in enumerate(found.sessions):
        count = sum(row.session == n for row in found.rows)
        if not count:
            continue
        packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        threads = ", ".join(f"{name}={value}" for name, value in session["thread_limits"].items())
        commit = session["commit"]
        changed = " with changes not committed" if session["uncommitted_changes"] else ""
        out.append(
            f"<p>{counted(count, 'row')} measured {escape(session['date'])} on {escape(session['cpu'])}, "
            f"{session['cpus_usable']} CPUs usable, load average {session['load_average']} at the start"
            f"{escape(f', {threads}' if threads else '')}; {escape(session['system'])}, "
            f"BLAS {escape(session['blas'])}, Python {escape(session['python'])}, deblur {escape(session['deblur'])}"
            f"{f' (commit {escape(commit[:12])}{changed})' if commit else ''}, {escape(packages)}.</p>"
        )
    settings = ", ".join(f"{name} {value}" for name, value in vars(found.settings).items())
    return [*out, f"<p>Settings: {escape(settings)}.</p></footer>"]
