"""The scripts under examples/ run, and their tables say what they claim."""

import importlib
import json
import math
import runpy
import sys
import types
from pathlib import Path

import pytest
from refusals import refused

import deblur

EXAMPLES = Path(__file__).parent.parent / "examples"

# As printed in the thesis.
TABLE_6_3 = {
    "Blurred, no noise": (0.0032, 6.6104e-5),
    "Blurred, salt & pepper": (0.0087, 0.0112),
    "Blurred, Gaussian": (0.0047, 0.0044),
    "Sharpened, no noise": (0.2469, 1.0408e-11),
    "Sharpened, salt & pepper": (0.2469, 0.03),
    "Sharpened, Gaussian": (0.2459, 0.0034),
}


@pytest.fixture
def example(monkeypatch):
    """The module of a script of that name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith(("table_", "_recorded"))]:
        del sys.modules[name]


@pytest.fixture
def results(example, monkeypatch, tmp_path):
    """A folder in the place of benchmarks/results; `results(name, record)` writes a file there."""
    recorded = example("_recorded")
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    monkeypatch.setattr(recorded, "find_gpu", lambda: None)

    def write(name, record, **environment):
        gpu = {"name": "Testcard 9"}
        environment = {"date": "2020-02-02", "commit": "abcdef1234", "gpu": gpu, **environment}
        (tmp_path / f"{name}.json").write_text(json.dumps({"environment": environment, "results": record}))

    return write


# ---------------------------------------------------------------- table 6.3


@pytest.fixture(scope="module")
def mse():
    sys.path.insert(0, str(EXAMPLES))
    try:
        module = importlib.import_module("table_mse")
    finally:
        sys.path.remove(str(EXAMPLES))
    return {row.name: (row, module.measure(row)) for row in module.PUBLISHED}, module


def test_mse_published_columns_are_the_thesis(mse):
    assert {name: (row.degraded, row.recovered) for name, (row, _) in mse[0].items()} == TABLE_6_3


def test_mse_of_every_degraded_image_is_within_a_tenth_of_the_published(mse):
    for name, (_, found) in mse[0].items():
        assert abs(found["degraded"] / TABLE_6_3[name][0] - 1) <= 0.1, name


def test_mse_plain_formula_reproduces_the_blurred_noisy_rows(mse):
    for name in ("Blurred, salt & pepper", "Blurred, Gaussian"):
        assert abs(math.log(mse[0][name][1]["plain, best λ"] / TABLE_6_3[name][1])) <= math.log(1.4), name


@pytest.mark.parametrize("name", ["Blurred, no noise", "Sharpened, no noise"])
def test_mse_rows_without_noise_mirror_the_lambda(mse, name):
    rows, module = mse
    row, found = rows[name]
    assert found["plain, best λ"] <= 1e-20  # the best λ is none
    image, psf = module.degrade(row, module.scene())
    restored = deblur.reconstruct(image, psf, found["λ of the published error"], boundary="zero")
    assert abs(deblur.metrics.mse(module.scene(), restored) / TABLE_6_3[name][1] - 1) <= 1e-4


def test_mse_no_chosen_lambda_beats_the_best(mse):
    for name, (_, found) in mse[0].items():
        for method in ("plain", "suited"):
            assert found[f"{method}, best λ"] <= 1.02 * found[f"{method}, chosen λ"], name


def test_mse_suited_method_is_never_worse_than_published_nor_than_the_plain_formula(mse):
    for name, (_, found) in mse[0].items():
        assert found["suited, chosen λ"] <= TABLE_6_3[name][1], name
        assert found["suited, chosen λ"] <= found["plain, chosen λ"], name


@pytest.mark.parametrize(
    ("name", "most"),
    [("Blurred, salt & pepper", 2.0e-4), ("Sharpened, salt & pepper", 5e-4), ("Blurred, Gaussian", 2.4e-3)],
)
def test_mse_suited_method_reaches_what_the_project_asks_of_it(mse, name, most):
    assert mse[0][name][1]["suited, chosen λ"] <= most


def test_mse_footnotes_say_the_figures_of_this_run(mse):
    rows, module = mse
    notes = " ".join(module.footnotes({name: found for name, (_, found) in rows.items()}))
    worst = max(abs(found["degraded"] / TABLE_6_3[name][0] - 1) for name, (_, found) in rows.items())
    assert f"within {worst:.0%} of the published" in notes
    for name in ("Blurred, no noise", "Sharpened, no noise"):
        assert f"{rows[name][1]['λ of the published error']:.1e}" in notes
    better = TABLE_6_3["Sharpened, Gaussian"][1] / rows["Sharpened, Gaussian"][1]["plain, best λ"]
    assert f"and {better:.0f} times *smaller* than published" in notes
    wild = max(found["gcv's λ"] for name, (_, found) in rows.items() if name.startswith("Sharpened"))
    assert f"with λ up to {wild:.1g}" in notes


def test_mse_prints_its_table(mse, capsys, monkeypatch):
    rows, module = mse
    monkeypatch.setattr(module, "measure", lambda row: rows[row.name][1])
    module.main()
    out = capsys.readouterr().out
    for name, (degraded, recovered) in TABLE_6_3.items():
        (line,) = [line for line in out.splitlines() if line.startswith(name)]
        assert f" {degraded:.4f} " in line
        assert f" {recovered:.2e} " in line
        assert f" {rows[name][1]['suited, chosen λ']:.2e} " in line
    assert "\n8. Best λ" in out


# ---------------------------------------------------------------- table 5.1


@pytest.fixture
def inversion(example, monkeypatch):
    module = example("table_inversion")
    monkeypatch.setattr(module, "FIRST", 49)  # quicker than the real one
    return module


def test_inversion_measures_every_method_and_draws(results, inversion, capsys, tmp_path):
    picture = tmp_path / "times.png"
    inversion.main(["--sizes", "64", "144", "--picture", str(picture)])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith(("64 ", "144 "))]
    assert [len(row) for row in rows] == [9, 9, 4, 4]
    assert all(float(x) > 0 for row in rows for x in row[-3:])
    assert "not recorded yet" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_inversion_shows_the_recorded_gpu_and_says_so(results, inversion, capsys):
    times = {"cupy.linalg.inv": {"median_s": 0.5}, "cholesky_inverse": {"median_s": 0.125}}
    results("gpu_inverse", {"sizes": [{"n": 64, "dtype": "float64", "times": times}]})
    inversion.main(["--sizes", "64"])
    out = capsys.readouterr().out
    gpu = out.split("GPU, float64, ")[1]
    assert gpu.startswith("recorded on 2020-02-02 on Testcard 9, commit abcdef1: seconds")
    assert gpu.splitlines()[3].split() == ["64", "8", "x", "8", "–", "0.5", "–", "0.125", "–"]
    assert out.splitlines()[-1].split() == ["64", "–", "4", "–"]


def test_inversion_refuses_with_figures_what_does_not_fit(results, inversion, capsys, monkeypatch):
    monkeypatch.setattr(inversion, "free_memory", lambda xp: 1 << 20)
    inversion.main(["--sizes", "64", "784"])
    out = capsys.readouterr().out
    assert "n = 784 was not run: 4 matrices take 18.76 MiB, and 1 MiB are free" in out
    assert "n = 64 was not run" not in out


def test_inversion_leaves_out_what_would_take_longer_than_the_limit(results, inversion, capsys):
    inversion.main(["--sizes", "784", "--limit", "1e-9"])
    assert capsys.readouterr().out.count("was not run at n = 784: it would take about") == 4


def test_inversion_of_something_else_than_a_square_image_is_refused(inversion):
    refused(SystemExit, "1000 is not the number of pixels of a square image", inversion.main, ["--sizes", "1000"])


def test_inversion_believes_no_wrong_inverse(results, inversion, monkeypatch):
    monkeypatch.setitem(inversion.METHODS, "Gauss-Jordan", lambda xp, a: xp.linalg.inv(a) * 1.01)
    refused(SystemExit, "wrong inverse", inversion.main, ["--sizes", "64"])


# ---------------------------------------------------------------- QR


def test_qr_measures_here_and_prints_what_was_recorded(results, example, capsys, monkeypatch):
    cell = {"rows": 8, "columns": 4, "batch": 7, "kernel": "single-launch"}
    cell |= {"times": {"ours": {"median_s": 0.001}, "jax": {"median_s": 0.004}}}
    cell |= {"best_peer": "jax", "speedup_over_best": 4.0, "speedup_over": {"jax": 4.0}}
    cell |= {"errors_over_sqrt_n_eps": {"orthogonality": 1.5, "backward": 0.25}}
    results("gpu_qr", {"grid": [cell]})
    module = example("table_qr")
    monkeypatch.setattr(module, "GRID", {(6, 6): (1,), (9, 5): (3,), (4000, 4000): (1,)})
    module.main([])
    out = capsys.readouterr().out
    measured = [line.split() for line in out.splitlines() if "LAPACK " in line]
    assert [row[:4] for row in measured] == [["6", "x", "6", "1"], ["9", "x", "5", "3"]]
    assert all(0 < float(row[-1]) <= 10 and 0 <= float(row[-2]) <= 10 for row in measured)
    assert "left out (1 larger cells)" in out
    assert "No GPU here. QR on a GPU, float32, recorded on 2020-02-02 on Testcard 9" in out
    assert out.splitlines()[-1].split() == [*"8x4", "7", "single-launch", "1", "4", "4.0", "(jax)", "1.5", "0.25"]


SWEEP = {"figure": 9, "action": "delete", "which": "col", "m": 100, "n": 50, "p": 10}
SWEEP |= {"update_s": 0.001, "planned": "update", "keep_q": True}
SWEEPS = {
    "sweeps": [
        {**SWEEP, "k": k, "refactor_s": {"scipy.linalg.qr": 0.02, "ours": full}}
        for k, full in ((0, 0.002), (40, 0.006))
    ]
}


def test_qr_update_measures_four_updates_that_agree_with_factoring_anew(example):
    rows = example("table_qr_update").here(40, 12, 3, repeats=1)
    assert [row[0] for row in rows] == ["columns added", "columns removed", "rows added", "rows removed"]
    assert all(float(row[-1]) <= 1e-12 and row[-2] in ("update", "refactor") for row in rows)
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows)


def test_qr_update_prints_the_best_cell_against_the_fastest_rival(results, example, capsys, tmp_path):
    results("qr_update_gpu", SWEEPS)
    picture = tmp_path / "updating.png"
    example("table_qr_update").main(["--shape", "40", "12", "3", "--picture", str(picture)])
    out = capsys.readouterr().out
    assert "Sweeps on a GPU: no GPU here; recorded on 2020-02-02 on Testcard 9, commit abcdef1" in out
    assert "columns removed      6.00       13.5" in out
    assert "qr_update_cpu.json has not been recorded yet" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("shape", ["40 12 29", "40 12 0", "12 12 1", "40 12 12"])
def test_qr_update_refuses_a_shape_that_has_no_update(example, shape):
    refused(SystemExit, "needs 0 < P < N <= M - P", example("table_qr_update").main, ["--shape", *shape.split()])


# ---------------------------------------------------------------- figures that were recorded


@pytest.mark.parametrize(("devices", "found"), [(lambda: 2, True), (lambda: 0, False), (lambda: 1 / 0, False)])
def test_a_gpu_is_found_where_there_is_a_device(example, monkeypatch, devices, found):
    runtime = types.SimpleNamespace(getDeviceCount=devices)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert example("_recorded").find_gpu() is (cupy if found else None)


# ---------------------------------------------------------------- PSFs from data


def test_the_psf_from_stars_follows_the_field(capsys):
    runpy.run_path(str(EXAMPLES / "psf_from_stars.py"))
    out = capsys.readouterr().out
    one, varied = (float(line.split("by ")[1].split("%")[0]) for line in out.splitlines() if "is wrong by" in line)
    assert varied < 0.6 * one
    assert "measured" in out


def test_the_psf_from_an_edge_restores_as_the_true_one_does(capsys):
    runpy.run_path(str(EXAMPLES / "psf_from_edge.py"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" dB")]
    blurred, measured, true = (float(line.split()[-2]) for line in lines)
    assert measured > blurred + 2
    assert true - measured < 0.2


def test_a_spectrum_comes_nearer_the_truth_by_every_method(capsys):
    runpy.run_path(str(EXAMPLES / "spectrum.py"), run_name="__main__")
    _, measured, *restored = ([float(x) for x in line[17:].split()] for line in capsys.readouterr().out.splitlines())
    assert len(restored) == 3
    for errors in restored:
        assert errors == sorted(errors)
        assert errors[0] <= 0.25 * measured[0]
        assert errors[-1] <= 0.75 * measured[-1]
