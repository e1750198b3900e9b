"""`deblur.compare`: what is measured, what is refused, and that one method cannot spoil a run."""

import csv
import io
import json
import re
import shlex
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
import scipy.signal
from refusals import refused
from test_cli_files import fails, prints

import deblur
from deblur import cli, compare
from deblur.cli import main
from deblur.compare import cases, findings, running, scoring, tables
from deblur.compare.adapters import Answer, Entrant, Setting
from deblur.denoise import patches
from deblur.errors import InsufficientMemoryError

PSF = "gaussian:5,1"


@pytest.fixture
def picture(rng):
    """Smooth and not symmetric, 40 x 37."""
    return scipy.signal.convolve2d(rng.random((44, 41)), np.full((5, 5), 0.04), "valid")


@dataclass(frozen=True)
class Fake(Entrant):
    """Restores nothing; `extra` sets its behaviour."""

    extra: dict = field(default_factory=dict)

    def missing(self):
        return self.extra.get("missing")

    def refuses(self, task):
        return self.extra["refuses"](task) if "refuses" in self.extra else None

    def predicted(self, task, value):
        return self.extra["predicted"]() if "predicted" in self.extra else None

    def choose(self, task):
        self.extra.get("choose", lambda: None)()
        return Setting(self.extra.get("value", 1.0), "default", "as it is")

    def prepare(self, task, value, watch=None):
        if "prepare" in self.extra:
            self.extra["prepare"](task, value)
        act = self.extra.get("act", lambda g: g)

        def solver(g):
            if watch:
                watch(1, self.extra.get("report", 0.5))
            return Answer(act(g), 3, note="done")

        return solver


def enter(monkeypatch, **acts):
    """Make entrants of these names the only ones."""
    fakes = {name: Fake(name, "test", "", extra=extra) for name, extra in acts.items()}
    monkeypatch.setattr(running, "entrants", lambda: fakes)
    return fakes


def run(images, *arguments, **options):
    return compare.run(images, PSF, *arguments, **({"repeats": 1, "memory": False} | options))


# ------------------------------------------------------------------------------------- cases


def test_noise_forms():
    found = [cases.parse_noise(noise) for noise in (0.01, "0.01", "salt-pepper:0.02", "poisson:400", "none")]
    kinds, levels = zip(*found, strict=True)
    assert kinds == ("gaussian", "gaussian", "salt-pepper", "poisson", "gaussian")
    assert levels == (0.01, 0.01, 0.02, 400, 0)
    for text in ("pepper:0.1", "gaussian:much", "noise", ""):
        refused(ValueError, "salt-pepper:LEVEL", cases.parse_noise, text)


