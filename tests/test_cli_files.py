"""The command line and its files: inputs are safe, losses are reported, and each outcome has its exit code."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import deblur
from deblur import image, psf_command
from deblur.cli import main


@pytest.fixture
def psf(tmp_path):
    """A PSF in a file."""
    image.write(tmp_path / "psf.tif", deblur.psf.gaussian(5, 1), bits=32)
    return tmp_path / "psf.tif"


@pytest.fixture
def path(tmp_path, psf):
    """A photograph of 40 x 44 pixels in a file, blurred with that PSF."""
    scene = deblur.data.load("camera")[100:144, 100:148]
    image.write(tmp_path / "in.png", deblur.degrade(scene, deblur.psf.load(psf), boundary="unknown"), bits=8)
    return tmp_path / "in.png"


def fails(capsys, arguments, *words, code=2):
    """The command's one line on stderr, which holds all of `words`."""
    try:
        ended = main([str(a) for a in arguments])
    except SystemExit as end:  # argparse's way
        ended = end.code
    assert ended == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("deblur: ")
    assert said.err.count("\n") == 1, said.err
    for word in words:
        assert word in said.err, said.err


def prints(capsys, arguments):
    """What the command prints where it succeeds."""
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def reconstruct(*arguments):
    """The exit code of ``deblur reconstruct`` with these arguments."""
    return main(["reconstruct", *map(str, arguments)])


