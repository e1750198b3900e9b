"""From one zarr store to another: in processes that die, on disks that fill, with NaN, and begun again."""

import errno
import os
import re
import signal
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refused
from test_cli_files import prints
from test_tiled import picture as picture_of

import deblur
from deblur import cli, psf
from deblur.tiles import Tiling, cluster, clusters, plan_tiles, refining, stores, stream, streams, tiling
from deblur.tiles.checks import residual

zarr = pytest.importorskip("zarr")
pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

H = psf.gaussian(9, 1.5)
LAM = 1e-2
ASKED = {"tile": 64, "boundary": "reflect"}


@pytest.fixture(scope="module")
def client():
    os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)  # Dask leaves it there
    with cluster(2) as made:
        yield made


@pytest.fixture
def picture(rng):
    return picture_of(H, "reflect", (224, 256), rng).astype(np.float32)


@pytest.fixture
def store(tmp_path, picture):
    zarr.create_array(tmp_path / "in.zarr", shape=picture.shape, dtype="float32", chunks=(32, 32))[:] = picture
    return tmp_path / "in.zarr"


def read(path):
    return zarr.open(path, mode="r")[:]


def chunks(path):
    found = {}
    for p in path.rglob("*"):
        with suppress(FileNotFoundError):  # a partial one that is renamed meanwhile
            if p.is_file() and p.name != "zarr.json":
                found[p] = p.stat().st_mtime_ns
    return found


def test_a_store_is_restored_in_processes_as_in_memory(store, picture, tmp_path, client):
    seen = []
    report = stream(store, tmp_path / "out.zarr", H, LAM, workers=client, progress=lambda *a: seen.append(a), **ASKED)
    assert report.ok
    assert (report.written, report.kept) == (16, 0)
    assert (seen[0], seen[-1]) == ((0, 16), (16, 16))
    out = read(tmp_path / "out.zarr")
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, deblur.tiled(picture, H, LAM, **ASKED))
    whole = deblur.reconstruct(picture, H, LAM, boundary="reflect")
    assert abs(out - whole).max() / np.ptp(picture) < report.plan.tolerance
    assert max(report.seams) <= report.plan.seam
    assert report.residual.residual < 1e-3
    assert re.search(r"(?s)residual.*16 tiles", str(report))


def test_a_volume_larger_than_memory_is_restored_within_it(tmp_path, rng):
    h, shape, memory = psf.gaussian((3, 5, 5), (0.6, 1.0, 1.0)), (160, 128, 128), 2**23
    g = rng.poisson(4e3 * np.kron(rng.random((10, 8, 8)), np.ones((16, 16, 16)))).astype("u2")
    zarr.create_array(tmp_path / "in.zarr", shape=shape, dtype="u2", chunks=(20, 32, 32))[:] = g
    asked = {"boundary": "reflect", "tolerance": 5e-3, "check": False}
    stream(np.ones((40, 40, 40), "f4"), tmp_path / "first.zarr", h, 0.2, **asked)  # what is imported by then
    tracemalloc.start()
    report = stream(str(tmp_path / "in.zarr"), tmp_path / "out.zarr", h, 0.2, memory=memory, **asked)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.plan.bytes <= memory < 4 * g.size
    assert most <= memory
    whole = 65535 * deblur.reconstruct(g, h, 0.2, boundary="reflect")  # counts stay counts
    assert abs(read(tmp_path / "out.zarr") - whole).max() < 5e-3 * np.ptp(g)


