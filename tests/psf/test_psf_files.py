"""PSFs from files and from the command line's short forms."""

import contextlib
import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import tifffile
from refusals import refused

import deblur
from deblur import image, psf
from deblur.errors import InsufficientMemoryError


@contextlib.contextmanager
def little_memory():
    """Fails if more than 10 MiB are allocated inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


TABLE = np.array([[1.0, 2, 3], [4, 5, 6]])


@pytest.fixture
def saved(tmp_path):
    def save(name, content):
        path = tmp_path / name
        if isinstance(content, dict):
            np.savez(path, **content)
        elif isinstance(content, str):
            path.write_text(content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".npy"):
            np.save(path, content)
        elif name.endswith(".tif"):
            tifffile.imwrite(path, content)
        else:
            image.write(path, content)
        return path

    return save


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.npy", TABLE),
        ("h.npy", TABLE.astype(np.int16)),
        ("h.npz", {"anything": TABLE}),
        ("h.npz", {"psf": TABLE, "other": np.zeros(3)}),
        ("h.csv", "1,2,3\n4,5,6\n"),
        ("h.csv", "\ufeff1; 2; 3\n4; 5; 6\n"),
        ("h.txt", "# a comment\n1 2 3\n4 5 6"),
        ("h.tif", TABLE.astype(np.float32)),
        ("h.png", TABLE.astype(np.uint8)),
        ("h.png", TABLE.astype(np.uint16)),
        ("h.png", np.repeat(TABLE.astype(np.uint8)[..., None], 3, axis=-1)),
    ],
)
def test_load_reads_every_kind_of_file_and_normalises(saved, name, content):
    h = psf.load(saved(name, content))
    assert h.dtype == np.float64
    np.testing.assert_allclose(h, TABLE / 21, rtol=1e-6)
    assert abs(h.sum() - 1) <= 1e-15


def test_load_keeps_the_values_when_asked(saved):
    refused(ValueError, "sum is zero or less", psf.load, saved("z.npy", -TABLE), allow_negative=True)
    np.testing.assert_array_equal(psf.load(saved("h.npy", TABLE), normalize=False), TABLE)
    signed = np.array([[0.0, -1, 0], [-1, 5, -1], [0, -1, 0]])
    np.testing.assert_array_equal(psf.load(saved("s.npy", signed), allow_negative=True), signed)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("h.npy", np.array([[1.0, np.nan]]), "NaN.*a PSF is light, so set them to 0"),
        ("h.npy", np.array([[1.0, -0.1]]), "allow_negative"),
        ("h.npy", np.ones(4), "2-D"),
        ("h.npy", np.ones((3, 4, 3)), "volume=True .* volume:.*h.npy.* 3 2-D"),  # 3 columns are no 3 colours
        ("volume.tif", np.ones((2, 2, 2), np.float32), "2 2-D PSFs"),
        ("h.npy", np.ones((0, 2)), "non-empty"),
        ("h.npy", np.ones((2, 2), complex), "not real"),
        ("h.npy", np.array([["a"]]), "not real"),
        ("h.npy", np.array([[None]]), "not a NumPy array of numbers, or was cut short"),
        ("h.npy", b"\x93NUMPY\x01", "not a NumPy array of numbers, or was cut short"),
        ("h.npz", b"PK\x03\x04 broken", "cannot use"),
        ("h.npz", {"a": TABLE, "b": TABLE}, "name one of them"),
        ("h.csv", "1,2\n\n3 # of two\n", "lines hold different numbers of values"),
        ("h.csv", "a,b\n", "row 1, column 1 holds 'a', not a number; remove headings"),
        ("h.txt", "# two\n1 2\n3 x2 # three\n", "row 3, column 2 holds 'x2', not a number"),
        ("h.csv", "0,1;0,2\n0,3;0,4\n", "commas and semicolons in one line: write 0.5 for 0,5"),
        pytest.param("h.txt", "\n\n", "no numbers", id="blank lines"),
        ("h.txt", "", "0 bytes"),
        ("h.png", np.stack([TABLE.astype(np.uint8)] * 2 + [TABLE.astype(np.uint8) + 1], axis=-1), "colours"),
        ("h.png", b"no image at all", "cannot read"),
        ("h.tif", np.full((3, 3), np.nan, np.float32), "NaN"),
    ],
)
def test_load_says_what_is_wrong(saved, name, content, words):
    path = saved(name, content)
    with pytest.raises(ValueError, match=words) as caught:
        psf.load(path)
    assert str(path) in str(caught.value)


FORMS = {
    "gaussian:9,1.2": psf.gaussian(9, 1.2),
    " Gaussian : 9x7 , 1.2 ": psf.gaussian((9, 7), 1.2),
    "disk:7": psf.disk(7),
    "disk:7,2.5": psf.disk(7, 2.5),
    "motion:15,30": psf.motion(15, 30),
    "motion:15": psf.motion(15),
    "box:5": psf.box(5),
    "moffat:15,3": psf.moffat(15, 3),
    "moffat:15,3,2.5": psf.moffat(15, 3, 2.5),
    "airy:15,4": psf.airy(15, 4),
    "shake:17,3": psf.camera_shake(17, 3),
    "delta:3": psf.delta(3),
    "gaussian:5x7x7,2x1": psf.gaussian((5, 7, 7), (2, 1, 1)),
    "microscope:3x5x5,.3x.1,.5,1.2,1.4x1.33x2,.1,gibson-lanni": psf.microscope(
        (3, 5, 5), (0.3, 0.1), wavelength=0.5, na=1.2, index=(1.4, 1.33, 2), z=0.1, model="gibson-lanni"
    ),
    "confocal:5,.1,.4,.5,1.2,1.4": psf.confocal(5, 0.1, excitation=0.4, emission=0.5, na=1.2, index=1.4),
    "lightsheet:5,.1,.5,.8,2,1.4": psf.light_sheet(5, 0.1, wavelength=0.5, na=0.8, sheet=2.0, index=1.4),
}


@pytest.mark.parametrize("text", FORMS)
def test_parse_builds_the_named_psf(text):
    np.testing.assert_array_equal(psf.parse(text), FORMS[text])


def test_parse_reads_a_file(saved):
    np.testing.assert_allclose(psf.parse(str(saved("h.csv", "1,2,3\n4,5,6\n"))), TABLE / 21, rtol=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "gauss:9,1", "gaussian", "nothere.png", "gaussian:9", "gaussian:9,1,1", "box:", "box:x"),
        *("disk:a", "shake:17,1.5", "box:3x", "motion:1,2,3", "gaussian:9.5,1", "\0"),
    ],
)
def test_parse_lists_the_forms_when_it_does_not_understand(text):
    with pytest.raises(ValueError) as caught:
        psf.parse(text)
    for form in psf.FORMS:
        assert form in str(caught.value)
    assert ("did you mean gaussian:SIZE,SIGMA?" in str(caught.value)) == (text in ("gauss:9,1", "gaussian"))


@pytest.mark.parametrize(
    "text", ["gaussian:0,1", "gaussian:9,-1", "motion:0.2", "moffat:9,3,1", "disk:7,nan", "microscope:8,1,1,1"]
)
def test_parse_repeats_what_the_builder_says(text):
    with pytest.raises(ValueError, match="must be") as caught:
        psf.parse(text)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("gaussian:9999999,1", "box:1000000", "motion:1e9,30", "motion:1e300", "disk:99999999"),
        "shake:9999999x9999999,1",
    ],
)
def test_parse_bounds_the_size_before_it_takes_memory(text):
    with little_memory(), pytest.raises(InsufficientMemoryError, match="takes .* free; use a smaller") as caught:
        psf.parse(text)
    assert text in str(caught.value)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (2**40, 2**40), (30000, 30000)])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_load_of_a_header_that_promises_more_than_the_file_holds(tmp_path, suffix, shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    path = tmp_path / f"h{suffix}"
    if suffix == ".npy":
        path.write_bytes(buffer.getvalue() + bytes(80))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("psf.npy", buffer.getvalue() + bytes(80))
    with little_memory(), pytest.raises(ValueError, match=r"h.np.* header promises .* and it has 208 bytes"):
        psf.load(path)


def test_a_psf_too_large_for_the_memory_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("deblur.device.free_memory", lambda xp: 1000)
    for name in ("a.npz", "a.npy"):
        psf.save(tmp_path / name, np.ones((30, 30)))
        refused(InsufficientMemoryError, rf"{name}: an array of shape \(30, 30\)", psf.load, tmp_path / name)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_psf_turns_with_the_picture_that_it_blurs(tmp_path, rng, orientation):
    """Blurring and turning commute, for sides of any parity; grids of PSFs keep each at its place."""
    f = rng.random((24, 28))
    for shape in ((5, 7), (4, 7), (4, 6), (1, 2)):
        h = rng.random(shape)
        blurred = image.upright(deblur.degrade(f, h, boundary="zero"), orientation)
        turned = psf.upright(h, orientation)
        found = deblur.degrade(image.upright(f, orientation), turned, boundary="zero")
        np.testing.assert_allclose(found, blurred, atol=1e-14)
        grid = psf.upright(np.arange(6).reshape(2, 3, 1, 1) * h, orientation)
        np.testing.assert_array_equal(grid[0, 0], turned * image.upright(np.arange(6).reshape(2, 3), orientation)[0, 0])
        psf.save(tmp_path / "a.npy", turned, overwrite=True, orientation=orientation)  # as the sensor has it
        again = psf.upright(psf.load(tmp_path / "a.npy", normalize=False), orientation)
        found = deblur.degrade(image.upright(f, orientation), again, boundary="zero")
        np.testing.assert_allclose(found, blurred, atol=1e-14)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv", "a.txt", "a.tif"])
def test_what_is_saved_is_loaded(tmp_path, name):
    h = psf.camera_shake((8, 9), 1)
    psf.save(tmp_path / name, h)
    assert np.abs(psf.load(tmp_path / name) - h).max() < (1e-7 if name == "a.tif" else 1e-15)
    refused(FileExistsError, "is there already", psf.save, tmp_path / name, h)
    psf.save(tmp_path / name, h, overwrite=True)
    refused(ValueError, "is written to", psf.save, tmp_path / "a.xyz", h)
    deep = h * np.array([1, 3, 2]).reshape(3, 1, 1) / 6
    if name in ("a.csv", "a.txt"):
        refused(ValueError, r"\(3, 8, 9\) to .npy, .npz or .tif", psf.save, tmp_path / name, deep, overwrite=True)
    else:
        psf.save(tmp_path / name, deep, overwrite=True)
        text = str(tmp_path / name)
        assert np.abs(psf.parse(text if name == "a.tif" else f"volume:{text}") - deep).max() < 1e-7
        refused(ValueError, r"2-D array, not of shape \(3, 8, 9\)", psf.load, tmp_path / name, volume=False)


def test_matlab_and_fits_files_are_read(tmp_path):
    import scipy.io

    h = psf.camera_shake((8, 9), 1)
    scipy.io.savemat(tmp_path / "a.mat", {"psf": h, "other": np.ones((3, 3)), "note": "x"})
    assert np.allclose(psf.load(tmp_path / "a.mat"), h)
    scipy.io.savemat(tmp_path / "b.mat", {"k": h})
    assert np.allclose(psf.load(tmp_path / "b.mat"), h)
    scipy.io.savemat(tmp_path / "c.mat", {"k": h, "l": h})
    refused(ValueError, "name one of them 'psf'", psf.load, tmp_path / "c.mat")
    (tmp_path / "d.mat").write_bytes(b"MATLAB 7.3 no more than a head")
    refused(ValueError, r"cannot use .*d\.mat as a PSF", psf.load, tmp_path / "d.mat")
    pytest.importorskip("astropy.io.fits").writeto(tmp_path / "a.fits", h.astype(">f4"))
    assert np.abs(psf.load(tmp_path / "a.fits") - h).max() < 1e-7
