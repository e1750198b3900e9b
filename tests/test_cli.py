"""The command line: results, mistakes, help."""

import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from test_cli_files import fails, prints

import deblur
from deblur import cli, image
from deblur.cli import main
from deblur.threads import cores


@pytest.fixture
def blurred(tmp_path):
    """A blurred photograph in a file, the sharp crop, and the PSF's short form."""
    sharp = deblur.data.load("camera")[100:170, 100:160]
    picture = deblur.degrade(sharp, deblur.psf.disk(5), noise=0.002, boundary="unknown", seed=2)
    path = tmp_path / "blurred.png"
    image.write(path, picture, bits=8)
    return path, sharp[2:-2, 2:-2], "disk:5"


def test_a_blurred_png_and_a_psf_give_a_restored_png(blurred, tmp_path, capsys):
    path, sharp, psf = blurred
    before = path.read_bytes()
    out = tmp_path / "restored.png"
    assert main(["reconstruct", str(path), "-o", str(out), "--psf", psf]) == 0
    said = capsys.readouterr()
    assert all(word in said.out for word in ("method", "lambda", "residual", "unknown", str(out)))
    assert said.err == ""
    assert deblur.metrics.psnr(sharp, image.read(out)) >= deblur.metrics.psnr(sharp, image.read(path)) + 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(("shape", "axis"), [((20, 24, 3), "channel_axis"), ((4, 20, 24), "stack_axis")])
def test_a_psf_from_a_file_restores_colours_and_stacks(tmp_path, rng, shape, axis):
    psf, source, out = (tmp_path / name for name in ("psf.tif", "in.tif", "out.tif"))
    image.write(psf, deblur.psf.camera_shake(5, 1), bits=32)
    picture = rng.random(shape).astype(np.float32)
    image.write(source, picture, bits=32)
    arguments = ["--psf", str(psf), "--lam", "0.01", "--boundary", "zero"]
    assert main(["reconstruct", str(source), "-o", str(out), "-q", *arguments]) == 0
    axes = {axis: shape.index(min(shape))}
    expected = deblur.reconstruct(picture, deblur.psf.load(psf), 0.01, boundary="zero", **axes)
    assert image.read(out).shape == shape
    assert np.abs(image.read(out) - expected).max() <= 1e-4


def test_nothing_is_replaced_without_force(blurred, tmp_path, capsys):
    path, _, psf = blurred
    out = tmp_path / "out.png"
    run = ["reconstruct", path, "-o", out, "--psf", psf]
    out.write_text("precious")
    fails(capsys, run, "force")
    assert out.read_text() == "precious"
    assert main([*map(str, run), "--force", "-q"]) == 0
    assert image.read(out).ndim == 2


def test_demo_prints_every_method_and_writes_pictures(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "pictures"
    arguments = ["demo", "--size", "12", "--output", str(folder)]
    folder.mkdir()
    (folder / "demo.html").write_text("mine")
    fails(capsys, arguments, "force")  # nothing is overwritten unasked
    assert (folder / "demo.html").read_text() == "mine"
    # test_page.py draws the plots.
    monkeypatch.setattr("deblur.compare.page._plots", lambda *_: {"quality": [], "lcurves": [], "convergence": []})
    said = prints(capsys, [*arguments, "--force"]).splitlines()
    lines = {line.split()[0]: line.split() for line in said if line.strip()}
    linear = {lines[m.name][3] for m in deblur.METHODS.values() if m.linear and "zero" in lines[m.name]}
    assert len(linear) == 1  # one λ for those of a boundary
    for method in deblur.METHODS.values():
        assert ("unknown" in lines[method.name]) == (not method.linear)
        assert method.name in (folder / "demo.html").read_text()
    assert image.read(folder / "restored.png").shape == image.read(folder / "blurred.png").shape == (12, 12)


@pytest.mark.parametrize("given", ["", "--mask half.png", "--weights half.png"])
def test_better_methods_take_at_least_half_of_a_quadratic_one(given, blurred, tmp_path, capsys, monkeypatch):
    """A clock shows that it kept all cores busy for four hours."""
    path, _, psf = blurred
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "time", SimpleNamespace(process_time=iter([0, *[14400 * cores()] * 9]).__next__))
    image.write("half.png", np.indices(image.read(path).shape)[0] % 2.0)
    run = f"reconstruct {path.name} -o out.png --psf {psf} --force --clip --lam 0.01 {given}".split()
    assert "suggestion  --method tv: about 2 h; --method collaborative: about 2 h\n" in prints(capsys, run)
    assert "\nsuggestion" not in prints(capsys, [*run, "--method", "tv"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "less than a second"), (1.4, "about 1 s"), (89, "about 89 s"), (91, "about 2 min"), (5300, "about 88 min"),
     (9000, "about 2 h")],
)  # fmt: skip
def test_expected_times_are_rounded(seconds, words, capsys, monkeypatch):
    monkeypatch.setattr(cli, "expected_seconds", lambda method, pixels: seconds)
    assert f"tv            {words}\n" in prints(capsys, ["choose", "--shape", "40x44", "--psf", "disk:5"])


