"""Tiles of NumPy, Dask and xarray arrays against the picture solved whole."""

import itertools
import pickle
import threading

import numpy as np
import pytest
import scipy.fft
from refusals import refused

import deblur
from deblur import BOUNDARIES, psf, threads, tiled
from deblur.errors import ConvergenceError, InsufficientMemoryError, MethodError
from deblur.tiles import Tiling, plan_tiles, refining, tiling as module, windows
from deblur.tiles.checks import residual
from deblur.tiles.windows import cut

H = psf.gaussian(9, 1.5)
LAM = 1e-2
DISK = psf.disk(3)
UNEVEN = np.array([[0.6, 0, 0], [0, 0, 0.4]])
DEEP = psf.gaussian((3, 5, 5), (0.6, 1.0, 1.0))
LINE = np.array([0.2, 0.5, 0.2, 0.1])


def picture(h, boundary, shape, rng, noise=0.01):
    blur = deblur.Blur(h, shape, boundary)
    scene = np.kron(rng.random([-(-n // 16) for n in blur.scene_shape]), np.ones((16,) * h.ndim))
    scene = scene[tuple(map(slice, blur.scene_shape))]
    return blur.forward(scene) + noise * rng.standard_normal(shape)


def apart(a, b, g):
    return abs(a - b).max() / np.ptp(g)


@pytest.mark.parametrize(
    ("h", "boundary"),
    [
        *((H, b) for b in BOUNDARIES),
        (psf.motion(5, 40), "zero"),
        (psf.motion(5, 40), "unknown"),
        (psf.motion(5, 90), "unknown"),
        (UNEVEN, "reflect"),
        (LINE, "unknown"),
        *((DEEP, b) for b in BOUNDARIES),
    ],
)
def test_tiles_are_the_picture_solved_whole(h, boundary, rng):
    shape, tile = {1: ((500,), 100), 2: ((200, 136), 64), 3: ((44, 42, 40), 20)}[h.ndim]
    g, given = picture(h, boundary, shape, rng), {"boundary": boundary, "tile": tile}
    whole = deblur.reconstruct(g, h, 0.05, boundary=boundary)
    assert apart(whole, tiled(g, h, 0.05, tolerance=1e-3, **given), g) < 1e-3
    assert apart(whole, tiled(g, h, 0.05, tolerance=1e-6, **given), g) < 1e-6
    # The frame's own edges are not only near: with no overlap at all there are seams, and still no error there.
    with pytest.warns(UserWarning, match="above the tolerance .* pixels suffice"):
        assert apart(whole, tiled(g, h, 0.05, overlap=0, **given), g) > 0.02


@pytest.mark.parametrize("boundary", ["reflect", "unknown"])
@pytest.mark.parametrize(
    ("method", "prior"), [("auto", "smooth"), ("pcg", "zero"), ("gradient", "auto"), ("identity", "auto")]
)
def test_methods_and_priors(method, prior, boundary, rng):
    g = 10 + picture(H, boundary, (200, 160), rng)  # on a level far above its range
    options = {"method": method, "prior": prior, "boundary": boundary}
    whole = deblur.reconstruct(g, H, LAM, rtol=1e-9, **options)
    options["boundary"] = boundary.replace("unknown", "auto")
    assert apart(whole, tiled(g, H, LAM, tile=64, tolerance=1e-4, **options), g) < 1e-4
    assert apart(deblur.reconstruct(g[:60], H, rtol=1e-9, **options), tiled(g[:60], H, rtol=1e-9, **options), g) < 1e-4


@pytest.mark.parametrize("boundary", ["unknown", "reflect", "periodic"])
def test_tiles_of_natural_scenes_are_the_picture_solved_whole(boundary, rng):
    g = picture(DISK, boundary, (200, 180), rng)
    options = {"boundary": boundary, "prior": "natural"}
    whole = deblur.reconstruct(g, DISK, LAM, **options)
    tiling = Tiling(g, DISK, LAM, tile=64, **options)
    assert apart(tiling(g), whole, g) <= tiling.plan.seam <= 1e-3
    passes = Tiling(g, DISK, LAM, tile=64, overlap=12, passes=3, tolerance=0.5, **options)
    assert apart(passes(g), whole, g) <= passes.plan.seam
    assert residual(tiling, g, whole).residual < 1e-7  # right by an independent account
    assert residual(tiling, g, whole + 0.01).residual > 1e-4


def test_noise_is_hidden_as_in_the_picture_solved_whole():
    g = deblur.data.load("camera")[:400, :400]
    g = deblur.Blur(H, g.shape, "reflect").forward(g)
    g = g + 0.05 * np.random.default_rng(0).standard_normal(g.shape)
    whole = deblur.solve(g, H, boundary="reflect")
    tiling = Tiling(g, H, tile=200, boundary="reflect")
    assert whole.prior == tiling.recipe.options["prior"] == "natural"
    assert "natural" in tiling.lam_reason
    assert 0.5 < tiling.lam / whole.lam < 2
    assert Tiling(g, H, tile=200, boundary="reflect", prior="smooth").recipe.options["prior"] == "smooth"


def test_without_noise_lambda_is_for_the_prior_that_the_tiles_have():
    g = deblur.Blur(H, (120, 120), "reflect").forward(deblur.data.load("camera")[100:220, 200:320])
    tiling = Tiling(g, H, tile=64, boundary="reflect")
    assert (tiling.recipe.options["prior"], tiling.lam) == ("zero", deblur.solve(g, H, boundary="reflect").lam)
    assert tiling.lam == Tiling(g, H, tile=64, boundary="reflect", prior="zero").lam
    tiling = Tiling(g, H, boundary="reflect", memory=2**20, tolerance=1e-2)
    assert "raised" in tiling.lam_reason
    assert apart(tiling(g), deblur.reconstruct(g, H, tiling.lam, boundary="reflect"), g) <= 1e-2


def test_float32_integers_colours_and_stacks(rng):
    g = np.stack([picture(H, "zero", (130, 150), rng) for _ in range(3)])
    whole = np.stack([deblur.reconstruct(f, H, LAM, boundary="zero") for f in g])
    few = tiled(g.astype(np.float32), H, LAM, stack_axis=0, tile=64, boundary="zero")
    assert (few.dtype, few.shape) == (np.float32, g.shape)
    assert apart(few, whole, g) < 1e-3
    last = tiled(g.transpose(1, 2, 0), H, LAM, channel_axis=-1, tile=64, boundary="zero")
    assert apart(last.transpose(2, 0, 1), whole, g) < 1e-3
    bytes8 = np.clip(np.round(255 * g), 0, 255).astype(np.uint8)
    out = tiled(bytes8[0], H, LAM, tile=64, boundary="zero")
    assert out.dtype == np.float32  # enough for 8 bits
    assert apart(out, deblur.reconstruct(bytes8[0], H, LAM, boundary="zero"), g) < 1e-3
    assert tiled(bytes8[0], H, LAM, tile=64, dtype="float64").dtype == np.float64


def test_each_frame_may_have_its_own_psf(rng):
    hs = np.stack([H, psf.disk(9, 2.0), psf.gaussian(9, 1.0)])
    g = np.stack([picture(h, "zero", (130, 110), rng) for h in hs])
    out = tiled(g, hs, LAM, stack_axis=0, tile=64, boundary="zero")
    for f, frame, h in zip(out, g, hs, strict=True):
        assert apart(f, deblur.reconstruct(frame, h, LAM, boundary="zero"), g) < 1e-3
    refused(ValueError, "one for each frame", tiled, g, hs[:2], LAM, stack_axis=0)


def test_one_lam_for_the_whole_picture(rng):
    for boundary, noise in zip(("auto", "reflect", "reflect", "zero", "antireflect"), (0.02, 0.02, 1e-4, 1e-3, 1e-4)):
        true, rule = ("reflect", "gcv") if noise == 0.02 else (boundary, "auto")
        g = deblur.degrade(deblur.data.load("camera")[:400, :400], H, noise=noise, seed=rng, boundary=true)
        tiling = Tiling(g, H, rule, tile=200, boundary=boundary)
        assert "9 windows spread over the image" in tiling.lam_reason
        assert 0.5 < tiling.lam / deblur.solve(g, H, rule, boundary=boundary).lam < 2
        assert apart(tiling(g), deblur.reconstruct(g, H, tiling.lam, boundary=boundary), g) < 1e-3


@pytest.mark.parametrize("boundary", ["zero", "periodic", "unknown"])
def test_the_boundary_is_read_off_the_corners(boundary, rng):
    h = psf.gaussian(15, 2.5)
    g = picture(h, boundary, (600, 560), rng, noise=0.002)
    tiling = Tiling(g, h, LAM, tile=256)
    assert tiling.plan.boundary == boundary
    assert "in its corners" in tiling.boundary_reason
    assert apart(tiling(g), deblur.reconstruct(g, h, LAM, boundary=boundary), g) < 1e-3


@pytest.mark.parametrize(
    ("method", "h", "shape", "tile"),
    [
        *(("tv", H, (144, 128), 72), ("tv", DEEP, (30, 28, 12), 14), ("tv", LINE, (500,), 250)),
        ("richardson-lucy", DEEP, (30, 28, 12), 14),
    ],
)
def test_the_overlap_of_other_methods_is_measured(method, h, shape, tile, rng):
    g = picture(h, "reflect", shape, rng)
    options = {"method": method, "boundary": "reflect"}
    whole = deblur.reconstruct(g, h, 5e-3, **options)
    tiling = Tiling(g, h, 5e-3, tile=tile, tolerance=0.02, **options)
    assert "was measured on" in tiling.plan.reason
    assert tiling.plan.seam <= 0.02
    assert apart(tiling(g), whole, g) < 0.02
    tiling = Tiling(g, h, 5e-3, tile=tile, overlap=0, tolerance=1e-4, **options)
    with pytest.warns(UserWarning, match="above the tolerance .* (leave|rtol|larger tiles)"):
        tiling.check_seam()
    assert 0.5 < tiling.plan.seam / apart(tiling(g), whole, g) < 2


@pytest.mark.parametrize(
    ("h", "boundary"), [*((DISK, b) for b in BOUNDARIES), (DEEP, "unknown"), (psf.box((1, 9)), "reflect")]
)
def test_tiles_that_are_refined_are_the_picture_solved_whole(h, boundary, rng):
    overlap = 4 if h is DEEP else (0 if len(h) == 1 else 12, 12)  # 0: the PSF has one row
    shape, tile = ((60, 18, 20), (20, 18, 20)) if h is DEEP else ((150, 130), 64)
    g = picture(h, boundary, shape, rng)
    whole = deblur.reconstruct(g, h, LAM, boundary=boundary)
    tiling = Tiling(g, h, LAM, tile=tile, overlap=overlap, passes=3, tolerance=0.5, boundary=boundary)
    assert tiling.plan.answer == "refine"
    out = tiling(g)
    once, _ = tiling.mapped(g, None, last=True)
    assert apart(whole, out, g) <= min(tiling.plan.seam, 0.05 * apart(whole, once, g))


@pytest.mark.parametrize("boundary", ["periodic", "reflect"])
def test_refining_a_dask_array_is_lazy_and_the_same(boundary, rng):
    da = pytest.importorskip("dask.array")
    g = picture(DISK, boundary, (150, 130), rng)
    tiling = Tiling(g, DISK, LAM, tile=64, overlap=12, passes=2, tolerance=0.5, boundary=boundary)
    lazy = tiling(da.from_array(g, chunks=70))
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), tiling(g), atol=1e-12)


def test_refining_serves_float32_colours_and_frames_of_their_own_psf(rng):
    hs = np.stack([DISK, psf.gaussian(3, 0.8)])
    g = np.stack([[picture(h, "unknown", (130, 120), rng) for _ in range(2)] for h in hs])
    given = {"tile": 64, "overlap": 14, "passes": 3, "tolerance": 0.5, "stack_axis": 0, "channel_axis": 1}
    out = Tiling(g.astype(np.float32), hs, LAM, **given, boundary="unknown")(g.astype(np.float32))
    assert out.dtype == np.float32
    for f, frame, h in zip(out, g, hs, strict=True):
        assert apart(f, deblur.reconstruct(frame, h, LAM, channel_axis=0, boundary="unknown"), g) < 1e-4


def test_refining_goes_on_until_it_is_right_or_says_that_it_cannot(rng, monkeypatch):
    passes, real = [], Tiling.mapped
    monkeypatch.setattr(Tiling, "mapped", lambda *args, **more: passes.append(more) or real(*args, **more))
    g = picture(DISK, "periodic", (192, 192), rng)
    options = {"boundary": "periodic"}
    whole = deblur.reconstruct(g, DISK, LAM, **options)
    tiling = Tiling(g, DISK, LAM, tile=64, overlap=10, passes=2, tolerance=1e-6, **options)
    assert apart(tiling(g), whole, g) <= 1e-6
    assert len(passes) > 2
    part = g[:128, :128]
    far = Tiling(part, psf.box(3), 1e-3, tile=64, overlap=1, passes=2, **options)
    refused(ConvergenceError, "tiles still change by", far, part)


@pytest.fixture
def refine(monkeypatch):
    """Let tiles of an overlap be refined whatever memory there is; the passes are measured on a part of the image."""

    def asked(overlap):
        planned = {"overlap": overlap, "passes": 2}
        monkeypatch.setattr(module, "plan_tiles", lambda *args, **given: plan_tiles(*args, **{**given, **planned}))

    return asked


def test_passes_are_as_many_as_a_part_of_the_picture_takes(rng, monkeypatch, refine):
    h = psf.motion(6, 45)
    refine(24)
    g = picture(h, "periodic", (210, 192), rng)
    options = {"boundary": "periodic"}
    tiling = Tiling(g, h, 3e-3, tile=96, tolerance=1e-3, **options)
    assert tiling.plan.passes > 2
    assert "on a part of the image" in tiling.plan.reason
    assert apart(tiling(g), deblur.reconstruct(g, h, 3e-3, **options), g) <= 1e-3
    monkeypatch.setattr(refining, "PASSES", 2)
    with pytest.raises(InsufficientMemoryError, match="2 passes over tiles .* still left"):
        Tiling(g, h, 3e-3, tile=96, tolerance=1e-3, **options)


def test_what_refining_leaves_is_predicted_next_to_a_short_last_tile_too(rng, refine):
    h = psf.box((3, 1))
    refine(34)
    g = picture(h, "periodic", (360, 64), rng)  # a window of 284 pixels sees nearly all of two tiles
    options = {"boundary": "periodic"}
    tiling = Tiling(g, h, 3e-3, tile=144, tolerance=1e-3, **options)
    y, _ = tiling.mapped(g, None, last=False)
    out, change = tiling.mapped(g, y, last=True)
    left = abs(out - deblur.reconstruct(g, h, 3e-3, **options)).max()
    assert left <= tiling.plan.seam_once * change <= 10 * left


def test_threads_are_bounded(rng, monkeypatch):
    seen = set()
    real = scipy.fft.rfft

    def watched(*args, **kwargs):
        seen.add((threading.current_thread() is threading.main_thread(), scipy.fft.get_workers()))
        return real(*args, **kwargs)

    monkeypatch.setattr(scipy.fft, "rfft", watched)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    h = psf.motion(5, 40)
    g = picture(h, "unknown", (160, 160), rng)
    tiling = Tiling(g, h, 0.1, tile=48, workers=2, boundary="unknown")
    seen.clear()
    tiling(g)
    assert {workers for main, workers in seen if not main} == {1}
    with threads.thread_limit(3):
        assert threads.cores() == 3
        with threads.all_cores():
            assert scipy.fft.get_workers() == 3
    with threads.thread_limit(1), threads.all_cores():
        assert scipy.fft.get_workers() == 1
    with threads.all_cores():
        assert scipy.fft.get_workers() == 4


@pytest.fixture
def solved(monkeypatch):
    """The shapes of the windows that a solver was prepared for."""
    made, real = [], windows.window_solver
    monkeypatch.setattr(windows, "window_solver", lambda *args: made.append(args[1]) or real(*args))
    return made


@pytest.mark.parametrize(("boundary", "kinds"), [("unknown", 3), ("zero", 8)])
def test_windows_that_are_alike_share_one_solver(boundary, kinds, rng, solved):
    tiled(picture(H, boundary, (320, 320), rng), H, LAM, boundary=boundary, tile=80, workers=1)
    # At sides and corners, which "unknown" tells apart by their size alone; inside all are filtered.
    assert len(solved) == kinds


@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
def test_one_filter_serves_all_windows_and_only_strips_along_the_border_are_solved_as_images(
    boundary, rng, solved, monkeypatch
):
    g = picture(DISK, boundary, (450, 470), rng)
    whole = deblur.reconstruct(g, DISK, 0.05, boundary=boundary)
    filters, real = [], windows._by_kernel
    monkeypatch.setattr(windows, "_by_kernel", lambda *args: filters.append(args) or real(*args))
    tiling = Tiling(g, DISK, 0.05, tile=150, overlap=20, workers=1, boundary=boundary)
    assert apart(tiling(g), whole, g) <= tiling.plan.seam
    assert len(filters) == 1  # of windows inside, at sides and at corners
    room = 16 if boundary == "zero" else 0  # inner edges are faded to black
    assert all(min(shape) <= 40 + 2 * room for shape in solved)
    # Where the overlap is missing nothing is known of the strips, and the windows are solved whole.
    solved.clear()
    Tiling(g, DISK, 0.05, tile=150, overlap=0, workers=1, boundary=boundary)(g)
    assert {min(shape) for shape in solved} == {20 + room, 150 + room}


def test_the_last_sliver_belongs_to_the_tile_before():
    assert cut(100, 30, 5) == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert cut(100, 30, 11) == [(0, 30), (30, 60), (60, 100)]
    assert cut(20, 30, 11) == [(0, 20)]


def test_a_tile_with_nan_is_named(rng):
    g = picture(H, "zero", (600, 600), rng)
    g[10, 590] = np.nan
    refused(ValueError, r"rows 0 to 128, columns 512 to 600.*1 value\(s\) that are NaN", tiled, g, H, LAM, tile=128)


@pytest.mark.parametrize(
    ("error", "match", "given"),
    [
        (MethodError, "tiles do not support mask", {"mask": np.zeros((64, 64), bool)}),
        (InsufficientMemoryError, "no tile that fits 100 KiB", {"memory": 102400, "lam": 1e-4}),
        (InsufficientMemoryError, "no tile .* fits 100 KiB.* whole image takes", {"memory": 102400, "method": "tv"}),
        (InsufficientMemoryError, "takes 36 MiB of 100 KiB", {"memory": 102400, "shape": (64,) * 3, "psf": DEEP}),
        (ValueError, "two left, rows and columns", {"stack_axis": 0}),
        (ValueError, "λ = 0 .* give a larger λ", {"lam": 0}),
        (ValueError, "for a 3-D PSF, not 4", {"shape": (2, 9, 9, 9), "psf": DEEP}),
        (TypeError, "no option 'tol'", {"tol": 3}),
        (ValueError, "below what float32 holds", {"tolerance": 1e-8, "dtype": "float32", "tile": 32}),
        (MethodError, "boundary", {"method": "dct", "boundary": "unknown"}),
        (MethodError, "another iteration in each tile", {"method": "richardson-lucy", "lam": "auto"}),
    ],
)
def test_what_cannot_be_tiled_is_refused(error, match, given):
    g = np.random.default_rng(0).random(given.pop("shape", (64, 64)))
    refused(error, match, tiled, g, given.pop("psf", H), given.pop("lam", LAM), **given)


# -- Dask and xarray ---------------------------------------------------------------------------


class Counting:
    """An array that counts how often each of its chunks is read."""

    def __init__(self, array, chunk):
        self.array, self.chunk, self.reads = array, chunk, {}
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, at):
        starts = tuple(s.start or 0 for s in at)
        if all(s.stop - a == c for s, a, c in zip(at, starts, self.chunk, strict=True)):
            self.reads[starts] = self.reads.get(starts, 0) + 1
        return self.array[at]


@pytest.mark.parametrize(
    ("h", "shape", "tile", "boundary"),
    [
        *((H, (240, 180), 60, b) for b in ("unknown", "zero", "periodic")),
        *((DEEP, (48, 32, 16), 16, b) for b in ("unknown", "periodic")),
    ],
)
def test_a_dask_array_is_lazy_and_each_chunk_is_read_once(h, shape, tile, boundary, rng):
    da = pytest.importorskip("dask.array")
    g = picture(h, boundary, shape, rng)
    source = Counting(g, (tile,) * h.ndim)
    x = da.from_array(source, chunks=tile, name="source", fancy=False)
    options = {"boundary": boundary, "tile": tile}
    out = tiled(x, h, 0.05, **options)
    assert isinstance(out, da.Array)
    assert out.chunks == tuple((tile,) * (n // tile) for n in shape)
    source.reads.clear()
    np.testing.assert_array_equal(out.compute(scheduler="threads", num_workers=2), tiled(g, h, 0.05, **options))
    assert source.reads == dict.fromkeys(itertools.product(*(range(0, n, tile) for n in shape)), 1)


def test_chunks_that_are_no_tiles_are_put_together(rng):
    da = pytest.importorskip("dask.array")
    g = np.stack([picture(H, "reflect", (150, 130), rng) for _ in range(4)])
    x = da.from_array(g.transpose(1, 2, 0), chunks=(37, 130, 2))
    out = tiled(x, H, LAM, boundary="reflect", stack_axis=-1, tile=64)
    expected = tiled(g, H, LAM, boundary="reflect", stack_axis=0, tile=64)
    np.testing.assert_array_equal(out.compute().transpose(2, 0, 1), expected)
    hs = np.stack([H, psf.disk(9, 2.0), H, psf.gaussian(9, 1.0)])
    out = tiled(da.from_array(g, chunks=(2, 50, 50)), hs, LAM, stack_axis=0, tile=64).compute()
    np.testing.assert_array_equal(out, tiled(g, hs, LAM, stack_axis=0, tile=64))


def test_a_small_stack_is_solved_frame_by_frame_without_seams(rng):
    da = pytest.importorskip("dask.array")
    g = np.stack([picture(H, "unknown", (50, 60), rng) for _ in range(6)])
    out = tiled(da.from_array(g, chunks=(2, 50, 60)), H, LAM, stack_axis=0, boundary="unknown")
    assert out.chunks == ((2, 2, 2), (50,), (60,))
    for f, frame in zip(out.compute(), g, strict=True):
        np.testing.assert_allclose(f, deblur.reconstruct(frame, H, LAM, boundary="unknown"), atol=1e-6)


def test_the_graph_travels_to_other_processes(rng):
    da = pytest.importorskip("dask.array")
    g = picture(H, "unknown", (150, 150), rng)
    out = tiled(da.from_array(g, chunks=64), H, LAM, boundary="unknown", tile=64)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(out)).compute(), out.compute())


def test_an_xarray_keeps_its_coordinates(rng):
    xarray = pytest.importorskip("xarray")
    g = picture(H, "zero", (120, 100), rng)
    said = {"coords": {"t": [1.0, 2.5], "y": np.arange(120) * 0.5}, "attrs": {"unit": "counts"}}
    x = xarray.DataArray(np.stack([g, g]), dims=("t", "y", "x"), name="light", **said)
    out = tiled(x, H, LAM, tile=64)
    assert (out.dims, out.name) == (x.dims, "light")
    assert out.attrs == {"unit": "counts"}
    assert (out.coords["y"] == x.coords["y"]).all()
    np.testing.assert_array_equal(out.values[1], tiled(g, H, LAM, tile=64))
    pytest.importorskip("dask.array")
    lazy = tiled(x.chunk({"t": 1, "y": 60}), H, LAM, tile=64)
    assert lazy.chunks is not None
    np.testing.assert_array_equal(lazy.values, out.values)


@pytest.mark.parametrize("level", [0.0, 1e3, -30.0])
@pytest.mark.parametrize("boundary", ["zero", "reflect"])
def test_the_range_of_a_scene_that_is_dark_beyond_its_frame_has_its_level(rng, boundary, level):
    """The edge that tiles inside do not see is as high as the level, also where the sample shows none of it."""
    g = deblur.degrade(np.kron(rng.random((30, 28)), np.ones((10, 10))) + level, H, boundary=boundary)
    tiling = Tiling(g, H, LAM, tile=90, boundary=boundary, dtype="float64")
    whole = deblur.reconstruct(g, H, LAM, boundary=boundary)
    assert tiling.range <= 1.01 * (np.ptp([*g.flat, 0]) if boundary == "zero" else np.ptp(g))
    assert max([*tiling.measure(), abs(tiling(g) - whole).max() / tiling.range]) <= tiling.plan.tolerance


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("h", "side", "tile", "boundary"), [(H, 300, 96, "unknown"), (DISK, 450, 150, "unknown"), (DISK, 450, 150, "zero")]
)
def test_tiles_are_solved_on_the_gpu(h, side, tile, boundary, cupy, rng):
    g = picture(h, boundary, (side, side - 20), rng)
    options = {"boundary": boundary, "tile": tile}
    host = tiled(g, h, 0.05, **options)
    there = tiled(cupy.asarray(g), h, 0.05, **options)
    assert isinstance(there, cupy.ndarray)
    np.testing.assert_allclose(cupy.asnumpy(there), host, atol=1e-6)
    for given in (g, g.astype(">f8")):
        np.testing.assert_allclose(tiled(given, h, 0.05, **options, device="gpu"), host, atol=1e-6)
    da = pytest.importorskip("dask.array")
    lazy = tiled(da.from_array(g, chunks=tile), h, 0.05, **options, device="gpu", memory=2**30)
    np.testing.assert_allclose(lazy.compute(scheduler="threads", num_workers=2), host, atol=1e-6)
