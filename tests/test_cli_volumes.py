"""Volumes on the command line: axes, voxel sizes and channels of every kind of file are read, kept and selected."""

import resource
from functools import partial

import numpy as np
import pytest
import tifffile
from test_cli_files import command, fails, prints

import deblur
from deblur import image
from deblur.cli import main
from deblur.image import reading

zarr = pytest.importorskip("zarr")
FORM = "gaussian:3x5x5,0.8x1x1"
H = deblur.psf.parse(FORM)
STEPS = {"T": 2.0, "Z": 0.3, "Y": 0.13, "X": 0.13}
NAMES = ["DAPI", "GFP"]
RUN = ["--lam", "1e-2", "--boundary", "reflect", "-q", "--psf"]


@pytest.fixture
def counts(rng):
    """Counts (t, c, z, y, x) of two time points and two channels."""
    return rng.integers(90, 4000, (2, 2, 6, 11, 10), np.uint16)


def write_ome(path, counts):
    settings = {"axes": "TCZYX", "TimeIncrement": 2e3, "TimeIncrementUnit": "ms", "Channel": {"Name": NAMES}}
    settings |= {f"PhysicalSize{a}": STEPS[a] for a in "XYZ"}
    tifffile.imwrite(path, counts, metadata=settings)


def write_imagej(path, counts):
    said = {"axes": "TZCYX", "unit": "micron", "spacing": 0.3, "finterval": 2.0}
    tifffile.imwrite(path, np.moveaxis(counts, 1, 2), imagej=True, resolution=(1 / 0.13,) * 2, metadata=said)


def write_zarr(path, counts, form=3, unit="nanometer", size=1, names=NAMES):
    kinds = {"t": ("time", unit and "minute"), "c": ("channel", "")}
    units = [(a, *kinds.get(a, ("space", unit))) for a in "tczyx"]
    axes = [{"name": a, "type": kind} | ({"unit": unit} if unit else {}) for a, kind, unit in units]
    half = {"type": "scale", "scale": [1 / 30, 1, 600 / size, 260 / size, 260 / size]}
    moved = {"type": "translation", "translation": [0, 0, 1500 / size, 0, 0]}
    all_levels = {"coordinateTransformations": [{"type": "scale", "scale": [1, 1, 0.5, 0.5, 0.5]}]}
    datasets = [{"path": "s0", "coordinateTransformations": [half, moved]}]
    scales = {"name": "cells", "axes": axes, "datasets": datasets, **all_levels}
    omero = {"channels": [{"label": name, "color": f"00000{i}"} for i, name in enumerate(names)]}
    said = {"version": "0.5", "multiscales": [scales], "omero": omero}
    group = zarr.create_group(path, zarr_format=form, attributes={"ome": said} if form == 3 else said)
    group.create_array("s0", shape=counts.shape, dtype="u2", chunks=(1, 1, 3, 11, 10))[:] = counts


WRITERS = {
    "a.ome.tif": write_ome,
    "imagej.tif": write_imagej,
    "a.zarr": write_zarr,
    "a.zarr/s0": lambda path, counts: write_zarr(path.parent, counts),
    "b.zarr": lambda path, counts: write_zarr(path, counts, 2, "angstrom", 0.1),
    "no unit.zarr": lambda path, counts: write_zarr(path, counts, unit="", names=["GFP", "GFP"]),
}


def restored(counts):
    """The answer for each volume alone, in counts."""
    f = [deblur.reconstruct(v, H, 1e-2, boundary="reflect") for v in counts.reshape(-1, *counts.shape[-3:])]
    return np.reshape(f, counts.shape) * 65535