def heed_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(*arguments, encoding=None, **options):
    """The command in a process of its own."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding} if encoding else None
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment} | options
    return subprocess.run([sys.executable, "-m", "deblur", *map(str, arguments)], **options)


# -- inputs are never overwritten --------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("psf convert volume:h.tif -o h.tif", "h.tif"),
        ("psf check g.tif --psf volume:h.tif --picture h.tif", "h.tif"),
        ("demo --size 20 --psf blurred.png --output .", "blurred.png"),
    ],
)
def test_no_psf_is_overwritten_by_any_command(tmp_path, monkeypatch, capsys, command, target):
    monkeypatch.chdir(tmp_path)
    for name, pixels in (("g.tif", np.eye(70)), ("h.tif", np.ones((3, 5, 5))), ("blurred.png", np.eye(5))):
        image.write(name, pixels, bits=32 if name.endswith("tif") else 8)
    before = Path(target).read_bytes()
    fails(capsys, [*command.split(), "--force"], "inputs are never overwritten")
    assert Path(target).read_bytes() == before


@pytest.mark.parametrize("which", ["psf", "mask", "weights", "input"])
def test_no_input_is_overwritten_even_with_force(path, psf, capsys, which):
    """`test_an_input_is_never_written_over` has the names and links under which it may be written to."""
    mask = path.with_name("mask.tif")
    image.write(mask, np.eye(40, 44), bits=8)
    weights = path.with_name("weights.tif")
    image.write(weights, np.ones((40, 44)), bits=32)
    target = {"psf": psf, "mask": mask, "weights": weights, "input": path}[which]
    before = target.read_bytes()
    run = ["reconstruct", path, "--psf", psf, "--mask", mask, "--weights", weights, "-o", target, "--force"]
    fails(capsys, run, "inputs are never overwritten", str(target))
    assert target.read_bytes() == before


# -- values outside of the levels -------------------------------------------------------------------


def test_float_counts_in_a_png_are_refused_rescaled_or_clipped(path, psf, tmp_path, capsys):
    tifffile.imwrite(tmp_path / "counts.tif", (100 * image.read(path) + 50).astype(np.float32))
    out = tmp_path / "out.png"
    run = ["reconstruct", tmp_path / "counts.tif", "--psf", psf, "--lam", "1e-2", "-o", out]
    fails(capsys, run, "out.png", "100 % of the values", "--rescale", "--clip")
    fails(capsys, [*run, "-q"], "100 % of the values")
    fails(capsys, ["reconstruct", path, *run[2:], "--bounds", "5,6"], "100 % of the values", "5 to ")
    assert not out.exists()
    assert "became black to white" in prints(capsys, [*run, "--rescale"])
    levels = image.read(out, as_float=False)
    assert (levels.min(), levels.max()) == (0, 255)
    assert "100 % of the values clipped" in prints(capsys, [*run, "--clip", "--force"])
    assert (image.read(out) == 1).all()


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int32])
def test_counts_in_an_integer_tiff_keep_their_unit(path, psf, tmp_path, capsys, dtype):
    counts = np.rint(1000 * image.read(path) + 200)
    tifffile.imwrite(tmp_path / "counts.tif", counts.astype(dtype))
    run = ["reconstruct", tmp_path / "counts.tif", "--psf", psf, "--lam", "1e-2", "-o"]
    assert np.dtype(dtype).name in prints(capsys, [*run, tmp_path / "out.tif"])
    # The formula is linear, so the counts themselves give the same as floating point, to the rounding of float32.
    expected = deblur.reconstruct(counts, deblur.psf.load(psf), 1e-2, boundary="unknown", prior="smooth")
    found = image.read(tmp_path / "out.tif")
    assert np.abs(found - expected).max() <= 8 * np.finfo(np.float32).eps * expected.max()
    fails(capsys, [*run, tmp_path / "out.png"], "0 (black) to 255 (white)", "--rescale")
    assert main([str(a) for a in [*run, tmp_path / "out.png", "--bits", "16", "-q"]]) == 0
    assert np.abs(image.read(tmp_path / "out.png", as_float=False) - expected).max() <= 0.501


# -- metadata ----------------------------------------------------------------------------------


def test_metadata_is_kept_and_dropped_metadata_is_reported(path, psf, tmp_path, capsys):
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 6
    with Image.open(path) as picture:
        picture.save(tmp_path / "in.jpg", exif=exif, dpi=(300, 300), comment=b"by hand")
    out = tmp_path / "out.jpg"
    run = ["reconstruct", tmp_path / "in.jpg", "--psf", psf, "--lam", "1e-2", "-o", out]
    said = prints(capsys, run).splitlines()
    assert any(line.startswith("rotated     upright from orientation 6 of") for line in said)
    lines = [line for line in said if line.startswith("dropped")]
    assert lines == [f"dropped     metadata that {out} cannot hold: comment"]
    with Image.open(out) as written:
        assert written.getexif()[271] == "Maker"
        assert written.getexif().get(274, 1) == 1
        assert written.info["dpi"] == (300, 300)
    assert "dropped" not in prints(capsys, ["reconstruct", path, "--psf", psf, "-o", tmp_path / "b.png"])


def test_a_psf_file_is_turned_with_a_picture_held_sideways(tmp_path):
    """The sensor, and with it its PSF, is the same in all eight orientations, so the restorations are."""
    scene, h = deblur.data.load("camera")[100:150, 100:160], np.zeros((6, 7))
    h[1, 1:5], h[1:, 1] = 1, 2
    deblur.psf.save(tmp_path / "psf.npy", h)
    np.save(tmp_path / "grid.npy", np.stack([h / h.sum()] * 6).reshape(2, 3, 6, 7))
    blurred = np.rint(255 * deblur.degrade(scene, h / h.sum(), boundary="unknown")).astype(np.uint8)
    found = {"--psf psf.npy": [], "--psf-grid grid.npy": []}
    run = [tmp_path / "in.png", "-o", tmp_path / "out.tif", "--bits", "32", "--lam", "1e-3", "--force", "-q"]
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[274] = orientation
        Image.fromarray(blurred).save(tmp_path / "in.png", exif=exif)
        for given, restored in found.items():
            option, name = given.split()
            assert reconstruct(*run, option, tmp_path / name) == 0
            lies = [0, 1, 2, 3, 4, 5, 8, 7, 6][orientation]  # which undoes this orientation
            restored.append(image.upright(image.read(tmp_path / "out.tif"), lies))
    for restored in found.values():
        for other in restored[1:]:
            np.testing.assert_allclose(other, restored[0], atol=1e-3)
    # A form describes the picture as it is seen.
    np.testing.assert_array_equal(psf_command.upright(("motion:5,0", h, None), 6), h)


def fits_with_nan(folder):
    """A FITS file with NaN, with the images that hide it; and what tv makes of its image."""
    fits = pytest.importorskip("astropy.io.fits")
    picture = deblur.degrade(deblur.data.load("camera")[100:144, 100:148], deblur.psf.gaussian(5, 1))
    picture = picture.astype(np.float32)
    hidden = np.zeros(picture.shape, bool)
    hidden[9:12, 20:23] = True
    parts = {"SCI": np.where(hidden, np.nan, picture), "DQ": hidden.astype(np.uint8)}
    parts["WHT"] = np.where(hidden, np.nan, 1).astype(np.float32)
    parts["HALF"] = parts["DQ"] * np.eye(*hidden.shape, dtype=np.uint8)
    units = [fits.PrimaryHDU(), *(fits.ImageHDU(a, name=name) for name, a in parts.items())]
    fits.HDUList(units).writeto(folder / "a.fits")
    return deblur.reconstruct(picture, deblur.psf.gaussian(5, 1), 1e-3, method="tv", mask=hidden)


def test_nan_that_a_file_hides_is_no_reason_to_refuse(tmp_path, capsys):
    expected, path = fits_with_nan(tmp_path), tmp_path / "a.fits"
    run = ["reconstruct", f"{path}[SCI]", "-o", tmp_path / "out.fits"]
    run += ["--psf", "gaussian:5,1", "--lam", "1e-3", "--method", "tv", "--force", "-q"]
    for option, which in (("--mask", "DQ"), ("--weights", "WHT")):
        assert reconstruct(*run[1:], option, f"{path}[{which}]") == 0
        np.testing.assert_allclose(image.read(tmp_path / "out.fits"), expected, atol=1e-6)
    before = path.read_bytes()
    for more in ([], ["--mask", f"{path}[HALF]"]):
        fails(capsys, [*run, *more], "a.fits[SCI] holds", "NaN", "--mask FILE", "--weights FILE")
    fails(capsys, [*run, "--weights", f"{path}[WHT]", "-o", path], "-o was given twice")
    run[3] = path
    fails(capsys, [*run, "--weights", f"{path}[WHT]"], "inputs are never overwritten")
    assert path.read_bytes() == before


@pytest.mark.parametrize(("axes", "words"), [("TYX", "3 time points"), ("ZYX", "3 planes"), (None, "3 pages")])
def test_planes_of_a_volume_are_restored_one_by_one_only_if_asked(tmp_path, capsys, axes, words):
    levels = np.full((3, 20, 24), 99, np.uint8)
    options = {"imagej": True, "metadata": {"axes": axes}} if axes else {"photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "in.tif", levels, **options)
    run = ["reconstruct", tmp_path / "in.tif", "-o", tmp_path / "out.tif", "--psf", "box:3", "--lam", "1e-2"]
    if axes == "ZYX":
        fails(capsys, run, "is a volume (ZYX)", "--planes", "give a 3-D PSF")
        run += ["--planes"]
    else:
        fails(capsys, [*run, "--planes"], "--planes does nothing here")
    assert f"{words} of 20 x 24, each restored by itself" in prints(capsys, run)


def test_a_sky_with_stars_is_given_a_hint_and_a_photograph_none(path, psf, tmp_path, capsys, rng):
    sky = np.full((60, 64), 200.0)
    sky[rng.integers(5, 55, 9), rng.integers(5, 55, 9)] = 10 ** rng.uniform(4, 6, 9)
    counts = rng.poisson(deblur.degrade(sky, deblur.psf.gaussian(9, 1.5), boundary="reflect"))
    tifffile.imwrite(tmp_path / "sky.tif", counts.astype(np.float32))
    stars = ["reconstruct", tmp_path / "sky.tif", "-o", tmp_path / "out.tif", "--psf", "gaussian:9,1.5", "--force"]
    people = ["reconstruct", path, "-o", tmp_path / "out.png", "--psf", psf]
    shown = [prints(capsys, run).splitlines() for run in (stars, people, [*stars, "--bounds", "nonnegative"])]
    (hint,), *others = ([line for line in lines if "--background" in line] for lines in shown)
    assert others == [[], []]
    assert hint.endswith("--bounds nonnegative --data poisson")
    assert reconstruct(*stars[1:], *hint.partition(" try ")[2].split()) == 0
    assert image.read(tmp_path / "out.tif").min() >= 0


# -- one line ------------------------------------------------------------------------------------


def test_help_states_the_units_and_every_method_boundary_and_psf(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")  # argparse breaks lines at hyphens
    with pytest.raises(SystemExit) as caught:
        main(["reconstruct", "--help"])
    assert caught.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    _, *entries = said.split(" --")  # an option each, with its help
    helps = {entry.split()[0]: entry for entry in entries}
    assert all("on the scale of the" in helps[option] for option in ("background", "noise"))
    assert "scale of the image 0 is black and 1 the largest number of an integer image (255 of 8" in said
    for word in (*deblur.METHODS, *deblur.BOUNDARIES, "gaussian:SIZE", "gcv", "discrepancy"):
        assert word in said


# -- pipes and encodings -------------------------------------------------------------------------


def test_a_picture_through_a_pipe(path, psf, tmp_path):
    arguments = ["--psf", psf, "--lam", "1e-2", "-q", "-o"]
    assert main([str(a) for a in ("reconstruct", path, *arguments, tmp_path / "a.png")]) == 0
    done = command("reconstruct", "/dev/stdin", *arguments, tmp_path / "b.png", input=path.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    done = command("reconstruct", "/dev/stdin", *arguments, tmp_path / "c.png", input=b"")
    assert done.returncode == 2
    assert b"/dev/stdin is empty" in done.stderr


def test_stdout_without_greek_letters_is_no_failure(path, psf, tmp_path):
    run = ["reconstruct", path, "--psf", psf, "--method", "tv", "--lam", "1e-3", "-o", tmp_path / "a.png"]
    done = command(*run, encoding="ascii")
    assert (done.returncode, done.stderr) == (0, b"")  # nor progress: it is a pipe
    assert b"written" in done.stdout
    done = command(*run, encoding="ascii")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    done = command("reconstruct", "--help", encoding="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"regularisation parameter ?" in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_closed_or_full_stdout_is_no_failure(path, psf, tmp_path):
    run = ["reconstruct", path, "--psf", psf, "--lam", "1e-2", "-o"]
    with open("/dev/full", "wb") as full:
        done = command(*run, tmp_path / "a.png", stdout=full)
    assert done.returncode == 0
    assert done.stderr.decode().startswith("deblur: done, but stdout cannot be written: No space left")
    assert done.stderr.count(b"\n") == 1
    reading, writing = os.pipe()
    os.close(reading)
    done = command(*run, tmp_path / "b.png", stdout=writing)
    assert (done.returncode, done.stderr) == (0, b"")
    done = command("choose", "--shape", "40x44", "--psf", psf, stdout=writing)
    assert (done.returncode, done.stderr) == (141, b"")
    os.close(writing)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


# -- Ctrl-C --------------------------------------------------------------------------------------


def interrupted_after(arguments, marker, **options):
    """The command with SIGINT sent as soon as `marker` stands in its trace of imports; (code, stderr)."""
    lines = []
    sent = False
    with subprocess.Popen(
        [sys.executable, "-v", "-m", "deblur", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=heed_ctrl_c,
        **options,
    ) as process:
        for line in process.stderr:
            lines.append(line)
            if not sent and marker in line:
                process.send_signal(signal.SIGINT)
                sent = True
    assert sent, marker
    return process.returncode, b"".join(lines)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(
    "module", [b"import 'deblur.terminal'", b"import 'numpy._core'", b"import 'scipy.linalg'", b"import 'deblur.cli'"]
)
def test_an_interrupted_import_prints_one_line(path, psf, module):
    out = path.with_name("out.png")
    code, said = interrupted_after(["reconstruct", path, "--psf", psf, "-o", out], module)
    assert code == 130
    assert b"Traceback" not in said
    assert said.count(b"deblur: interrupted") == 1
    assert not out.exists()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_interrupted_at_any_moment_it_leaves_nothing_half_done(path, psf):
    before = sorted(os.listdir(path.parent))
    codes = set()
    run = ["--psf", psf, "--method", "tv", "--rtol", "1e-9", "--max-iterations", "3000", "--lam", "1e-3"]
    for delay in np.linspace(0.2, 2.2, 4):
        process = subprocess.Popen(
            [sys.executable, "-m", "deblur", "reconstruct", path, *run, "-o", path.with_name("out.png")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=heed_ctrl_c,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        codes.add(process.returncode)
        whole = path.with_name("out.png")
        if whole.exists():
            assert image.read(whole).shape == (40, 44)
            whole.unlink()
        if process.returncode == 130:
            assert said == b"deblur: interrupted; no file is left half written\n"
        assert sorted(os.listdir(path.parent)) == before
    assert 130 in codes
    # Before Python has come to our first line the signal ends it as it ends any program.
    assert codes <= {130, 0, 1, -signal.SIGINT}


def test_a_program_that_imports_deblur_keeps_its_own_ctrl_c():
    code = "import deblur, signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, preexec_fn=heed_ctrl_c)
    assert done.stdout == b"True\n"


def test_an_interrupted_command_removes_its_partial_file(path, psf, monkeypatch, capsys):
    before = sorted(os.listdir(path.parent))

    def late(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", late)
    run = ["reconstruct", path, "--psf", psf, "--lam", "1e-2", "-o", path.with_name("out.png")]
    fails(capsys, run, "interrupted", code=130)
    assert sorted(os.listdir(path.parent)) == before


def stack_of(tmp_path, frames, dtype=np.uint16):
    """A stack of levels in a file, with three axes of grey ones, with four of colours."""
    white = np.iinfo(dtype).max
    levels = np.clip(np.rint(white * np.asarray(frames)), 0, white).astype(dtype)
    tifffile.imwrite(tmp_path / "stack.tif", levels, photometric="minisblack" if levels.ndim == 3 else "rgb")
    return tmp_path / "stack.tif", levels


@pytest.mark.parametrize(("together", "colour"), [(1, False), (1 << 20, False), (1, True)])
def test_a_stack_restored_in_parts_equals_the_whole(tmp_path, monkeypatch, rng, together, colour):
    scene = deblur.data.load("camera")[100:144, 100:148]
    frames = np.stack([deblur.degrade(scene, deblur.psf.gaussian(5, 1), noise=0.01, seed=i) for i in range(6)])
    source, levels = stack_of(tmp_path, frames.reshape(2, 3, 44, 48).transpose(0, 2, 3, 1) if colour else frames)
    monkeypatch.setattr(deblur.methods, "TOGETHER", together)
    assert reconstruct(source, "-o", tmp_path / "out.tif", "--psf", "gaussian:5,1", "--clip") == 0
    whole = deblur.reconstruct(levels, deblur.psf.gaussian(5, 1), stack_axis=0, channel_axis=3 if colour else None)
    image.write(tmp_path / "whole.tif", whole, bits=16)
    np.testing.assert_array_equal(*(tifffile.imread(tmp_path / name) for name in ("out.tif", "whole.tif")))


def test_a_stack_is_never_in_memory_in_floating_point(tmp_path, monkeypatch, rng):
    import tracemalloc

    source, levels = stack_of(tmp_path, 0.5 + 0.1 * rng.standard_normal((22, 128, 128, 3)))
    monkeypatch.setattr(deblur.methods, "TOGETHER", 1)
    options = ["--psf", "gaussian:5,1", "--lam", "1e-2", "--boundary", "reflect", "--clip", "-q"]
    tracemalloc.start()
    try:
        assert reconstruct(source, "-o", tmp_path / "out.tif", *options) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * levels.nbytes
