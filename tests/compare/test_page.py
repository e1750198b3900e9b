"""The HTML page of a comparison: by its text, and rendered in a real browser."""

import base64
import io
import json
import re
from contextlib import closing
from html import unescape
from html.parser import HTMLParser

import browser
import imageio.v3 as iio
import numpy as np
import pytest
import scipy.ndimage

from deblur import compare
from deblur.compare import Comparison, Row, Settings, make_cases, tables
from deblur.compare.page import LEVELS, encode, quality_against_time
from deblur.compare.store import as_8_bit


class Page(HTMLParser):
    """Checks that tags nest, and gathers attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in {"meta", "img", "input", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def found():
    """Two cases: grey with a truth, and one row of every kind."""
    picture = scipy.ndimage.gaussian_filter(np.random.default_rng(11).random((60, 52)), 1.5)
    picture = (picture - picture.min()) / np.ptp(picture)
    own, peers = ["auto", "pcg", "kronecker", "fft"], ["skimage-wiener", "skimage-richardson-lucy"]
    names = [*own, *peers, "trips-hybrid-lsqr"]
    return compare.run(
        {"<b>mine</b>.png": picture}, "gaussian:5,1", 0.01, ["unknown", "periodic"], names, repeats=1, memory=False,
        lam=1e-2, oracle=True, other_boundary="own",
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    found.to_html(path)
    return path


@pytest.fixture
def text(page):
    return page.read_text()


# ------------------------------------------------------------------------------------- the text


def test_page_is_whole_and_needs_nothing(text):
    parsed = Page(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    for tag, attributes in parsed.tags:
        assert tag not in ("link", "iframe", "object", "embed")
        assert not (tag == "script" and "src" in attributes)
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/", "#"))
            if value and value.startswith("#"):
                assert value[1:] in parsed.ids
        for name in ("data-view", "data-viewer", "aria-labelledby"):
            assert name not in attributes or attributes[name] in parsed.ids
    assert re.search(r"url\((?!#)", text) is None
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_what_users_write_is_text_and_never_markup(found, monkeypatch):
    evil = '<script>alert("1")</script>'
    (case,) = make_cases({evil: np.ones((20, 20))}, "box:3")
    rows = [
        Row("k1", case.name, case.key, evil, evil, "zero", status="failed", reason=evil),
        Row("k2", case.name, case.key, evil + "2", "", evil, parameter=evil, how="rule", setting=evil, value=1.0,
            mse=1.0, note=evil, history=[(1, 1.0), (2, 0.5)]),
    ]  # fmt: skip
    sessions = [{**found.sessions[0], "cpu": evil}]
    pictures = {"k2-restored": np.zeros((20, 20), np.uint8)}
    made = Comparison(rows, [case], Settings(), sessions, pictures=pictures)
    text = made.to_html()
    assert "alert" in text
    assert "<script>alert" not in text
    assert sum(tag == "script" for tag, _ in Page(text).tags) == 1
    assert "<script>alert" not in made._repr_html_()


def test_every_row_is_on_the_page_with_its_reason(found, text):
    for row in found.rows:
        assert row.label in text
        if row.status != "ok":
            assert row.reason in unescape(text)
    assert "gaussian noise 0.01, boundary periodic" in text
    for *_, heading, meaning in tables.COLUMNS:
        assert heading in text
        assert meaning in unescape(text)
    for session in found.sessions:
        assert session["packages"]["numpy"] in text
    assert "&lt;b&gt;mine&lt;/b&gt;.png" in text


def test_page_stays_below_5_mb(rng):
    cases = make_cases({str(i): np.roll(rng.random((400, 400)), i) for i in range(4)}, "box:3")
    rows, pictures = [], {}
    for case in cases:
        for n in range(3):
            key = f"{case.key}{n}"
            rows.append(Row(key, case.name, case.key, f"m{n}", "", "zero", mse=0.1 * n, psnr=1.0))
            for kind in ("restored", "residual"):
                pictures[f"{key}-{kind}"] = rng.integers(0, 256, case.truth.shape).astype(np.uint8)
    text = Comparison(rows, cases, Settings(), [], pictures=pictures).to_html()
    assert 1e6 < len(text.encode()) < 5e6
    assert re.search(r"stored as WEBP of quality \d+", text)
    for few in (dict(list(pictures.items())[:1]), {f"{i}": np.zeros((8, 8), np.uint8) for i in range(30)}):
        uris, remark = encode(few)
        assert "without loss" in remark
        assert uris.keys() == few.keys()


def test_more_pictures_than_fit_are_left_out_and_it_is_said(monkeypatch, rng):
    monkeypatch.setattr("deblur.compare.page.PAGE_BYTES", 1500)
    uris, remark = encode({f"p{i}": rng.integers(0, 256, (64, 64)).astype(np.uint8) for i in range(30)})
    assert 5 < len(uris) < 30
    assert sum(map(len, uris.values())) <= 1500
    assert f"{30 - len(uris)} of the last ones are left out" in remark


def test_a_page_with_pictures_left_out_is_whole(found, monkeypatch):
    monkeypatch.setattr("deblur.compare.page.LEVELS", LEVELS[-1:])
    monkeypatch.setattr("deblur.compare.page._plots", lambda *_: {"quality": [], "lcurves": [], "convergence": []})
    counts = set()
    for budget in range(0, 4000, 570):
        monkeypatch.setattr("deblur.compare.page.PAGE_BYTES", budget)
        parsed = Page(found.to_html())
        counts.add(sum(tag == "img" for tag, _ in parsed.tags))
        for _, attributes in parsed.tags:
            for name in ("data-view", "data-viewer"):
                assert name not in attributes or attributes[name] in parsed.ids
            assert attributes.get("value", "1").isdigit() or attributes["value"] in parsed.ids
    assert len(counts) > 5


def test_pictures_of_the_page_are_the_pictures(found, text):
    uri = re.search(r'id="case1-sharp" alt="" src="data:image/png;base64,([^"]+)"', text).group(1)
    assert np.array_equal(iio.imread(io.BytesIO(base64.b64decode(uri))), as_8_bit(found.cases[0].truth))


def test_quality_against_time_names_the_unbeaten():
    def row(name, psnr, seconds):
        return Row(name, "", "", name, "", "zero", psnr=psnr, setup_s=0.0, solve_s=seconds)

    rows = [row("fast", 20.0, 0.01), row("poor", 19.0, 0.1), row("best", 30.0, 1.0), row("same", 30.0, 2.0)]
    (figure,) = quality_against_time([*rows, row("awful", -5.0, 0.02)], 18.0, "plot")
    svg = figure["svg"]
    Page(svg)
    assert figure["left_out"] == "1 method"
    assert "awful" not in svg
    assert [t for t in re.findall(r">([a-z]+)</text>", svg) if t != "PSNR dB"] == ["blurred", "fast", "best"]
    assert re.findall(r"<title>(\w+):", svg) == ["fast", "poor", "best", "same"]
    dots = re.findall(r'plot-dot\d.*?x="([\d.]+)" y="([\d.]+)"', svg, re.DOTALL)
    at = [tuple(map(float, dot)) for dot in dots]
    assert [x for x, _ in at] == sorted(x for x, _ in at)
    assert at[2][1] == at[3][1] < at[0][1] < at[1][1]
    assert quality_against_time(rows[:1], 18.0, "plot") == []
    assert quality_against_time([], -np.inf, "plot") == []


# ------------------------------------------------------------------------------------- a real browser


@pytest.fixture(scope="module")
def chromium():
    if browser.find() is None:
        pytest.skip("no Chromium is installed (on Debian: apt-get install chromium)")
    with closing(browser.Browser()) as b:
        yield b


@pytest.fixture
def shown(chromium, page):
    chromium.resize(1280, 900)
    chromium.open(page)
    return chromium


def test_page_loads_without_complaint_or_request(shown):
    shown.resize(390, 800, mobile=True)
    assert shown.complaints() == []
    assert shown.requests() == []
    broken = "[...document.images].filter(i => i.getAttribute('src') && !(i.complete && i.naturalWidth))"
    assert shown.evaluate(f"{broken}.length") == 0
    assert shown.evaluate("document.images.length") > 10


def test_the_page_cannot_reach_the_network(shown):
    """Its own policy forbids it, whatever a script might try."""
    tried = (
        "fetch('http://127.0.0.1:9/').then(() => 'reached', e => e.name)",
        "new Promise(r => { const i = new Image(); i.onload = () => r('reached'); i.onerror = () => r('TypeError');"
        "i.src = 'http://127.0.0.1:9/x.png'; })",
    )
    for script in tried:
        assert shown.evaluate(script) == "TypeError"
    assert any("Content Security Policy" in text for text in shown.complaints())


def column(shown, table, heading):
    return shown.evaluate(
        f"(() => {{ const t = document.querySelectorAll('section table')[{table}];"
        f"const n = [...t.tHead.rows[0].cells].findIndex(c => c.textContent.trim() === {json.dumps(heading)});"
        "return [...t.tBodies[0].rows].map(r => r.cells[n].dataset.value); })()"
    )


def heading(table, text):
    return (
        f"[...document.querySelectorAll('section table')[{table}].tHead.querySelectorAll('button')]"
        f".find(b => b.textContent.trim() === {json.dumps(text)})"
    )


def test_a_click_on_a_heading_sorts_and_another_turns_round(shown):
    table = 0
    for text, best_first in (("Solve s", 1), ("PSNR dB", -1), ("SSIM", -1), ("MSE", 1)):
        for turn in (1, -1):
            shown.click(heading(table, text))
            values = column(shown, table, text)
            numbers = [float(v) for v in values if v]
            assert len(numbers) > 4
            assert numbers == sorted(numbers, reverse=best_first * turn < 0)
            assert all(not v for v in values[len(numbers) :])  # what has no figure is last, both ways
            state = shown.evaluate(f"{heading(table, text)}.closest('th').getAttribute('aria-sort')")
            assert state == ("ascending" if best_first * turn > 0 else "descending")
            assert shown.evaluate("document.querySelectorAll('[aria-sort]').length") == 1
            assert text in shown.evaluate("document.getElementById('said').textContent")
    shown.click(heading(table, "Method"))
    names = column(shown, table, "Method")
    assert names == sorted(names, key=str.lower)
    assert len(set(column(shown, 1, "Method"))) == len(names)  # the other table is as it was


STAGE = "document.querySelector('.stage')"
SLIDER = "document.querySelector('.stage input')"


def stage_pixels(shown, tmp_path):
    shown.evaluate(f"{STAGE}.scrollIntoView({{block: 'center'}})")
    shown.evaluate("document.activeElement.blur()")
    path = tmp_path / "shot.png"
    shown.screenshot(path, whole=False)
    box = f"(() => {{ const r = {STAGE}.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
    x, y, w, h = map(round, shown.evaluate(box))
    return iio.imread(path)[y + 2 : y + h - 2, x + 2 : x + w - 2, :3].astype(int)


def set_slider(shown, value):
    shown.evaluate(f"(() => {{ {SLIDER}.value = {value}; {SLIDER}.dispatchEvent(new Event('input')); }})()")


def test_the_slider_divides_the_two_pictures(shown, tmp_path):
    """By what is on the screen: left of the line one picture, right of it the other."""
    set_slider(shown, 100)
    left = stage_pixels(shown, tmp_path)
    set_slider(shown, 0)
    right = stage_pixels(shown, tmp_path)
    width = left.shape[1]
    assert np.abs(left - right).mean() > 1
    shown.click(STAGE, at=(0.25, 0.8))  # a real click a quarter of the way
    value = float(shown.evaluate(f"{SLIDER}.value"))
    assert abs(value - 25) <= 2
    mixed = stage_pixels(shown, tmp_path)
    edge = round(width * value / 100)
    assert np.array_equal(mixed[:, : edge - 20], left[:, : edge - 20])
    assert np.array_equal(mixed[:, edge + 20 :], right[:, edge + 20 :])


def test_the_pictures_that_are_picked_are_shown(shown):
    parts = (
        "(() => { const v = document.querySelector('.viewer'), s = v.querySelectorAll('select');"
        "return {over: v.querySelector('.over').src, under: v.querySelector('.under').src,"
        "rest: v.querySelector('.rest img').src, facts: v.querySelector('.facts').textContent,"
        "name: s[1].selectedOptions[0].textContent, id: s[1].value}; })()"
    )
    first = shown.evaluate(parts)
    assert first["under"] == shown.evaluate(f"document.getElementById('{first['id']}').src")
    assert first["over"] == shown.evaluate("document.getElementById('case1-blurred').src")
    shown.evaluate(
        "(() => { const s = document.querySelectorAll('.viewer select')[0]; s.value = 'case1-sharp';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert shown.evaluate(parts)["over"] == shown.evaluate("document.getElementById('case1-sharp').src")
    link = "[...document.querySelectorAll('tbody button')].find(b => b.textContent === 'skimage-wiener')"
    shown.click(link)  # a method of the table, with the mouse
    second = shown.evaluate(parts)
    assert second["under"] != first["under"]
    assert second["rest"] != first["rest"]
    assert second["name"] == "skimage-wiener"
    assert "balance" in second["facts"]
    card = "[...document.querySelectorAll('.card button')].at(-1)"
    viewer = shown.evaluate(f"{card}.dataset.viewer")
    shown.click(card)
    chosen = f"document.querySelectorAll('#{viewer} select')[1].value"
    assert shown.evaluate(chosen) == shown.evaluate(f"{card}.dataset.view")
    assert shown.complaints() == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_cut_off_at_any_width(shown, width):
    shown.resize(width, 800, mobile=width < 500)
    assert shown.evaluate("innerWidth") == width
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider than the window scrolls inside its own frame.
    assert shown.evaluate("[...document.querySelectorAll('table')].every(t => t.closest('.scroll'))")


def test_page_reads_without_scripts(chromium, page, found):
    chromium.resize(1280, 900)
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.load(page)
        root = chromium.call("DOM.getDocument", depth=-1)["root"]["nodeId"]

        def query(selector):
            return chromium.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]

        assert len(query("section tbody tr")) == sum(row.status == "ok" for row in found.rows)
        cards, pictures = (query(selector) for selector in (".card", ".card img[src]"))
        assert len(pictures) == 2 * len(cards) > 0  # each with its residual
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