@pytest.mark.parametrize("target", ["out.ome.zarr", "out.tif"])
@pytest.mark.parametrize("source", WRITERS)
def test_axes_sizes_channels_and_counts_are_read_and_kept(tmp_path, counts, source, target, capsys):
    path, out = tmp_path / source, tmp_path / target
    WRITERS[source](path, counts)
    steps = pytest.approx({} if source == "no unit.zarr" else STEPS)
    last = "1:2" if source in ("imagej.tif", "no unit.zarr") else "gfp"
    for more, wanted in (([], counts), (["--time", "1", "--channel", last, "--force"], counts[1:, 1:])):
        assert main(["reconstruct", str(path), "-o", str(out), *RUN[:-2], "--psf", FORM, *more]) == 0
        pixels, found = image.read_with_metadata(out)
        expected = restored(wanted)
        if "Z" in found.axes[:2] and "C" in found.axes:
            expected = np.moveaxis(expected, 1, 2)
        np.testing.assert_allclose(pixels.ravel(), expected.ravel(), rtol=1e-4, atol=0.1)
        assert (pixels.dtype, found.spacing) == (np.float32, steps)
        names = NAMES[1:] if more else ["GFP" if source == "no unit.zarr" else "DAPI", "GFP"]
        assert list(found.labels) == ([] if source == "imagej.tif" else names)
    if target.endswith(".zarr"):
        group = zarr.open_group(out, mode="r")
        (level,) = group.attrs["ome"]["multiscales"]
        assert [axis["name"] for axis in level["axes"]] == [*"tczyx"]
        if source.endswith(".zarr"):
            assert group.attrs["ome"]["omero"]["channels"][0]["color"] == "000001"
            given = zarr.open_group(path, mode="r").attrs.asdict()
            [given] = given.get("ome", given)["multiscales"]  # name, steps, units, known or not, and place
            assert level == given | {"datasets": [given["datasets"][0] | {"path": "0"}]}
        assert group["0"].metadata.dimension_names == tuple("tczyx")
        assert ("dropped     metadata" in capsys.readouterr().out) == path.is_file()


def test_a_channel_of_no_such_name_is_refused_with_the_names(tmp_path, counts, capsys):
    write_zarr(tmp_path / "in.zarr", counts, names=["488", "0", "GFP", "GFP"])
    run = ["reconstruct", tmp_path / "in.zarr", "-o", tmp_path / "out.zarr", *RUN, FORM, "--channel"]
    fails(capsys, [*run, "gfq"], "did you mean GFP?", "its channels are 488, 0, GFP, GFP")
    fails(capsys, [*run, "gfp"], "is the name of 2 channels", "give a number")
    fails(capsys, [*run, "3"], "--channel 3 is not in")
    fails(capsys, [*run, "0"], "--channel 0 is also the name of channel 1", "N:M")
    assert main([*map(str, run), "488"]) == 0
    assert image.read_with_metadata(tmp_path / "out.zarr")[1].labels == ("488",)


def test_channels_without_a_name_are_named_by_their_numbers(tmp_path, counts):
    write_zarr(tmp_path / "in.zarr", counts, names=["GFP"])
    run = ["reconstruct", str(tmp_path / "in.zarr"), "-o", str(tmp_path / "out.zarr"), *RUN, "gaussian:1x5x5,1"]
    assert main([*run, "--axis", "TZCYX"]) == 0
    assert image.read_with_metadata(tmp_path / "out.zarr")[1].labels == ("GFP", *"12345")


def test_planes_and_films_go_into_ome_zarr_tile_by_tile(tmp_path, counts):
    write_imagej(tmp_path / "in.tif", counts)
    run = ["reconstruct", str(tmp_path / "in.tif"), "-o", str(tmp_path / "out.zarr"), *RUN, "gaussian:5,1"]
    assert main([*run, "--planes", "--channel", "1"]) == 0
    pixels, found = image.read_with_metadata(tmp_path / "out.zarr")
    frames = counts[:, 1:].reshape(-1, 11, 10)
    expected = deblur.reconstruct(frames, deblur.psf.gaussian(5, 1.0), 1e-2, boundary="reflect", stack_axis=0)
    np.testing.assert_allclose(pixels, expected, atol=1e-5)
    assert (found.axes, found.sizes, found.spacing) == ("TCZ", (2, 1, 6), pytest.approx(STEPS))
    write_zarr(tmp_path / "in.zarr", counts)
    run[1] = str(tmp_path / "in.zarr")
    assert main([*run, "--planes", "--channel", "1", "--force"]) == 0
    again, found = image.read_with_metadata(tmp_path / "out.zarr")
    np.testing.assert_allclose(again, expected, atol=1e-5)
    assert (found.sizes, found.labels) == ((2, 1, 6), ("GFP",))
    # Axes that no file names are counted along, as they are into any file.
    tifffile.imwrite(tmp_path / "in.tif", frames.reshape(2, 6, 11, 10), photometric="minisblack")
    zarr.create_array(tmp_path / "bare.zarr", data=frames.reshape(2, 6, 11, 10))
    for run[1] in (str(tmp_path / "in.tif"), str(tmp_path / "bare.zarr")):
        assert main([*run, "--force"]) == 0
        np.testing.assert_allclose(image.read(tmp_path / "out.zarr"), expected, atol=1e-5)


