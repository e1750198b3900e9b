"""The sample images: whole, as described, and made of what the table says."""

import hashlib
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from deblur import data

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", data.names())
def test_each_image_is_as_described(name):
    image, about = data.load(name), data.info(name)
    assert (image.dtype, image.shape) == (np.float64, about.shape)
    assert image.min() >= 0
    assert image.max() <= 1
    assert np.ptp(image) > 0.5
    np.testing.assert_allclose(image * 255, np.rint(image * 255), atol=1e-12)
    assert about.licence in ("CC0 1.0", "public domain")
    assert all((about.name == name, about.title, about.author, about.source, about.made))


def test_the_script_makes_these_pixels_from_scikit_images_photographs():
    made = runpy.run_path(str(ROOT / "data" / "make_images.py"))["make"]()
    assert tuple(made) == data.names()
    for name, pixels in made.items():
        assert pixels.dtype == np.uint8
        np.testing.assert_allclose(data.load(name), pixels / 255, atol=1e-15)


def test_nothing_lies_in_the_folder_that_is_not_described():
    files = {path.name for path in (ROOT / "data").glob("*.png")}
    assert files == {f"{name}.png" for name in data.names()}
    assert sum((ROOT / "data" / file).stat().st_size for file in files) < 600_000
    for line in (ROOT / "data" / "SHA256SUMS").read_text().splitlines():
        digest, file = line.split("  ")
        assert hashlib.sha256((ROOT / "data" / file).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("call", [data.load, data.info])
def test_an_unknown_name_lists_those_there_are(call):
    refused(ValueError, "camera, camera64, cat", call, "lena")


def test_a_changed_or_missing_file_is_noticed(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    shutil.copytree(ROOT / "data", folder)
    monkeypatch.setattr(data, "_folder", lambda: folder)
    path = folder / "text.png"
    monkeypatch.setattr("deblur.image.reading.opened", None)
    assert data.load("text").shape == (172, 256)  # from the bytes that were checked; the file is not opened again
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    refused(ValueError, "damaged or was changed", data.load, "text")
    path.unlink()
    refused(FileNotFoundError, "text.png cannot be read: No such file", data.load, "text")
    path.mkdir()
    refused(IsADirectoryError, "text.png cannot be read: Is a directory", data.load, "text")
    (folder / "SHA256SUMS").unlink()
    refused(FileNotFoundError, "SHA256SUMS cannot be read", data.info, "cat")


def test_the_folder_is_found_beside_the_package_or_inside_it(tmp_path, monkeypatch):
    for folder in (tmp_path / "data", tmp_path / "deblur" / "images"):  # a checkout without links; a wheel
        shutil.copytree(ROOT / "data", folder)
        monkeypatch.setattr(data, "__file__", str(tmp_path / "deblur" / "data.py"))
        assert data._folder() == folder
        assert data.load("camera64").shape == (64, 64)