def test_each_of_several_gpus_has_a_quiet_process_of_its_own(store, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with cluster(2, gpus=True) as made:
        made.wait_for_workers(2)
        seen = made.run(os.getenv, "CUDA_VISIBLE_DEVICES")
        assert all(address.startswith("tcp://127.0.0.1") for address in seen)
        assert set(made.nthreads().values()) == {2}
        report = stream(store, tmp_path / "out.zarr", H, LAM, workers=made, memory=2**26, check=False, **ASKED)
    assert sorted(seen.values()) == ["3", "5"]
    assert report.plan.memory == 2**25  # each thread has a tile
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("named", "count", "shown"),
    [(None, 2, "01"), ("3, 5,", 1, "3"), ("GPU-1a,MIG-2b", 2, ["GPU-1a", "MIG-2b"]), ("", 1, 0), ("3", 2, 1)],
)
def test_processes_get_the_gpus_that_are_visible(named, count, shown, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    if not isinstance(shown, int):
        assert clusters.visible_gpus(count) == [*shown]
    else:
        with pytest.raises(ValueError, match=f"{named!r} and shows {shown} GPUs, but {count} are requested"):
            clusters.visible_gpus(count)


@pytest.mark.parametrize(("gamma", "most", "rel"), [(None, 1e-12, 0.1), ("srgb", 1e-9, 0.5)])
def test_the_residual_of_the_whole_picture_is_one_of_light(gamma, most, rel):
    g = deblur.data.load("camera")[:224, :256]
    made = Tiling(g, H, LAM, gamma=gamma, **ASKED)
    whole = deblur.solve(g, H, LAM, boundary="reflect", gamma=gamma)
    exact = residual(made, g, whole.image)
    assert exact.residual < most
    assert exact.data_residual == pytest.approx(whole.data_residual, rel=rel)  # it leaves out the rim
    assert residual(made, g, whole.image + 0.01).residual > 1e-3


def test_a_second_start_goes_on_where_the_first_ended(store, picture, tmp_path):
    out = tmp_path / "out.zarr"
    first = stream(store, tmp_path / "whole.zarr", H, "gcv", check=False, **ASKED)
    stream(store, out, H, "gcv", check=False, **ASKED)
    for path in sorted(chunks(out))[::11]:  # as if it had ended before these
        path.unlink()
    before = chunks(out)
    report = stream(store, out, H, "gcv", check=False, **ASKED)
    assert 0 < report.kept < 16
    assert (report.written + report.kept, report.lam) == (16, first.lam)
    assert "earlier start" in str(report)
    tiles_kept = {p: t for p, t in chunks(out).items() if before.get(p) == t}
    assert len(tiles_kept) >= 2 * report.kept  # two or four chunks a tile: none of them was touched
    np.testing.assert_array_equal(read(out), read(tmp_path / "whole.zarr"))
    assert stream(store, out, H, "gcv", check=False, **ASKED).kept == 16
    refused(ValueError, r"is not this restoration \(another lam\)", stream, store, out, H, 0.1, check=False, **ASKED)
    refused(ValueError, r"\(another source\)", stream, tmp_path / "whole.zarr", out, H, "gcv", check=False, **ASKED)
    assert stream(store, out, H, 0.1, check=False, overwrite=True, **ASKED).written == 16


@pytest.fixture
def refined(monkeypatch):
    """Tiles are refined, at first in three passes, whatever memory there is."""

    def planned(*args, **given):
        return plan_tiles(*args, **{**given, "overlap": 16, "passes": given["passes"] or 3})

    monkeypatch.setattr(tiling, "plan_tiles", planned)
    monkeypatch.setattr(refining, "with_passes", lambda tiling, psf, plan, device: plan)


def test_refining_goes_on_in_the_pass_where_it_was_interrupted(store, picture, tmp_path, monkeypatch, refined, client):
    out, folder = tmp_path / "out.zarr", tmp_path / "out.zarr" / ".passes"
    asked = {"tile": 128, "boundary": "reflect"}
    seen = []
    first = stream(store, tmp_path / "whole.zarr", H, LAM, workers=client, progress=lambda *a: seen.append(a), **asked)
    assert (first.plan.answer, "refined" in str(first)) == ("refine", True)
    assert (seen[0], seen[-1]) == ((0, 12), (12, 12))
    whole = deblur.reconstruct(picture.astype(float), H, LAM, boundary="reflect")
    assert abs(read(tmp_path / "whole.zarr") - whole).max() / np.ptp(picture) <= first.left + 1e-5 < 1e-3  # rounding
    assert first.residual.residual < 1e-4
    written, real, most = [], zarr.Array.__setitem__, 10

    def some(array, region, tile):
        if len(written) == most:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(region)
        real(array, region, tile)

    monkeypatch.setattr(zarr.Array, "__setitem__", some)
    refused(OSError, "goes on once there is room", stream, store, out, H, LAM, check=False, **asked)
    assert sorted(p.name for p in folder.iterdir()) == ["2"]  # and no pass before it
    most = 1000
    assert stream(store, out, H, LAM, check=False, **asked).ok
    assert len(written) == 12  # none twice
    assert not folder.exists()
    np.testing.assert_array_equal(read(out), read(tmp_path / "whole.zarr"))
    assert stream(store, out, H, LAM, check=False, **asked).kept == 4
    assert len(written) == 12


def test_refining_goes_on_until_what_is_left_is_small(store, picture, tmp_path, refined, monkeypatch):
    h, lam = psf.motion(6, 45), 1e-2
    asked = {"tolerance": 5e-5, "dtype": "float64", "tile": 96, "boundary": "reflect", "check": False}
    report = stream(store, tmp_path / "out.zarr", h, lam, **asked)
    assert report.plan.passes > 3
    assert report.ok
    whole = deblur.reconstruct(picture.astype(float), h, lam, boundary="reflect")
    assert abs(read(tmp_path / "out.zarr") - whole).max() / np.ptp(picture) <= report.left <= 5e-5
    again = stream(store, tmp_path / "out.zarr", h, lam, **asked)
    assert (again.plan.passes, again.kept) == (report.plan.passes, 6)
    assert not (tmp_path / "out.zarr" / ".passes").exists()
    monkeypatch.setattr(streams, "MORE_PASSES", 0)
    report = stream(store, tmp_path / "short.zarr", h, lam, **asked)
    assert not report.ok
    assert "above the tolerance" in str(report)


def test_what_is_refined_around_a_tile_with_nan_finishes(store, picture, tmp_path, refined):
    zarr.open(store, mode="r+")[5, 5] = np.nan
    report = stream(store, tmp_path / "out.zarr", H, LAM, tile=96, boundary="reflect")
    assert [f.place for f in report.failed] == [(0, 0)]
    out = read(tmp_path / "out.zarr")
    assert np.isnan(out[:96, :96]).all()
    assert np.isfinite(out[96:]).all()
    whole = deblur.reconstruct(picture.astype(float), H, LAM, boundary="reflect")
    assert abs(out - whole)[130:].max() / np.ptp(picture) < 1e-3


def test_a_worker_that_is_killed_changes_nothing(store, picture, tmp_path, client):
    out, killed, there = tmp_path / "out.zarr", [], {}

    def kill(done, total):
        if done >= 4 and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            there.update(chunks(out))
            os.kill(killed[0], signal.SIGKILL)
            (out / "c" / "0" / f"0.{'0' * 32}.partial").touch()  # what zarr leaves of a chunk that was being written

    report = stream(store, out, H, LAM, workers=client, progress=kill, check=False, **ASKED)
    assert (len(killed), report.ok) == (1, True)
    np.testing.assert_array_equal(read(out), deblur.tiled(picture, H, LAM, **ASKED))
    now = chunks(out)
    again = [p for p, t in there.items() if now.get(p) != t and not p.name.endswith(".partial")]
    assert len(again) < 4  # the chunks of the one tile that was being written
    assert not [p for p in now if "partial" in p.name]


def test_a_tile_with_nan_is_named_and_the_others_finish(store, picture, tmp_path, client, capsys):
    zarr.open(store)[100, 30] = np.nan
    out = tmp_path / "out.zarr"
    report = stream(store, out, H, LAM, workers=client, check=False, **ASKED)
    assert [f.place for f in report.failed] == [(1, 0)]
    assert report.failed[0].region[0] == (64, 128)
    assert "NaN" in report.failed[0].why
    assert report.written == 15
    restored = read(out)
    assert np.isnan(restored[64:128, :64]).all()
    assert np.isfinite(np.delete(restored, np.s_[64:128], axis=0)).all()
    arguments = ["reconstruct", str(store), "-o", str(tmp_path / "cli.zarr"), "--psf", "gaussian:9,1.5"]
    assert cli.main([*arguments, "--lam", "1e-2", "--boundary", "reflect"]) == 1
    assert "1 of 1 tiles" in capsys.readouterr().err
    zarr.open(store)[100, 30] = 0.5
    mended = stream(store, out, H, LAM, workers=client, check=False, **ASKED)
    assert (mended.written, mended.kept, mended.failed) == (1, 15, ())


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("compressors", ["auto", None])
def test_a_chunk_that_cannot_be_read_is_named_and_the_others_finish(dtype, compressors, picture, tmp_path, client):
    image = (picture * 60000).astype(dtype) if dtype == "uint16" else picture
    path, chunk = tmp_path / "in.zarr", tmp_path / "in.zarr" / "c" / "3" / "0"
    made = {"shape": image.shape, "chunks": (32, 32), "dtype": dtype, "compressors": compressors}
    zarr.create_array(path, **made)[:] = image
    good = chunk.read_bytes()
    chunk.write_bytes(good[: len(good) // 2])
    report = stream(path, tmp_path / "out.zarr", H, LAM, workers=client, **ASKED)
    assert {f.place for f in report.failed} == {(1, 0), (2, 0)}  # it is in the overlap of the second
    assert all(f"chunk c/3/0 of {path} cannot be read" in f.why for f in report.failed)
    expected = deblur.tiled(image, H, LAM, **ASKED)
    expected[64:192, :64] = np.nan
    np.testing.assert_array_equal(read(tmp_path / "out.zarr"), expected)
    chunk.write_bytes(good)
    mended = stream(path, tmp_path / "out.zarr", H, LAM, workers=client, check=False, **ASKED)
    assert (mended.written, mended.kept, mended.failed) == (2, 14, ())
    chunk.write_bytes(good[: len(good) // 2])  # after all: the other tiles are verified
    assert stream(path, tmp_path / "out.zarr", H, LAM, **ASKED).residual.residual < 1e-3


@pytest.mark.parametrize(("side", "broken"), [(256, [(1, 1)]), (256, [(0, 1), (1, 0)]), (512, [(1, 1)])])
def test_lambda_is_chosen_beside_damaged_chunks_in_all_windows(side, broken, rng, tmp_path):
    image, path = picture_of(H, "reflect", (side, side), rng), tmp_path / "in.zarr"
    zarr.create_array(path, shape=image.shape, chunks=(128, 128), dtype="float64")[:] = image
    damaged = np.zeros(image.shape, bool)
    for row, column in broken:
        (path / "c" / str(row) / str(column)).write_bytes(b"")
        near = (slice(max(0, 128 * n - 64), 128 * n + 192) for n in (row, column))  # with the tiles that see it
        damaged[tuple(near)] = True
    report, out = stream(path, tmp_path / "out.zarr", H, check=False, **ASKED), read(tmp_path / "out.zarr")
    assert all(any(f"chunk c/{i}/{j} of {path} cannot be read" in f.why for f in report.failed) for i, j in broken)
    assert 0.5 < report.lam / Tiling(image, H, **ASKED).lam < 2  # from a smaller sample of the same scene
    expected = deblur.tiled(image, H, report.lam, prior="natural", **ASKED)
    np.testing.assert_allclose(out, np.where(damaged, np.nan, expected), atol=1e-9)


def test_a_lost_disk_is_said_of_the_source(picture, tmp_path, monkeypatch):
    import tifffile

    tifffile.imwrite(path := tmp_path / "in.tif", picture)
    real, good = stores.StoredTiff.__getitem__, 100

    def lost(self, at):
        if at[0].stop > good:
            raise OSError(errno.EIO, "Input/output error")
        return real(self, at)

    monkeypatch.setattr(stores.StoredTiff, "__getitem__", lost)
    report = stream(path, tmp_path / "out.zarr", H, LAM, **ASKED)
    assert (report.written, len(report.failed)) == (4, 12)
    words = r"in\.tif cannot be read \(.*Input/output error\): check its permissions"
    assert all(re.search(words, failure.why) for failure in report.failed)
    good = 1
    refused(ValueError, words, stream, path, tmp_path / "other.zarr", H)


@pytest.mark.parametrize("metadata", ["{nonsense", "[1]", '{"zarr_format": 3, "node_type": "array"}', ""])
def test_damaged_metadata_are_named(metadata, store, tmp_path):
    (store / "zarr.json").write_text(metadata)
    with pytest.raises(ValueError, match=r"in\.zarr: the metadata of this zarr store are damaged"):
        stream(store, tmp_path / "out.zarr", H, LAM)
    other = np.zeros((32, 32))
    refused(ValueError, r"in\.zarr exists already and is not this restoration", stream, other, store, H, LAM)
    (store / "zarr.json").unlink()
    (store / "zarr.json").symlink_to(store / "zarr.json")  # cannot be read, and is not damaged
    refused(OSError, r"in\.zarr cannot be read \(.*symbolic links", stream, store, tmp_path / "out.zarr", H, LAM)


def test_the_second_writer_of_an_output_is_refused(store, tmp_path):
    out, other = tmp_path / "out.zarr", tmp_path / "link"
    other.symlink_to(tmp_path)
    Path(f"{out}.lock").touch()  # of a process that was killed
    said = []

    def write_too(*_):
        with pytest.raises(BlockingIOError, match=r"is being written .* holds .*out\.zarr\.lock: wait"):
            stream(store, other / "out.zarr", H, LAM, overwrite=True, **ASKED)
        code = f"from deblur.tiles import stream; stream({str(store)!r}, {str(out)!r}, [[1.0]], 1.0)"
        if not said:
            said.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr)

    assert stream(store, out, H, LAM, progress=write_too, **ASKED).written == 16
    assert "BlockingIOError" in said[0]
    assert not Path(f"{out}.lock").exists()


def test_a_store_that_cannot_be_written_is_an_error_before_work(store, tmp_path):
    (tmp_path / "file").write_text("no folder")
    refused(OSError, ".", stream, store, tmp_path / "file" / "out.zarr", H, LAM, **ASKED)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    refused(ValueError, "holds letter.txt, which zarr did not write", stream, store, other, H, LAM, **ASKED)
    refused(FileNotFoundError, "not a zarr store", stream, tmp_path / "nothing.zarr", tmp_path / "out.zarr", H, LAM)


def test_a_limit_of_the_process_is_its_memory():
    limited = "import resource as r; r.setrlimit(r.RLIMIT_AS, (2**32, r.getrlimit(r.RLIMIT_AS)[1]))"
    code = f"{limited}; from deblur import plan_tiles, psf; print(plan_tiles(psf.disk(3), 0.1, (9, 9)).memory)"
    assert 0 < int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) < 2**31


def test_no_chunk_of_the_output_is_shared_by_tiles(store, picture, tmp_path):
    asked = {"tile": 80, "boundary": "reflect", "workers": 2}
    stream(store, tmp_path / "out.zarr", H, LAM, check=False, **asked)
    assert zarr.open(tmp_path / "out.zarr").chunks == (80, 80)  # the source's are 32 x 32
    np.testing.assert_array_equal(read(tmp_path / "out.zarr"), deblur.tiled(picture, H, LAM, **asked))


@pytest.mark.parametrize("form", [2, 3])
def test_ome_zarr_keeps_axes_scales_channels_and_pyramid(form, picture, tmp_path):
    def halved(image):
        image = np.pad(image, ((0, len(image) % 2), (0, 0)), mode="edge")
        return image.reshape(112, 2, 128, 2).mean(axis=(1, 3))

    picture = picture[:223]  # whose last row has no other to be averaged with
    levels = [picture, halved(picture)]
    axes = [{"name": a, "type": "space", "unit": "micrometer"} for a in "yx"]
    sizes = [[{"type": "scale", "scale": [1, 0.5 * 2**i, 0.5 * 2**i]}] for i in range(2)]
    datasets = [{"path": str(i), "coordinateTransformations": size} for i, size in enumerate(sizes)]
    scale = {"name": "cells", "axes": [{"name": "c", "type": "channel"}, *axes], "datasets": datasets}
    omero = {"channels": [{"label": "DAPI", "color": "0000FF"}, {"label": "GFP", "color": "00FF00"}]}
    said = {"multiscales": [scale | ({"version": "0.4"} if form == 2 else {})], "omero": omero}
    said = said if form == 2 else {"ome": {"version": "0.5", **said}}
    source = zarr.create_group(tmp_path / "in.zarr", zarr_format=form, attributes=said)
    for i, level in enumerate(levels):
        array = source.create_array(str(i), shape=(2, *level.shape), dtype="float32", chunks=(1, 32, 32))
        array[:] = np.stack([level, 2 * level])
    assert stream(tmp_path / "in.zarr", tmp_path / "out.zarr", H, LAM, **ASKED).ok
    out = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert out.metadata.zarr_format == form
    assert {k: dict(out.attrs)[k] for k in source.attrs} == dict(source.attrs)
    expected = deblur.tiled(picture, H, LAM, **ASKED)
    np.testing.assert_allclose(out["0"][:], np.stack([expected, 2 * expected]), rtol=1e-5, atol=1e-5)
    assert out["1"].shape == (2, 112, 128)
    np.testing.assert_allclose(out["1"][0], halved(expected), rtol=1e-5, atol=1e-5)


def test_a_tiff_is_read_in_tiles_however_it_is_stored(picture, tmp_path):
    import tifffile

    for how in ({}, {"tile": (64, 32)}, {"compression": "zlib"}):
        picture = picture[::-1]
        tifffile.imwrite(tmp_path / "in.tif", picture, **how)
        stream(tmp_path / "in.tif", tmp_path / "out.zarr", H, LAM, check=False, overwrite=True, **ASKED)
        np.testing.assert_array_equal(read(tmp_path / "out.zarr"), deblur.tiled(picture, H, LAM, **ASKED))
    Image.fromarray(picture).save(tmp_path / "lzw.tif", compression="tiff_lzw")  # not by tifffile alone
    stream(tmp_path / "lzw.tif", tmp_path / "lzw.zarr", H, LAM, check=False, **ASKED)
    np.testing.assert_array_equal(read(tmp_path / "lzw.zarr"), deblur.tiled(picture, H, LAM, **ASKED))
    (tmp_path / "cut.tif").write_bytes((tmp_path / "in.tif").read_bytes()[:7])
    sizes = 'DimensionOrder="XYCZT" Type="float" SizeX="256" SizeY="224" SizeZ="2" SizeC="1" SizeT="1"'
    pixels = f'<Pixels {sizes}><TiffData IFD="0"/><TiffData FirstZ="1"><UUID FileName="b.tif">b</UUID>'
    only = '<OME><BinaryOnly MetadataFile="a.companion.ome" UUID="urn:uuid:9"/></OME>'
    part = f"<OME><Image>{pixels}</TiffData></Pixels></Image></OME>"
    for name, text in (("only.ome.tif", only), ("part.ome.tif", part)):
        tifffile.imwrite(tmp_path / name, picture, description=text, metadata=None)
    for name, words in {
        "cut.tif": "cut.tif cannot be read in tiles",
        "only.ome.tif": "only.ome.tif is one file of an OME-TIFF that a.companion.ome describes",
        "part.ome.tif": "part.ome.tif holds 1 of the 2 planes of its OME-TIFF; put b.tif beside it",
    }.items():
        refused(ValueError, words, stream, tmp_path / name, tmp_path / "out2.zarr", H, LAM)
    counts = zarr.create_array(tmp_path / "in.zarr", shape=(40, 40), dtype="complex64")
    refused(ValueError, "holds complex64 .40, 40., not real numbers", stream, counts, tmp_path / "out2.zarr", H, LAM)
    assert not (tmp_path / "out2.zarr").exists()


@pytest.mark.parametrize("stack", [(), (2,)])
def test_a_planar_tiff_is_its_pixels_in_colour(stack, rng, tmp_path):
    import tifffile

    picture = rng.random((*stack, 3, 40, 50)).astype(np.float32)
    axes = {"photometric": "rgb", "metadata": {"axes": "ZSYX"[-picture.ndim :]}}
    tifffile.imwrite(tmp_path / "in.tif", picture, planarconfig="separate", **axes)
    stream(tmp_path / "in.tif", tmp_path / "out.zarr", H, LAM, check=False, boundary="reflect")
    front = {"stack_axis": 0} if stack else {}
    expected = deblur.reconstruct(np.moveaxis(picture, -3, -1), H, LAM, boundary="reflect", channel_axis=-1, **front)
    np.testing.assert_allclose(read(tmp_path / "out.zarr"), expected, atol=1e-4)


def test_frames_are_read_and_solved_several_at_once(rng, tmp_path, monkeypatch):
    frames = rng.random((200, 24, 24)).astype(np.float32)
    array = zarr.create_array(tmp_path / "in.zarr", shape=frames.shape, dtype="float32", chunks=(1, 24, 24))
    array[:] = frames
    array[77, 5, 5] = np.nan
    solved, real = [], Tiling.solve
    monkeypatch.setattr(Tiling, "solve", lambda *given, **more: solved.append(given[2][1]) or real(*given, **more))
    given = {"stack_axis": 0, "check": False, "boundary": "reflect"}
    report = stream(tmp_path / "in.zarr", tmp_path / "out.zarr", H, LAM, **given)
    assert [f.place for f in report.failed] == [(77, 0, 0)]
    assert (report.written, report.kept) == (199, 0)
    assert solved.count(3) == 66  # three at once, and those beside the failed one by themselves
    out = read(tmp_path / "out.zarr")
    assert np.isnan(out[77]).all()
    expected = deblur.reconstruct(np.delete(frames, 77, axis=0), H, LAM, stack_axis=0, boundary="reflect")
    np.testing.assert_allclose(np.delete(out, 77, axis=0), expected, atol=1e-5)
    array[77] = frames[77]
    mended = stream(tmp_path / "in.zarr", tmp_path / "out.zarr", H, LAM, **given)
    assert (mended.written, mended.kept, mended.failed) == (3, 197, ())


# -- the command line --------------------------------------------------------------------------


def test_the_command_plans(capsys):
    call = ["plan", "--shape", "100000x100000", "--psf", "disk:7"]
    out = prints(capsys, [*call, "--lam", "1e-3", "--memory", "1GiB"])
    assert "180 x 180 pixels on each side" in out
    assert "of 1 GiB" in out
    said = prints(capsys, [*call, "--lam", "1e-2", "--prior", "natural"])
    natural = deblur.plan_tiles(psf.disk(7), 1e-2, (100_000, 100_000), prior="natural", dtype="float32")
    assert f"{natural.overlap[0]} x {natural.overlap[1]} pixels" in said


def test_the_command_restores_stores_and_says_so(store, picture, tmp_path, capsys):
    call = f"reconstruct {store} -o {tmp_path}/out.zarr --psf gaussian:9,1.5 --lam 1e-2".split()
    call += ["--boundary", "reflect", "--tolerance", "1e-3", "--memory", "200MB"]
    assert "residual" in prints(capsys, call)
    whole = deblur.reconstruct(picture, H, LAM, boundary="reflect")
    assert abs(read(tmp_path / "out.zarr") - whole).max() < 1e-3
    assert "were there from an earlier start" in prints(capsys, call)
