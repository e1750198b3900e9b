"""The command line, as a person meets it."""

import re
import subprocess
import sys

import numpy as np
import pytest

import deblur
from deblur import cli, image
from deblur.cli import main


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
    for word in ("method", "lambda", "residual", "unknown", str(out)):
        assert word in said.out
    assert said.err == ""
    restored = image.read(out)
    assert deblur.metrics.psnr(sharp, restored) >= deblur.metrics.psnr(sharp, image.read(path)) + 1
    assert path.read_bytes() == before


def test_it_is_the_python_call(blurred, tmp_path):
    path, _, _ = blurred
    out = tmp_path / "restored.tif"
    arguments = ["--psf", "gaussian:7,1.2", "--lam", "1e-3", "--boundary", "zero", "--method", "cholesky"]
    assert main(["reconstruct", str(path), "-o", str(out), *arguments, "--bits", "32", "-q"]) == 0
    raw = image.read(path, as_float=False)
    expected = deblur.reconstruct(raw, deblur.psf.gaussian(7, 1.2), 1e-3, boundary="zero", method="cholesky")
    assert np.abs(image.read(out) - expected).max() <= 1e-6


def test_a_psf_from_a_file_and_a_colour_image_and_a_stack(tmp_path):
    rng = np.random.default_rng(0)
    psf = deblur.psf.camera_shake(5, 1)
    image.write(tmp_path / "psf.tif", psf, bits=32)
    colour = rng.random((20, 24, 3)).astype(np.float32)
    stack = rng.random((4, 20, 24)).astype(np.float32)
    for name, picture in (("colour", colour), ("stack", stack)):
        image.write(tmp_path / f"{name}.tif", picture, bits=32)
        out = tmp_path / f"{name}_out.tif"
        arguments = ["--psf", str(tmp_path / "psf.tif"), "--lam", "0.01", "--boundary", "zero"]
        assert main(["reconstruct", str(tmp_path / f"{name}.tif"), "-o", str(out), "-q", *arguments]) == 0
        axes = {"channel_axis": -1} if name == "colour" else {"stack_axis": 0}
        expected = deblur.reconstruct(
            picture, deblur.psf.load(tmp_path / "psf.tif"), 0.01, boundary="zero", **axes
        )
        assert image.read(out).shape == picture.shape
        assert np.abs(image.read(out) - expected).max() <= 1e-4


def test_depth_is_kept(tmp_path):
    rng = np.random.default_rng(0)
    for bits, dtype in ((8, np.uint8), (16, np.uint16)):
        image.write(tmp_path / f"in{bits}.png", rng.random((16, 16)), bits=bits)
        out = tmp_path / f"out{bits}.png"
        run = ["reconstruct", str(tmp_path / f"in{bits}.png"), "-o", str(out), "--psf", "box:3", "-q"]
        assert main([*run, "--lam", "1"]) == 0
        assert image.read(out, as_float=False).dtype == dtype


