"""Several images in one call: each as if alone, nothing overwritten, the others restored after a bad file."""

import argparse

import numpy as np
import pytest
from PIL import Image
from test_cli_files import fails

import deblur
from deblur import cli, image, pipeline, psf_command
from deblur.cli import main

PSF = ["--psf", "gaussian:5,1"]


@pytest.fixture
def folder(tmp_path):
    """A folder with blurred images of two sizes, grey and colour, and a file that is no image."""
    path = tmp_path / "Bilder von heute"
    path.mkdir()
    sharp = deblur.data.load("camera")
    for n, (rows, seed) in enumerate([(40, 0), (40, 1), (52, 2)]):
        part = sharp[100 + 40 * n :, 100:][:rows, :44]
        noise = 0.002 * 10**n  # so that the rules choose another λ for each
        picture = deblur.degrade(part, deblur.psf.gaussian(5, 1), noise=noise, boundary="unknown", seed=seed)
        image.write(path / f"{'äbc'[n]}.png", picture, bits=8)
    image.write(path / "d.tif", np.stack([picture] * 3, axis=-1), bits=16)
    (path / "notes.txt").write_text("no image")
    return path


@pytest.mark.parametrize("lam", [[], ["--lam", "1e-2"], ["--lam", "1e-2", "--boundary", "reflect"]])
def test_each_image_is_restored_as_if_alone(folder, tmp_path, capsys, lam):
    names = sorted(path.name for path in folder.iterdir() if path.suffix != ".txt")
    assert main(["reconstruct", str(folder), "-o", str(tmp_path / "out"), *PSF, *lam, "--clip"]) == 0
    said = capsys.readouterr()
    assert (said.out.count("written  "), said.err) == (4, "")
    assert f"restored    4 of 4 images into {tmp_path / 'out'}" in said.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for name in names:
        alone = tmp_path / f"alone {name}"
        assert main(["reconstruct", str(folder / name), "-o", str(alone), *PSF, *lam, "--clip", "-q"]) == 0
        found, expected = (image.read(path, as_float=False) for path in (tmp_path / "out" / name, alone))
        np.testing.assert_array_equal(found, expected)


def test_images_of_one_kind_share_what_is_prepared(folder, tmp_path, monkeypatch):
    made = []
    prepare = pipeline.Deblurrer._prepared
    monkeypatch.setattr(pipeline.Deblurrer, "_prepared", lambda d, *rest: made.append(id(d)) or prepare(d, *rest))
    files = [str(folder / name) for name in ("ä.png", "b.png")]
    run = ["reconstruct", *files, *PSF, "-q", "--clip", "-o"]
    assert main([*run, str(tmp_path / "one"), "--lam", "1e-2", "--boundary", "zero"]) == 0
    assert len(made) == 2
    assert len(set(made)) == 1


def test_a_bad_file_is_named_at_the_end_and_the_others_are_restored(folder, tmp_path, capsys):
    (folder / "b.png").write_text("text")
    run = ["reconstruct", str(folder), str(folder / "none.png"), "-o", str(tmp_path / "out"), *PSF, "--clip"]
    assert main(run) == 1
    said = capsys.readouterr()
    assert "restored    3 of 5 images" in said.out
    first, second = said.err.splitlines()
    assert first.startswith(f"deblur: {folder / 'b.png'}")
    assert second.startswith(f"deblur: {folder / 'none.png'}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["c.png", "d.tif", "ä.png"]


def test_a_mistake_that_all_images_share_is_said_once(folder, tmp_path, capsys):
    run = ["reconstruct", folder / "ä.png", folder / "b.png", "-o", tmp_path / "out", *PSF]
    fails(capsys, [*run, "--rtol", "7"], "rtol", "7")


def test_neither_an_input_nor_another_output_is_overwritten(folder, tmp_path, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    other = tmp_path / "other"
    other.mkdir()
    Image.open(folder / "b.png").save(other / "b.bmp")  # is written as b.png
    files, out = [folder / "ä.png", folder / "b.png"], tmp_path / "out"
    fails(capsys, ["reconstruct", *files, "-o", folder, *PSF, "--force"], "inputs are never overwritten")
    fails(capsys, ["reconstruct", *files, other / "b.bmp", "-o", out, *PSF], "b.bmp", "would both become")
    fails(capsys, ["reconstruct", *files, "-o", folder / "notes.txt", *PSF, "--force"], "notes.txt is the name of")
    fails(capsys, ["reconstruct", *files, "-o", tmp_path / "out.png", *PSF], "out.png is the name of a file")
    fails(capsys, ["reconstruct", files[0], "-o", "-", *PSF], "the name of a file is needed, not '-'")
    fails(capsys, ["reconstruct", *files, "-o", tmp_path / "a.zarr", *PSF], "a.zarr", "one IN")
    out.mkdir(exist_ok=True)
    (out / "b.png").write_text("precious")
    fails(capsys, ["reconstruct", *files, "-o", out, *PSF], "b.png", "--force")
    assert [path.name for path in out.iterdir()] == ["b.png"]
    assert (out / "b.png").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    fails(capsys, ["reconstruct", tmp_path / "empty", "-o", out, *PSF], "empty is a folder without images")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_refused_blind_restoration_keeps_its_psf_and_anyway_writes_the_image(tmp_path, capsys, rng):
    image.write(tmp_path / "noise.png", rng.random((64, 64)), bits=8)
    run = ["reconstruct", tmp_path / "noise.png", "-o", tmp_path / "out.png", "--blind", "5", "--clip"]
    fails(capsys, run, "--anyway", "The PSF so far is in", str(tmp_path / "out.psf.png"), code=1)
    assert deblur.psf.load(tmp_path / "out.psf.png").shape == (5, 5)
    assert not (tmp_path / "out.png").exists()
    assert main([str(a) for a in [*run, "--anyway"]]) == 0
    assert (tmp_path / "out.png").exists()


def test_a_folder_restored_blind_has_a_folder_beside_it_and_an_array_of_a_store_is_an_image(tmp_path):
    given = argparse.Namespace(input=str(tmp_path), output=None, size="auto", grid=None)
    given.anyway = given.force = given.quiet = False
    assert psf_command.blind(given, cli._parser()).output == f"{tmp_path}-restored"
    group = pytest.importorskip("zarr").open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("raw", shape=(32, 30), dtype="f4")[:] = deblur.data.load("camera64")[:32, :30]
    group.create_array("colour", shape=(2, 32, 30, 3), dtype="f4")[:] = 0.5
    assert deblur.image.read(tmp_path / "a.zarr" / "colour").shape == (2, 32, 30, 3)
    command = [f"{tmp_path}/a.zarr/raw", "-o", f"{tmp_path}/o.tif", "--psf", "gaussian:5,1", "--lam", "1e-2", "-q"]
    assert main(["reconstruct", *command]) == 0
    assert deblur.image.read(tmp_path / "o.tif").shape == (32, 30)
