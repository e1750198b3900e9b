"""What may be written, replaced or deleted: drawn pairs of IN and OUT, and folders that zarr did not write."""

import os
import shutil

import numpy as np
import pytest
import tifffile
from refusals import refused

import deblur
from deblur import image
from deblur.cli import main

zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SPELLINGS = [
    str,
    os.path.relpath,
    lambda p: f"{p}/",
    lambda p: f"{p}/.",
    lambda p: os.path.join(os.path.dirname(p), ".", "..", os.path.basename(os.path.dirname(p)), os.path.basename(p)),
    lambda p: p.replace("world", os.path.join("world", "here")),
    lambda p: f"file://{p}",
    lambda p: os.path.join(os.path.dirname(p), os.path.basename(p).swapcase()),
]
STORES = [
    *("a.zarr", "link.zarr", "group.zarr/raw", "group.zarr/linked", "mixed.zarr", "parts.zarr"),
    *("elsewhere.zarr", "other.zarr", "group.zarr", "group.zarr/other", "notes.zarr", "new.zarr"),
    *("a.zarr/c", "a.zarr/out.zarr"),
]
FILES = [
    *("a.png", "hard.png", "soft.png", "psfs/0.tif", "linked.tif"),
    *("psf.npy", "psfs/out.png", "new.png", "a.zarr", "loop.png"),
]


@pytest.fixture
def world(tmp_path, rng):
    """Stores, pictures and PSFs, of which some are links to others or to parts of them."""
    at, g = tmp_path / "world", rng.random((24, 24)).astype("f4")
    at.mkdir()
    zarr.create_group(at / "group.zarr")
    for name in ("a", "mixed", "elsewhere", "other", "group.zarr/raw", "group.zarr/other", "parts"):
        name = name if "/" in name else f"{name}.zarr"
        zarr.create_array(at / name, shape=g.shape, chunks=(12, 12), dtype="f4")[:] = g
    shutil.rmtree(at / "parts.zarr" / "c")
    (at / "parts.zarr" / "c").symlink_to(at / "elsewhere.zarr" / "c")
    (at / "link.zarr").symlink_to("a.zarr")
    (at / "group.zarr" / "linked").symlink_to("../other.zarr")
    (at / "here").symlink_to(".")
    (at / "notes.zarr").mkdir()
    for folder in ("notes.zarr", "mixed.zarr"):
        (at / folder / "notes.txt").write_text("dear")
    image.write(at / "a.png", g)
    os.link(at / "a.png", at / "hard.png")
    (at / "soft.png").symlink_to("a.png")
    (at / "loop.png").symlink_to("loop.png")
    h = deblur.psf.gaussian(3, 0.8)
    deblur.psf.save(at / "psf.npy", deblur.psf.disk(1))
    (at / "psfs").mkdir()
    for i in range(4):
        deblur.psf.save(at / "psfs" / f"{i}.tif", h)
    os.rename(at / "psfs" / "3.tif", at / "linked.tif")
    (at / "psfs" / "3.tif").symlink_to("../linked.tif")
    return at


def content(path):
    """{name: bytes} of a file, or of all files under a folder, links followed."""
    if os.path.isfile(path):
        return {"": open(path, "rb").read()}
    return {
        os.path.join(folder, name): open(os.path.join(folder, name), "rb").read()
        for folder, _, names in os.walk(path, followlinks=True)
        for name in names
        if "here" not in folder
    }


@pytest.mark.parametrize("seed", range(10))
def test_no_drawn_output_changes_a_byte_of_an_input(seed, world, tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(seed)
    kept = tmp_path / "kept"
    shutil.copytree(world, kept, symlinks=True)
    os.unlink(kept / "hard.png")
    for _ in range(10):
        places = [os.path.join(world, name) for name in (STORES, STORES, FILES)[draw.integers(3)]]
        source = places[draw.integers(len(places) // 2 + 1)]
        around = [source, os.path.dirname(source), os.path.join(source, "out.zarr"), os.path.realpath(source)]
        target = around[draw.integers(4)] if draw.random() < 0.3 else places[draw.integers(len(places))]
        grid = draw.random() < 0.1
        psf = ["--psf-grid", "psfs", "--grid", "2x2"] if grid else ["--psf", os.path.join(world, "psf.npy")]
        monkeypatch.chdir(world)
        said_in = SPELLINGS[draw.integers(6)](source)
        said_out = SPELLINGS[draw.integers(len(SPELLINGS))](target)
        inputs = [source, psf[1]]
        before = [content(path) for path in inputs]
        run = ["reconstruct", said_in, "-o", said_out, *psf, "--lam", "1e-2", "--force"]
        code = main([*run, "--boundary", "reflect"])
        assert [content(path) for path in inputs] == before, run
        assert os.path.islink(world / "loop.png"), run
        assert all((world / folder / "notes.txt").exists() for folder in ("notes.zarr", "mixed.zarr")), run
        error = capsys.readouterr().err
        assert (code, error.count("\n")) in ((0, 0), (2, 1)), (run, error)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(world)
        shutil.copytree(kept, world, symlinks=True)
        os.link(world / "a.png", world / "hard.png")


def save_ome(path, planes, names):
    """A plane of an OME-TIFF that names its files so, or not at all."""
    data = "".join(f'<TiffData FirstZ="{i}"><UUID{name}>{i}</UUID></TiffData>' for i, name in enumerate(names))
    size = f'SizeX="9" SizeY="9" SizeZ="{planes}" SizeC="1" SizeT="1"'
    pixels = f'<Pixels DimensionOrder="XYZCT" Type="float" {size}>{data}</Pixels>'
    words = f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image>{pixels}</Image></OME>'
    tifffile.imwrite(path, np.ones((9, 9)), description=words, metadata=None)


def test_an_ome_tiff_that_names_no_file_leaves_its_folder_to_others(tmp_path):
    save_ome(tmp_path / "a.ome.tif", 1, [""])
    assert image.check_output(tmp_path / "b.tif", [tmp_path / "a.ome.tif"]) == tmp_path / "b.tif"


@pytest.mark.parametrize("kind", [2, 3])
def test_a_store_is_written_into_a_zarr_group_and_never_into_an_array(tmp_path, kind):
    zarr.create_group(tmp_path / "a.zarr", zarr_format=kind).create_array("raw", shape=(4, 4), dtype="f4")
    assert image.check_output(tmp_path / "a.zarr" / "out.zarr")
    for name in ("out.zarr", "c/out.zarr", "c"):
        refused(ValueError, "lies in a zarr array", image.check_output, tmp_path / "a.zarr" / "raw" / name)


def test_no_other_file_of_an_ome_tiff_is_written_over(tmp_path):
    for i in (0, 1):
        save_ome(tmp_path / f"{i}.ome.tif", 2, [' FileName="0.ome.tif"', ' FileName="1.ome.tif"'])
    assert image.read(tmp_path / "0.ome.tif").shape == (2, 9, 9)
    with pytest.raises(ValueError, match=r"1\.ome\.tif is also an input"):
        image.check_output(tmp_path / "1.ome.tif", [tmp_path / "0.ome.tif"])