def fails(capsys, arguments, *words, code=2):
    assert main([str(a) for a in arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("deblur: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err, said.err


def test_mistakes_get_one_line_and_write_nothing(blurred, tmp_path, capsys):
    path, _, psf = blurred
    out = tmp_path / "out.png"
    run = ["reconstruct", path, "-o", out, "--psf", psf]
    fails(capsys, ["reconstruct", tmp_path / "none.png", "-o", out, "--psf", psf], "none.png")
    text = tmp_path / "text.png"
    text.write_text("no image at all")
    fails(capsys, ["reconstruct", text, "-o", out, "--psf", psf], "text.png")
    fails(capsys, ["reconstruct", path, "-o", path, "--psf", psf, "--force"], "input")
    fails(capsys, ["reconstruct", path, "-o", tmp_path / "no" / "out.png", "--psf", psf], "no")
    fails(capsys, ["reconstruct", path, "-o", tmp_path / "out.xyz", "--psf", psf], ".xyz")
    fails(capsys, ["reconstruct", path, "-o", out, "--psf", "gaussian:101,9"], "larger than the image")
    fails(capsys, [*run, "--method", "fft"], "periodic")
    fails(capsys, [*run, "--formula", "hht"], "hht")
    fails(capsys, [*run, "--rtol", "7"], "rtol")
    fails(capsys, [*run, "--method", "pcg", "--lam", "1e-6", "--max-iterations", "1"], "converge", code=1)
    assert not out.exists()
    out.write_text("precious")
    fails(capsys, run, "force")
    assert out.read_text() == "precious"
    assert main([*map(str, run), "--force", "-q"]) == 0
    assert image.read(out).ndim == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["magic"],
        ["reconstruct", "x.png", "--psf", "box:3"],
        ["reconstruct", "x.png", "-o", "y.png", "--psf", "nonsense:3"],
        ["reconstruct", "x.png", "-o", "y.png", "--psf", "box:3", "--lam", "-1"],
        ["reconstruct", "x.png", "-o", "y.png", "--psf", "box:3", "--lam", "best"],
        ["reconstruct", "x.png", "-o", "y.png", "--psf", "box:3", "--method", "magic"],
        ["reconstruct", "x.png", "-o", "y.png", "--psf", "box:3", "--boundary", "mirror"],
    ],
)
def test_usage_errors_exit_with_2_and_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: deblur" in capsys.readouterr().err


def test_help_names_every_method_boundary_and_psf(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")  # argparse breaks lines at hyphens
    with pytest.raises(SystemExit) as caught:
        main(["reconstruct", "--help"])
    assert caught.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for word in (*deblur.METHODS, *deblur.BOUNDARIES, "gaussian:SIZE", "gcv", "discrepancy"):
        assert word in said


def test_demo_prints_every_method_and_writes_pictures(tmp_path, capsys):
    folder = tmp_path / "pictures"
    arguments = ["demo", "--size", "12", "--output", str(folder)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    for method in deblur.METHODS.values():
        assert method.name in lines
        if not method.linear:
            assert lines[method.name].split()[1] == "unknown"
            assert float(lines[method.name].split()[3]) != float(
                lines["auto:"].split()[4]
            )  # λ means another thing
    for name in ("demo.png", "blurred.png", "restored.png"):
        assert (folder / name).stat().st_size > 0
    assert image.read(folder / "restored.png").shape == (12, 12)
    assert main(arguments) == 2  # pictures are never overwritten unasked
    assert "force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_what_would_be_better_is_said_after_a_linear_restoration(blurred, tmp_path, capsys):
    path, _, psf = blurred
    run = [
        "reconstruct",
        str(path),
        "--psf",
        psf,
        "--force",
        "--clip",
        "-o",
        str(tmp_path / "out.png"),
        "--lam",
        "0.01",
    ]
    assert main(run) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("better"))
    assert re.search(r"--method tv: (about \d+ s|less than a second); --method collaborative: ", line)
    assert main([*run, "--method", "tv"]) == 0
    assert "\nbetter" not in capsys.readouterr().out
    words = [cli._about(s) for s in (0.2, 1.4, 25.2, 89, 91, 5300, 9000)]
    expected = [
        "less than a second",
        "about 1 s",
        "about 25 s",
        "about 89 s",
        "about 2 min",
        "about 88 min",
        "about 2 h",
    ]
    assert words == expected


def test_choose_explains(capsys):
    assert main(["choose", "--shape", "480x640", "--psf", "disk:9", "--boundary", "periodic"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("fft: the cheapest")
    assert "separable" in said
    fails(capsys, ["choose", "--shape", "480x", "--psf", "disk:9"], "ROWSxCOLUMNS")


def test_in_a_pipe_there_is_no_progress_bar_and_no_traceback(blurred, tmp_path):
    path, _, psf = blurred
    command = [sys.executable, "-m", "deblur", "reconstruct", str(path), "--psf", psf, "--method", "pcg"]
    done = subprocess.run([*command, "-o", str(tmp_path / "a.png")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    done = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("what", ["deblur", "deblur.cli"])
def test_import_is_light(what):
    code = f"import sys, {what}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    others = {"cupy", "matplotlib", "imageio", "skimage", "tqdm", "dask", "tifffile", "PIL", "numba"}
    large = {"scipy.ndimage", "scipy.optimize", "scipy.signal"}
    own = {
        "deblur.compare",
        "deblur.matlab",
        "deblur.plot",
        "deblur.posterior",
        "deblur.tiles.stores",
        "deblur.psf.points",
    }
    assert not loaded & (others | large | own)