def test_choose_explains(capsys):
    said = prints(capsys, ["choose", "--shape", "480x640", "--psf", "disk:9", "--boundary", "periodic"])
    assert said.startswith("fft: ")
    assert re.search(r"cannot be used\n(  .*\n)*  dct  ", said)


@pytest.mark.parametrize("run", ["deblur", "deblur.cli.main(['choose'])", "deblur.cli.main(['--help'])"])
def test_what_is_not_needed_is_not_imported(run):
    code = f"import atexit, sys, deblur; atexit.register(lambda: print(*sys.modules)); {run}"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    others = {"cupy", "matplotlib", "imageio", "skimage", "tqdm", "dask", "tifffile", "PIL", "numba", "jinja2"}
    large = {f"scipy.{name}" for name in ["fft", "linalg", "ndimage", "optimize", "signal", "sparse", "special"]}
    own = {f"deblur.{name}" for name in ["compare", "matlab", "plot", "posterior"]}
    assert "deblur.terminal" in loaded
    assert not loaded & (others | large | own | ({"numpy"} if run == "deblur" else set()))


OPTIONS = {
    "linear": (["--boundary", "zero", "--method", "cholesky"], {"boundary": "zero", "method": "cholesky"}),
    "tv": (["--method", "tv", "--mask", "mask.png", "--bounds", "0,1"], {"method": "tv", "bounds": (0, 1)}),
    "automatic mask": (["--mask", "auto"], {"mask": "auto"}),
    "gamma": (["--gamma", "srgb", "--mask", "saturated"], {"gamma": "srgb", "mask": "saturated"}),
    "huber": (["--method", "tv2", "--data", "huber"], {"method": "tv2", "data": "huber"}),
    "light": (["--bounds", "nonnegative", "--background", "0.01"], {"bounds": "nonnegative", "background": 0.01}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_are_those_of_the_python_call(blurred, tmp_path, capsys, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    arguments, options = OPTIONS[case]
    picture = image.read(blurred[0])
    mask = np.zeros(picture.shape, bool)
    mask[7:9, 20] = True
    image.write("in.tif", np.where(mask, 1.0, picture), bits=32)
    image.write("mask.png", mask.astype(float), bits=8)
    run = ["reconstruct", "in.tif", "-o", "out.tif", "--psf", "gaussian:5,1", "--bits", "32", "--lam", "1e-3"]
    said = prints(capsys, [*run, *arguments])
    if "mask.png" in arguments:
        options = {**options, "mask": mask}
    expected = deblur.solve(image.read("in.tif"), deblur.psf.gaussian(5, 1.0), 1e-3, **options)
    assert np.abs(image.read("out.tif") - expected.image).max() <= 1e-6
    assert f"method      {expected.method}" in said
    assert ("\nmasked " in said) == (expected.mask is not None)