@pytest.mark.parametrize("target", ["out.zarr", "out.zarr --tile 6x6x5", "out.tif"])
def test_a_full_disk_is_said_with_the_file(tmp_path, counts, target, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # what Python keeps of modules would be cut short
    write_ome(tmp_path / "in.ome.tif", counts[:1, :1])
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1500, 1500))  # bytes of a file
    run = ["reconstruct", "in.ome.tif", *RUN, FORM, "-o", *target.split(" ")]
    said = command(*run, cwd=tmp_path, preexec_fn=full).stderr.decode()
    assert said.startswith(f"deblur: {target.partition(' ')[0]} could not be written: "), said
    assert ("the same call goes on once there is room" in said) == ("--tile" in target)


@pytest.mark.parametrize("target", ["out.zarr", "out.tif"])
def test_a_chunk_that_cannot_be_read_is_said_with_the_store(tmp_path, counts, target, capsys):
    write_zarr(tmp_path / "a.zarr", counts)
    chunk = min(path for path in (tmp_path / "a.zarr" / "s0").rglob("*") if path.is_file() and path.name != "zarr.json")
    chunk.write_bytes(chunk.read_bytes()[:20])
    run = ["reconstruct", tmp_path / "a.zarr", "-o", tmp_path / target, *RUN, FORM]
    fails(capsys, run, "a.zarr cannot be read (")


@pytest.mark.parametrize("source", ["a.ome.tif", "a.zarr"])
def test_volumes_are_restored_in_tiles_as_they_are_whole(tmp_path, counts, source, capsys):
    WRITERS[source](tmp_path / source, counts)
    run = ["reconstruct", tmp_path / source, "-o", tmp_path / "out.zarr", "--psf", FORM, "--lam", "0.5"]
    said = prints(capsys, [*run, "--boundary", "reflect", "--tile", "6x6x5", "--time", "1"])
    assert "4 of 6 x 6 x 5 pixels of an image of 6 x 11 x 10" in said
    pixels, found = image.read_with_metadata(tmp_path / "out.zarr")
    whole = [65535 * deblur.reconstruct(v, H, 0.5, boundary="reflect") for v in counts[1]]
    assert abs(pixels.reshape(counts[1].shape) - whole).max() < 1e-3 * np.ptp(counts)
    assert (found.axes, found.sizes, found.spacing) == ("TCZ", (1, 2, 6), pytest.approx(STEPS))
    assert list(found.labels) == NAMES