@pytest.mark.parametrize("shape", [(4, 5), (3, 6), (1, 2)])
def test_every_boundary_has_the_same_frame_and_the_right_blur(picture, rng, shape):
    kernel = rng.random(shape)
    kernel /= kernel.sum()
    made = compare.make_cases(picture, kernel, "none", deblur.BOUNDARIES)
    assert [case.boundary for case in made] == list(deblur.BOUNDARIES)
    full = scipy.signal.convolve2d(picture, kernel, "valid")  # its frame has the PSF's margin all round
    at = [m - 1 - (m - 1) // 2 for m in shape]
    frame = picture[at[0] : at[0] + full.shape[0], at[1] : at[1] + full.shape[1]]
    for case in made:
        assert np.array_equal(case.truth, frame)
        assert case.blurred.shape == frame.shape
    by_name = {case.boundary: case.blurred for case in made}
    assert np.abs(by_name["unknown"] - full).max() <= 1e-12
    spread = scipy.signal.convolve2d(frame, kernel, "full")
    o = [(m - 1) // 2 for m in shape]
    zero = spread[o[0] : o[0] + frame.shape[0], o[1] : o[1] + frame.shape[1]]
    assert np.abs(by_name["zero"] - zero).max() <= 1e-12
    assert len({case.key for case in made}) == len(made)


def test_cases_multiply_and_keys_know_the_pixels(picture):
    pictures = {"a": picture, "b": picture + 1e-9}
    made = compare.make_cases(pictures, [PSF, "box:3"], [0, 0.01], ["zero", "unknown"])
    assert len(made) == len({case.key for case in made}) == 16
    again = compare.make_cases({"a": picture}, PSF, 0.01, "zero")[0]
    assert again.key in {case.key for case in made}
    assert compare.make_cases({"a": picture}, PSF, 0.01, "zero", seed=1)[0].key != again.key


def test_what_is_named_twice_is_one_case_and_arrays_are_distinguished(picture):
    assert len(compare.make_cases([picture, picture], PSF, [0.01, "0.01"], ["zero", "zero"])) == 2
    first, second = compare.make_cases([picture, 0.5 * picture], PSF)
    assert (first.image, second.image) == ("array 1", "array 2")


def test_flat_and_black_pictures(picture):
    for level in (0.0, 0.5):
        names = ["auto", "skimage-wiener", "skimage-richardson-lucy"]
        found = run(np.full((30, 30), level), "none", "zero", names)
        for row in found.rows:
            assert (row.status == "ok") == (row.mse is not None)
            assert row.status == "ok" or row.reason
        json.loads(found.to_json())
        assert found.to_html()


def test_a_psf_that_is_none(picture):
    no_pixels = np.zeros((3, 0))
    for bad, word in ((np.ones(5), "2-D"), (np.full((3, 3), np.nan), "NaN"), (no_pixels, "empty|pixels")):
        refused(ValueError, word, compare.make_cases, picture, bad)


def test_default_is_the_middle_of_camera():
    (case,) = compare.make_cases()
    assert np.array_equal(case.truth, deblur.data.load("camera")[128:384, 128:384])


def write(path, array, **options):
    iio.imwrite(path, array, plugin="pillow", **options)
    return str(path)


def test_files_of_all_kinds_are_taken_or_refused_in_words(tmp_path, rng):
    grey = rng.integers(0, 256, (30, 31)).astype(np.uint8)
    expected = grey / 255
    rgba = np.dstack([grey, grey, grey, np.full_like(grey, 255)])
    deep = grey.astype(np.uint16) * 257
    for name, array in (("grey.png", grey), ("deep.png", deep), ("opaque.png", rgba)):
        pixels = cases.load_picture(write(tmp_path / name, array))[1]
        pixels = pixels[..., 0] if pixels.ndim == 3 else pixels
        assert np.abs(pixels - expected).max() <= 1e-15
    from PIL import Image

    Image.fromarray(grey).convert("P").save(tmp_path / "palette.png")
    assert np.abs(cases.load_picture(str(tmp_path / "palette.png"))[1] - expected).max() <= 0.5 / 255
    rgba[3, 4, 3] = 0
    Image.fromarray(rgba[..., :3]).convert("CMYK").save(tmp_path / "print.jpg")
    hole = expected.astype(np.float32).copy()
    hole[2, 3] = np.nan
    for name, word in (
        (write(tmp_path / "clear.png", rgba), "transparent"),
        (str(tmp_path / "print.jpg"), "CMYK"),
        (write(tmp_path / "hole.tif", hole), "NaN"),
        (str(tmp_path / "none.png"), "no.* such file|neither"),
        (hole, "NaN"),
        (np.zeros((2, 30, 30)), "one picture"),
        (np.zeros((0, 30)), "shape"),
    ):
        refused((ValueError, TypeError, OSError), word, cases.load_picture, name)


def test_values_beyond_one_are_scaled_and_it_is_said(picture):
    _, pixels, notes = cases.load_picture(picture * 4096)
    assert pixels.max() == 1
    assert "divided by" in notes[0]
    assert compare.make_cases(picture * 4096, PSF)[0].notes == notes


def test_tiny_and_huge_pictures_are_refused_before_any_work(picture, monkeypatch):
    refused(ValueError, "too few for a PSF of 5 x 5", run, picture[:8, :8])
    refused(ValueError, "size must lie between", run, picture, size=39)
    refused(ValueError, "positive whole number", run, picture, size=0)
    monkeypatch.setattr("deblur.device.free_memory", lambda xp: 100_000)
    refused(InsufficientMemoryError, "take a part of it", run, picture)


def test_nine_pixels_a_side_still_compare(picture):
    found = run(picture[:9, :9], 0.01, "zero", ["auto", "cholesky", "skimage-wiener"])
    assert [row.status for row in found.rows] == ["ok"] * 4
    assert all(row.ssim is None and row.mse is not None for row in found.rows)  # SSIM needs 11 pixels


# ------------------------------------------------------------------------------------- verification


def test_whatever_a_method_does_the_others_still_run(picture, monkeypatch, capsys, tmp_path):
    def spoil(g):
        g[0, 0] = 7
        return np.zeros_like(g)

    def chatter(g):
        print("hello")  # noqa: T201
        warnings.warn("beware", stacklevel=1)
        return g

    def die(g):
        raise RuntimeError("a\nb")

    def huge():
        raise MemoryError("it takes 9 TiB")

    enter(
        monkeypatch,
        nan={"act": lambda g: g * np.nan, "report": np.nan},
        shape={"act": lambda g: g[1:]},
        complex={"act": lambda g: g * 1j},
        spoil={"act": spoil},
        die={"act": die},
        leave={"act": lambda g: sys.exit(3)},
        sleep={"act": lambda g: time.sleep(5)},
        ponder={"choose": lambda: time.sleep(5)},
        big={"predicted": huge},
        slow={"predicted": lambda: 1e5},
        absent={"missing": "pip install absent"},
        refuses={"refuses": lambda task: "not on Saturdays"},
        chatter={"act": chatter},
        good={},
    )
    found = run(picture, time_limit=0.5, folder=tmp_path)
    rows = {row.method: row for row in found.rows}
    for name, status, word in (
        ("nan", "failed", "its answer holds"),
        ("shape", "failed", "shape"),
        ("complex", "failed", "complex"),
        ("spoil", "failed", "changed the picture"),
        ("die", "failed", "RuntimeError: a b"),
        ("leave", "failed", "SystemExit"),
        ("sleep", "too slow", "restoring was stopped after 0.5 s"),
        ("ponder", "too slow", "choosing its parameter was stopped after 1 s"),
        ("big", "refused", "9 TiB"),
        ("slow", "too slow", "1e+05 s"),
        ("absent", "not installed", "pip install absent"),
        ("refuses", "refused", "Saturdays"),
    ):
        row = rows[name]
        assert (row.status, word in row.reason) == (status, True), row
        assert row.mse is None
        assert row.solve_s is None
        assert word in str(found)
    assert rows["chatter"].status == rows["good"].status == "ok"
    assert {row.status for row in found.rows} == {"ok", "refused", "not installed", "failed", "too slow"}
    assert "beware" in rows["chatter"].note
    said = capsys.readouterr()
    assert said.out == said.err == ""
    assert found.complete


def test_what_is_compiled_once_counts_against_no_time_limit(picture, monkeypatch):
    limits, loops = [], patches._compiled
    monkeypatch.setattr(patches, "_compiled", lambda: limits.append(signal.getitimer(signal.ITIMER_REAL)[0]) or loops())
    run(picture, methods=["collaborative"])
    assert limits[0] == 0 < max(limits)


def test_methods_are_never_shown_the_truth(picture, monkeypatch):
    seen = []
    spy = {"refuses": seen.append, "prepare": lambda task, value: seen.append(task)}
    enter(monkeypatch, spy=spy | {"act": lambda g: seen.append(g) or g})
    truth = run(picture).cases[0].truth
    arrays = [a for item in seen for a in ([item] if isinstance(item, np.ndarray) else vars(item).values())]
    assert sum(isinstance(a, np.ndarray) for a in arrays) > 3
    assert not any(isinstance(a, np.ndarray) and np.shares_memory(a, truth) for a in arrays)
    assert not any(isinstance(a, np.ndarray) and np.array_equal(a, truth) for a in arrays)
    assert {f for item in seen if not isinstance(item, np.ndarray) for f in vars(item)} == {
        "blurred", "psf", "boundary", "lam", "shared",
    }  # fmt: skip


def test_a_method_cannot_change_the_task_of_the_next(picture, monkeypatch):
    def vandal(task, value):
        task.blurred[:] = 0

    enter(monkeypatch, vandal={"prepare": vandal}, good={})
    rows = run(picture).rows
    assert rows[1].status == "failed"
    assert rows[2].mse == rows[0].mse


def test_measures_against_their_definitions(picture, rng, monkeypatch):
    kernel = rng.random((4, 3))
    kernel /= kernel.sum()
    answer = {}

    def act(g):
        answer["f"] = g + 0.01 * np.arange(g.size).reshape(g.shape) / g.size
        return answer["f"]

    enter(monkeypatch, m={"act": act})
    found = compare.run(picture, kernel, 0.02, "reflect", repeats=1)
    case, row, f = found.cases[0], found.rows[1], answer["f"]
    assert row.mse == pytest.approx(((f - case.truth) ** 2).mean(), rel=1e-12)
    assert row.psnr == pytest.approx(-10 * np.log10(row.mse), rel=1e-12)
    blurred = -10 * np.log10(((case.blurred - case.truth) ** 2).mean())
    assert row.gain == pytest.approx(row.psnr - blurred, abs=1e-9)
    again = scipy.signal.convolve2d(f, kernel, "valid")
    inside = case.blurred[2 : 2 + again.shape[0], 1 : 1 + again.shape[1]]
    share = np.linalg.norm(inside - again) / np.linalg.norm(inside)
    assert row.data_residual == pytest.approx(share, rel=1e-9)
    assert 0 < row.whiteness < 1
    assert found.rows[0].gain == 0


def test_whiteness_tells_noise_from_structure(picture, rng, monkeypatch):
    (case,) = compare.make_cases(picture, "delta:1", 0.05, "zero")
    row = findings.Row("k", "", "", "m", "", "zero")
    scoring.measure(row, case, case.truth)
    white = row.whiteness
    scoring.measure(row, case, case.blurred - picture)
    assert white < 0.1 < row.whiteness


def test_warm_up_timed_runs_and_a_run_for_memory(picture, monkeypatch):
    calls = []
    enter(monkeypatch, m={"prepare": lambda task, value: calls.append("prepare")})
    row = run(picture, repeats=3, memory=False).rows[1]
    assert (len(calls), row.runs) == (4, 3)
    calls.clear()
    row = run(picture, repeats=2, memory=True).rows[1]
    assert (len(calls), row.runs) == (4, 2)
    assert row.peak_bytes > 0
    assert row.solve_min_s <= row.solve_s <= row.solve_max_s
    assert row.history == [(1, 0.5)]


def test_peak_memory_is_what_was_held():
    def work():
        a = np.ones(5_000_000)
        b = a + 1
        del a, b
        np.ones(1_000_000)

    assert 80e6 <= scoring.peak_bytes(work) <= 100e6


def test_methods_with_another_boundary_say_so_or_refuse(picture):
    own = run(picture, 0.01, "unknown", ["fft", "skimage-wiener"]).rows[1:]
    assert [(row.status, row.assumes) for row in own] == [("ok", "periodic")] * 2
    rows = run(picture, 0.01, "unknown", ["fft", "skimage-wiener"], other_boundary="refuse").rows[1:]
    assert [row.status for row in rows] == ["refused"] * 2
    assert "periodic" in rows[0].reason
    assert "assumes boundary 'periodic'" in rows[1].reason


def test_oracle_rows_say_so_and_are_no_worse(picture):
    found = run(picture, 0.01, "periodic", ["auto", "skimage-wiener", "skimage-richardson-lucy"], oracle=True)
    plain = {row.method: row for row in found.rows if row.how != "oracle"}
    oracle = {row.method: row for row in found.rows if row.how == "oracle"}
    assert set(oracle) == {"auto", "skimage-wiener", "skimage-richardson-lucy"}
    for name, row in oracle.items():
        assert "oracle" in row.label
        assert "truth" in row.setting
        assert row.mse <= plain[name].mse * 1.001, name
    assert oracle["skimage-richardson-lucy"].value == int(oracle["skimage-richardson-lucy"].value)
    assert "oracle" not in {found.best().how}


@pytest.mark.parametrize("best", [-20.0, -5.3, 4.0])
def test_the_oracle_looks_beyond_its_range(best):
    tried = []

    def error(x):
        tried.append(x)
        return (x - best) ** 2

    scoring._search(error, [-13.0, -9.0, -5.0, 0.0])
    assert min(abs(x - best) for x in tried) <= 0.5


def test_linear_methods_solve_the_same_problem(picture):
    names = ["auto", "kronecker", "pcg", "hybrid-lsqr", "banded", "cholesky", "qr"]
    rows = run(picture, 0.01, "unknown", names).rows[1:]
    assert [row.status for row in rows] == ["ok"] * len(names)
    for row in rows:
        assert row.residual <= 1e-6
        assert row.mse == pytest.approx(rows[0].mse, rel=1e-4)
        assert row.value == rows[0].value
        assert row.curve["lam"] == row.value
    assert rows[2].history[-1][1] < 1e-3  # pcg reported each iteration


# ------------------------------------------------------------------------------------- pictures that came blurred


def test_a_picture_that_came_blurred_has_no_truth(picture):
    found = run(picture, blurred=True, methods=["auto"])
    case, (before, row) = found.cases[0], found.rows
    assert case.truth is None
    assert np.array_equal(case.blurred, picture)
    assert (row.status, row.mse, row.psnr, row.ssim, row.gain) == ("ok", None, None, None, None)
    assert 0 < row.data_residual < before.data_residual
    assert row.whiteness is not None
    assert found.best() is None
    assert "no sharp one" in found.to_html()
    refused(ValueError, "must be named", compare.run, blurred=True)
    assert len(run(picture, blurred=True, methods=["auto"], oracle=True).rows) == 2  # nothing to look at


def test_colour(rng):
    colour = scipy.ndimage.uniform_filter(rng.random((40, 38, 3)), (5, 5, 1))
    found = run(colour, 0.005, "unknown", ["auto", "pcg", "skimage-wiener", "skimage-richardson-lucy"])
    assert [row.status for row in found.rows] == ["ok"] * 5
    assert found.rows[1].gain > 0
    assert found.rows[1].mse == pytest.approx(found.rows[2].mse, rel=1e-4)
    (case,), (_, auto, *_) = found.cases, found.rows
    options = {"boundary": "unknown", "prior": "smooth", "channel_axis": -1}
    direct = deblur.solve(case.blurred, deblur.psf.parse(PSF), auto.value, **options)
    assert auto.mse == pytest.approx(deblur.metrics.mse(case.truth, direct.image), rel=1e-9)


# ------------------------------------------------------------------------------------- interruption


def test_an_interrupted_run_is_kept_and_resumed(picture, monkeypatch, tmp_path):
    done, stop = [], [True]

    def interrupt(g):
        if stop:
            raise KeyboardInterrupt
        return g

    def first(task, value):
        done.append("first")

    enter(monkeypatch, first={"prepare": first}, second={"act": interrupt}, third={})
    folder = tmp_path / "out"
    found = run(picture, folder=folder)
    assert not found.complete
    assert [row.method for row in found.rows] == ["blurred", "first"]
    assert "interrupted" in str(found)
    assert "interrupted" in found.to_html()
    refused(FileExistsError, "--resume", run, picture, folder=folder)
    with (folder / "rows.jsonl").open("a") as f:
        f.write('{"row": {"key": "cut o')  # as a crash leaves it
    stop.clear()
    calls = len(done)
    again = run(picture, folder=folder, resume=True)
    assert len(done) == calls  # not measured again
    assert again.complete
    assert [row.method for row in again.rows] == ["blurred", "first", "second", "third"]
    assert [row.session for row in again.rows] == [0, 0, 1, 1]
    assert again.rows[1] == found.rows[1]
    assert set(found.pictures) < set(again.pictures)
    for name, shown in found.pictures.items():
        assert np.array_equal(again.pictures[name], shown)
    for line in (folder / "rows.jsonl").read_text().splitlines():
        json.loads(line)
    # Other settings are another row.
    other = run(picture, folder=folder, resume=True, lam=0.5)
    assert len(done) > calls
    assert other.rows[1].session == 2


def test_resuming_tries_again_what_was_not_installed(picture, monkeypatch, tmp_path):
    fakes = enter(monkeypatch, a={"missing": "pip install a"})
    assert run(picture, folder=tmp_path).rows[1].status == "not installed"
    fakes["a"].extra.clear()
    assert run(picture, folder=tmp_path, resume=True).rows[1].status == "ok"


def test_folders_that_cannot_be_used(picture, tmp_path):
    (tmp_path / "file").write_text("precious")
    refused(NotADirectoryError, "is a file", run, picture, folder=tmp_path / "file")
    rows = tmp_path / "rows.jsonl"
    other = '{"row": {"another": "version"}}\n'
    for text in ("precious", '{"session": {}}\n' + other, '{"session": {}}\nbroken\n{"row": {}}\n'):
        rows.write_text(text)
        refused(ValueError, "is not a row of this version", run, picture, folder=tmp_path, resume=True)
        assert rows.read_text() == text


def test_bad_settings_are_refused_before_any_work(picture, tmp_path):
    for options, word in (
        ({"methods": ["magic"]}, "unknown method 'magic'"),
        ({"methods": []}, "no method"),
        ({"lam": "best"}, "unknown rule"),
        ({"lam": -1}, "not negative"),
        ({"time_limit": 0}, "time_limit"),
        ({"repeats": -1}, "repeats"),
        ({"other_boundary": "mix"}, "other_boundary"),
        ({"boundaries": "mirror"}, "boundary"),
    ):
        refused(ValueError, word, run, picture, folder=tmp_path / "out", **options)
    refused(ValueError, "larger than|too few", compare.run, picture, np.ones((50, 50)), folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_documentation_can_be_typed(tmp_path, monkeypatch):
    """The commands and the Python of docs/compare.md, parsed and run."""
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    shell, python = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for line in shell.strip().splitlines()]
    assert len(commands) == 5
    for arguments in commands:
        assert cli._parser().parse_args(arguments).command == "compare"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(python, names)
    assert (tmp_path / "compare.html").exists()
    assert names["found"].complete


def test_progress_on_a_terminal_only(monkeypatch, capsys, tmp_path):
    enter(monkeypatch, first={})
    arguments = ["compare", "--image", "camera64", "--size", "32", "--no-memory", "--output", str(tmp_path)]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(arguments) == 0
    assert "compare [" in capsys.readouterr().err
    assert main([*arguments, "-q", "--force"]) == 0
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------- tables


def test_tables_hold_every_row(picture, monkeypatch, tmp_path):
    enter(monkeypatch, **{"=cmd|x": {}, "broken": {"act": lambda g: 1 / 0}, "exact": {"act": lambda g: g}})
    found = run({"a|b<i>": picture}, "none")
    parsed = json.loads(found.to_json(tmp_path / "a.json"))
    assert [row["method"] for row in parsed["rows"]] == ["blurred", "=cmd|x", "broken", "exact"]
    assert parsed["sessions"][0]["packages"]["numpy"] == np.__version__
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [line["method"] for line in lines] == ["blurred", "'=cmd|x", "broken", "exact"]
    assert float(lines[0]["mse"]) == found.rows[0].mse
    text = found.to_markdown()
    assert "a\\|b\\<i\\>" in text
    assert "broken: failed: ZeroDivisionError" in text
    widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    refused(FileExistsError, "is there already", found.to_json, tmp_path / "a.json")


def test_a_narrow_terminal_gets_fewer_columns(picture, monkeypatch):
    enter(monkeypatch, first={}, second={"act": lambda g: 0.9 * g})
    found = run(picture)
    heads = []
    for width in (None, 200, 70, 10):
        lines = tables.terminal_table(found, width).splitlines()
        heads.append(re.split(r"  +", lines[2].strip()))
        if width and width > 10:
            assert max(len(line) for line in lines[2:]) <= width
    assert heads[0] == heads[1]
    assert len(heads[1]) > len(heads[2]) > len(heads[3])
    assert heads[3] == ["Method", "PSNR dB", "Solve s"]


def test_an_exact_answer_is_no_error_in_the_tables(picture, monkeypatch):
    made = compare.make_cases(picture, PSF, "none", "zero")
    monkeypatch.setattr(running, "make_cases", lambda *a, **k: made)
    enter(monkeypatch, exact={"act": lambda g: made[0].truth})
    perfect = run(picture)
    perfect.rows.reverse()
    assert perfect.rows[0].mse == 0
    assert json.loads(perfect.to_json())["rows"][0]["psnr"] is None
    assert "∞" in str(perfect)
    perfect.rows[0].psnr = None  # as it comes back from JSON
    assert "∞" in str(perfect)
    assert "∞" in perfect.to_html()


# ------------------------------------------------------------------------------------- the command


def test_command_writes_tables_and_a_page(tmp_path, capsys, picture):
    path = tmp_path / "mine.png"
    deblur.image.write(path, picture, bits=16)
    kernel = tmp_path / "psf.tif"
    deblur.image.write(kernel, deblur.psf.parse(PSF))
    before = path.read_bytes(), kernel.read_bytes()
    out = tmp_path / "out"
    arguments = [
        "compare", "--image", str(path), "--psf", str(kernel), "--noise", "gaussian:0.01", "--boundary", "zero",
        "--method", "auto", "fft", "skimage-wiener", "--repeats", "1", "--no-memory", "--output", str(out),
    ]  # fmt: skip
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.err == ""  # no bar in a pipe
    for word in ("mine.png 36 × 33", "auto", "skimage-wiener", "PSNR", "compare.html"):
        assert word in said.out
    assert sorted(p.name for p in out.iterdir()) == [
        "compare.csv", "compare.html", "compare.json", "compare.md", "pictures", "rows.jsonl",
    ]  # fmt: skip
    assert (path.read_bytes(), kernel.read_bytes()) == before
    fails(capsys, arguments, "--resume")
    assert prints(capsys, [*arguments, "--resume", "-q"]) == ""
    assert main([*arguments[:5], *arguments[7:], "--force", "--blurred", "-q"]) == 0
    assert [row["mse"] for row in json.loads((out / "compare.json").read_text())["rows"]] == [None] * 4


def test_command_replaces_nothing_unasked_and_no_input_ever(tmp_path, capsys):
    (tmp_path / "compare.csv").write_text("0,1,0\n1,2,1\n0,1,0\n")
    before = (tmp_path / "compare.csv").read_bytes()
    arguments = ["compare", "--image", "camera64", "--method", "auto", "--output", str(tmp_path)]
    for more, word in (
        ([], "there already"),
        (["--psf", str(tmp_path / "compare.csv"), "--force"], "inputs are never overwritten"),
    ):
        fails(capsys, [*arguments, *more], word)
        assert (tmp_path / "compare.csv").read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["compare.csv"]