def test_a_psf_of_other_voxels_is_resampled(tmp_path, counts, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_ome("in.ome.tif", counts[:1, :1])
    fine = deblur.psf.gaussian((3, 9, 9), (0.8, 2, 2))
    tifffile.imwrite("bare.tif", fine, photometric="minisblack", metadata={"axes": "ZYX"})
    # No distance of planes.
    tifffile.imwrite("found.ome.tif", fine, metadata={"axes": "ZYX", "PhysicalSizeX": 0.065, "PhysicalSizeY": 0.065})
    assert main(["psf", "convert", "found.ome.tif", "-o", "psf.ome.tif", "-q"]) == 0
    reads, real = [], reading._decoded
    monkeypatch.setattr(reading, "_decoded", lambda path: reads.append(str(path)) or real(path))
    assert main(["reconstruct", "in.ome.tif", "-o", "out.tif", *RUN, "psf.ome.tif"]) == 0
    assert reads == ["psf.ome.tif", "in.ome.tif"]  # each once
    f = deblur.reconstruct(counts[0, 0], deblur.psf.resample(fine, (1, 0.5, 0.5)), 1e-2, boundary="reflect")
    np.testing.assert_allclose(tifffile.imread("out.tif"), 65535 * f, rtol=1e-4, atol=0.1)
    assert main(["reconstruct", "in.ome.tif", "-o", "out.tif", "--force", *RUN, "bare.tif"]) == 0
    assert "along Z, Y, X is not known, the other's is (0.3, 0.13, 0.13)" in capsys.readouterr().err
    deblur.psf.save("flat.tif", fine[1], voxel=(0.065, 0.065))
    whole, tiles, planes = ["out.zarr"], ["out.zarr", "--tile", "6x6x5"], ["out.tif", "--planes", "--clip"]
    for name, more in (("psf.ome.tif", whole), ("psf.ome.tif", tiles), ("flat.tif", planes)):
        run = ["reconstruct", "in.ome.tif", "--force", *RUN[:-2], "--psf", name, "-o", *more]
        assert "9 x 9 of its own voxels, " in prints(capsys, run)


def test_time_points_share_what_is_prepared_and_levels_are_rounded_on_request(tmp_path, counts, monkeypatch):
    made = []
    monkeypatch.setattr("deblur.volumes.Deblurrer", lambda *a, **k: made.append(a) or deblur.Deblurrer(*a, **k))
    write_ome(tmp_path / "in.ome.tif", counts)
    run = ["reconstruct", str(tmp_path / "in.ome.tif"), "-o", str(tmp_path / "out.tif"), "-q", "--psf", FORM]
    assert main([*run, "--bits", "16", "--clip", "--views", str(tmp_path / "views.png")]) == 0
    assert len(made) == 2  # one a channel, whose λ is its own
    assert tifffile.imread(tmp_path / "out.tif").dtype == np.uint16
    assert image.read(tmp_path / "views.png").shape[-1] == 3
    made.clear()
    assert main([*run, "--lam", "1e-2", "--boundary", "reflect", "--force"]) == 0
    assert len(made) == 1


def test_a_volume_that_does_not_fit_is_refused_with_its_bytes(tmp_path, capsys):
    axes = [{"name": a, "type": "space"} for a in "zyx"]
    said = {"ome": {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}}
    group = zarr.create_group(tmp_path / "in.zarr", attributes=said)
    group.create_array("0", shape=(9999, 9999, 9999), dtype="u2", chunks=(1, 1000, 1000))
    run = ["reconstruct", tmp_path / "in.zarr", "-o", tmp_path / "out.zarr", "--psf", FORM]
    fails(capsys, run, "in.zarr takes 16.37 TiB", "restore it in tiles")
    fails(capsys, [*run, "--memory", "1MB", "--lam", "1e-2"], "no tile that fits", "whole image takes", "of 976.6 KiB")


def test_the_blurred_volume_is_refused_as_its_psf(tmp_path, capsys, counts):
    for name in ("in.tif", "psf.tif"):
        tifffile.imwrite(tmp_path / name, counts[0, 0], metadata={"axes": "ZYX"})
    run = ["reconstruct", tmp_path / "in.tif", "-o", tmp_path / "out.tif", "--psf", tmp_path / "psf.tif"]
    fails(capsys, run, "is the blurred picture itself")


def test_one_volume_is_compared_with_its_boundary_as_an_image_is(tmp_path, capsys):
    scene = np.stack([deblur.data.load("camera")[4 * i : 4 * i + 40, :40] for i in range(8)])
    tifffile.imwrite(tmp_path / "g.tif", deblur.degrade(scene, H, boundary="reflect"), metadata={"axes": "ZYX"})
    command = ["reconstruct", f"{tmp_path}/g.tif", "-o", f"{tmp_path}/f.tif", "--psf", FORM, "--boundary"]
    assert main([*command, "zero"]) == 0
    assert "the scene continues beyond the frame" in capsys.readouterr().err
    assert "checks" not in prints(capsys, [*command, "unknown", "--force"])
