"""The plan of tiles against dense algebra, against windows that were solved, and in its answers."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import unit_impulse
from test_tiled import picture

import deblur
from deblur import METHODS, device, plan_tiles, psf
from deblur.errors import MethodError
from deblur.problem import Problem
from deblur.tiles import reach as tails_of
from deblur.tiles.reach import CORRELATION, SHARP, reach
from deblur.tiles.windows import Recipe, restore

HUGE = (100_000, 100_000)
ROOM = 2**28


def tails_along(axis, h, lam, regularizer="identity", safe=True):
    problem = Problem(deblur.Blur(h, (64, 64), "periodic"), lam, regularizer=regularizer)
    return reach(problem, axis, 1e-9, safe=safe)


@pytest.mark.parametrize(
    ("h", "lam"), [(psf.gaussian(5, 1.0), 0.1), (psf.motion(5, 30), 0.3), (np.array([[0.6, 0.3, 0.1]]), 0.1)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_tails_are_those_of_the_dense_inverse(h, lam, axis):
    n = 25
    H = deblur.Blur(h, (n, n), "periodic").to_dense()
    inverse = np.linalg.solve(H.T @ H + lam * np.eye(n * n), H.T)
    at = n // 2
    # What the pixel in the middle takes from each pixel of the image: position t before it is k(t).
    row = inverse.reshape(n, n, n, n)[at, at]
    tails = tails_along(axis, h, lam)
    lines = np.moveaxis(row, axis, 0)
    for d in (0, 1, 3, 6):
        right, left = abs(lines[: at - d]).sum(), abs(lines[at + d + 1 :]).sum()
        # The small torus adds what wraps round it.
        slack = abs(tails.before[at - 1]) + abs(tails.after[at - 1]) + 1e-9
        assert tails.after[d] == pytest.approx(right, abs=3 * slack)
        assert tails.before[d] == pytest.approx(left, abs=3 * slack)


@pytest.mark.parametrize("regularizer", ["gradient", "laplacian", "natural"])
def test_a_quadratic_penalty_has_its_own_kernel(regularizer):
    h, n, lam = psf.gaussian(5, 1.0), 32, 0.05
    point = unit_impulse((n, n), "mid")
    if regularizer == "natural":  # without the smoothed image that the scene is drawn towards
        problem = Problem(deblur.Blur(h, (n, n), "periodic"), lam, regularizer=regularizer)
        k = METHODS["fft"].prepare(problem).solve(point[None, None]).scene[0, 0]
    else:
        k = deblur.reconstruct(point, h, lam, method=regularizer, boundary="periodic", rtol=1e-10)
    tails = tails_along(1, h, lam, regularizer)
    assert tails.before[2] == pytest.approx(abs(k[:, : n // 2 - 2]).sum(), rel=0.02)


@pytest.mark.parametrize(
    ("h", "lam"), [(psf.gaussian(9, 1.5), 1e-2), (psf.gaussian(9, 1.5), 1e-4), (psf.disk(5), 1e-2)]
)
def test_a_window_of_the_planned_overlap_has_the_predicted_seam(h, lam, rng):
    n, tile, tolerance = 384, 96, 1e-3
    g = picture(h, "reflect", (n, n), rng)  # edges also along the seams
    whole = deblur.reconstruct(g, h, lam, boundary="reflect")
    plan = plan_tiles(h, lam, (n, n), boundary="reflect", tile=tile, tolerance=tolerance)

    def seam(d):
        a, b = tile - d, 2 * tile + d
        f = deblur.reconstruct(g[a:b, a:b], h, lam, boundary="reflect")[d:-d, d:-d]
        return abs(f - whole[tile : 2 * tile, tile : 2 * tile]).max() / np.ptp(g)

    [d] = set(plan.overlap)
    assert seam(d) <= plan.seam <= tolerance
    assert seam(d // 3) > tolerance  # a third of it would not have done


def test_no_picture_exceeds_the_bound(rng):
    # The worst picture there is: what lies beyond the window has the sign of the kernel, and its continuation the
    # opposite one. The window's own pixels do not matter.
    h, lam, tile, n = psf.disk(5), 1e-2, 32, 256
    plan = plan_tiles(h, lam, HUGE, tile=tile, overlap=tile, tolerance=0.1, safe=True, memory=ROOM)
    k = deblur.reconstruct(unit_impulse((n, n), "mid"), h, lam, boundary="periodic")
    row, col = np.indices(k.shape) - n // 2
    worst = 0.0
    for r in (0, 5, tile - 1):
        for c in (0, 17, tile - 1):  # the pixel's place in its tile
            inside = (row >= -tile - r) & (row < 2 * tile - r) & (col >= -tile - c) & (col < 2 * tile - c)
            worst = max(worst, abs(k[~inside]).sum())
    assert worst <= plan.bound <= 2.5 * worst


def test_the_overlap_follows_the_psf_and_lam():
    lams = (1e-1, 1e-2, 1e-3, 1e-4)
    plans = [plan_tiles(psf.disk(7), lam, HUGE, memory=ROOM, dtype="float32") for lam in lams]
    overlaps = [p.overlap[0] for p in plans[:3]]
    assert overlaps == sorted(overlaps)
    assert overlaps[2] > 20 * 7  # "a few PSF sizes" would be far too little
    assert [p.answer for p in plans] == ["tiles", "tiles", "tiles", "refine"]
    assert "602 pixels away" in plans[3].reason
    assert "no tile that fits 256 MiB" in plans[3].reason
    along = plan_tiles(psf.motion(9, 0), 1e-2, HUGE, memory=ROOM, prior="zero")
    assert along.overlap[0] == 0  # a horizontal motion blur reaches along rows only
    assert along.overlap[1] > 0
    smooth = plan_tiles(psf.motion(9, 0), 1e-2, HUGE, memory=ROOM)
    assert 0 < smooth.overlap[0] <= 12  # and the image that the scene is drawn towards is smoothed
    assert smooth.overlap[1] == along.overlap[1]


def test_where_the_overlap_does_not_fit_tiles_are_refined_in_passes():
    plan = plan_tiles(psf.disk(7), 1e-4, HUGE, memory=ROOM // 2, dtype="float32")
    assert plan.answer == "refine"
    assert plan.passes > 1
    assert plan.overlap[0] < 573 / 2
    assert plan.bytes <= ROOM // 2 < plan.whole_bytes
    assert plan.seam <= plan.tolerance < plan.seam_once
    assert f"in {plan.passes} passes" in str(plan)
    # Each pass does the work of its windows, which see a margin beyond their overlap.
    assert plan.work > plan.passes * (1 + 2 * plan.overlap[0] / plan.tile[0]) ** 2
    finer = plan_tiles(psf.disk(7), 1e-4, HUGE, memory=ROOM // 2, dtype="float32", tolerance=3e-4)
    assert finer.answer == "refine"
    assert finer.passes >= plan.passes
    assert finer.seam <= 3e-4
    again = plan_tiles(psf.disk(7), 1e-4, HUGE, tile=plan.tile, overlap=plan.overlap, passes=plan.passes)
    assert (again.answer, again.seam, again.tile) == ("refine", plan.seam, plan.tile)


@pytest.mark.parametrize("given", [{"memory": 2**26}, {"method": "gradient", "memory": 2**24, "lam": 1e-3}])
def test_a_plan_says_that_nothing_serves(given):
    plan = plan_tiles(psf.disk(7), given.pop("lam", 1e-4), HUGE, dtype="float32", **given)
    assert plan.answer == "none"
    assert "more memory for a worker" in plan.reason


def test_a_frame_that_mirrors_an_uneven_psf_asks_for_more():
    def overlap(h, boundary):
        return plan_tiles(h, 0.05, HUGE, boundary=boundary, memory=ROOM).overlap

    uneven = np.array([[0.6, 0, 0], [0, 0, 0.4]])
    inside = overlap(uneven, "periodic")[0]
    assert inside < overlap(uneven, "reflect")[0] < 2 * inside
    assert overlap(psf.disk(5), "periodic") == overlap(psf.disk(5), "reflect")


def test_the_sharp_tail_is_the_deviation_over_random_pictures():
    h, lam, n, d = psf.disk(5), 1e-2, 64, 12
    k = deblur.reconstruct(unit_impulse((n, n), "mid"), h, lam, boundary="periodic")
    lag = np.minimum(np.arange(n), n - np.arange(n))
    correlation = np.exp(-lag / CORRELATION)  # of one axis; the picture's is the product
    line = np.exp(-np.abs(np.arange(n)[:, None] - np.arange(n)[None]) / CORRELATION)
    beyond = k[n // 2 + d + 1 :]
    across = np.fft.ifft(np.fft.fft(beyond, axis=1) * np.fft.fft(correlation), axis=1).real
    expected = np.einsum("ic,ij,jc->", beyond, line[: len(beyond), : len(beyond)], across)
    assert tails_along(0, h, lam).sharp[d] == pytest.approx(np.sqrt(expected), rel=0.02)


def test_a_plan_keeps_to_its_memory_and_its_chunks():
    for memory in (2**25, 2**27, 2**29):
        plan = plan_tiles(psf.disk(7), 1e-2, HUGE, memory=memory, boundary="unknown", dtype="float32")
        assert plan.answer == "tiles"
        assert plan.bytes <= memory == plan.memory
    plan = plan_tiles(psf.disk(7), 1e-2, (10_000, 20_000), chunk=(300, 700), memory=2**30)
    assert plan.tile[0] % 300 == plan.tile[1] % 700 == 0
    # Where no tile of whole chunks fits, as of a volume that is stored plane by plane, tiles are smaller than chunks.
    deep = plan_tiles(psf.gaussian((3, 5, 5), 1.0), 0.05, (900,) * 3, chunk=(1, 900, 900), memory=2**26)
    assert (deep.answer, deep.bytes <= 2**26, max(deep.tile) < 200) == ("tiles", True, True)
    axes = zip(plan.shape, plan.tile, plan.overlap, strict=True)
    assert plan.work == pytest.approx(np.prod([1 + (-(-n // t) - 1) * 2 * d / n for n, t, d in axes]))


def test_a_picture_that_fits_is_solved_whole():
    plan = plan_tiles(psf.gaussian(9, 1.5), 1e-2, (300, 400), memory=2**30)
    assert plan.answer == "whole"
    assert "400" not in plan.reason
    assert (plan.tile, plan.overlap) == ((300, 400), (0, 0))
    far = plan_tiles(psf.disk(7), 1e-4, (3000, 3000), memory=2**34)
    assert far.answer == "whole"
    assert "602 pixels" in far.reason


def test_a_plan_of_any_size_has_figures_that_can_be_read():
    for side in (10**9, 10**12):
        plan = plan_tiles(psf.disk(5), 1e-2, (side, side), memory=2**30)
        assert plan.answer == "tiles"
        assert max(len(figure) for figure in str(plan).splitlines()[-1].split()) < 8
    assert device.format_bytes(2**70) == "1 ZiB"
    assert device.format_bytes(2**100) == "1.049e+06 YiB"


def test_a_plan_prints_all_it_knows_and_pickles():
    plan = plan_tiles(psf.disk(7), 1e-2, HUGE, memory=ROOM, dtype="float32")
    text = str(plan)
    for part in ("100000 x 100000", "57 x 57", "256 MiB", f"{plan.tiles} of", "float32"):
        assert part in text
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert replace(plan, answer="whole") != plan


def test_a_plan_is_made_again_without_looking_again(monkeypatch):
    made, real = [], tails_of.Reach
    monkeypatch.setattr(tails_of, "Reach", lambda *args: made.append(args) or real(*args))
    for tile in (96, 128, 160):
        plan_tiles(psf.disk(5), 0.0123, HUGE, memory=ROOM, tile=tile)
    assert len(made) == 1
    plan_tiles(psf.disk(5), 0.0124, HUGE, memory=ROOM)
    assert len(made) == 2


def test_the_requested_overlap_is_predicted():
    plan = plan_tiles(psf.disk(7), 1e-3, HUGE, memory=2**30, overlap=14)
    assert plan.overlap == (14, 14)
    assert plan.seam > 0.9  # "a few PSF sizes" of a small λ: the seam is as large as the picture
    assert plan.seam == pytest.approx(SHARP * tails_along(0, psf.disk(7), 1e-3, safe=False).sharp[14])


FAINT = {"boundary": "antireflect", "dtype": "float32"}


@pytest.mark.parametrize(
    ("error", "match", "given"),
    [
        (TypeError, "not the rule 'gcv'", {"lam": "gcv"}),
        (ValueError, "influence of a pixel is unlimited", {"lam": 0.0, "psf": psf.box(4)}),
        (ValueError, "part of the range", {"tolerance": np.nan}),
        (ValueError, "below what float32 holds", {"tolerance": 1e-7, "lam": 1e-2, "dtype": "float32"}),
        (ValueError, "float32 holds", {"psf": psf.airy(15, 3), "lam": 1e-4, **FAINT}),
        (ValueError, "larger than a tile", {"tile": 16, "overlap": 2, "psf": psf.gaussian(31, 5)}),
        (ValueError, "larger than the image", {"shape": (5, 5)}),
        (ValueError, "shape must be", {"shape": (5.5, 100)}),
        (ValueError, "memory must be", {"memory": 0}),
        (ValueError, "unknown boundary", {"boundary": "mirror"}),
        (ValueError, "prior", {"prior": "rough"}),
        (MethodError, "the scene ends at the frame", {"prior": "natural", "boundary": "zero"}),
        (MethodError, "belongs to the linear formula", {"prior": "natural", "method": "gradient"}),
        (ValueError, "unknown method", {"method": "magic"}),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_work(error, match, given):
    arguments = {"psf": psf.disk(7), "lam": 1e-2, "shape": HUGE, **given}
    with pytest.raises(error, match=match):
        plan_tiles(arguments.pop("psf"), arguments.pop("lam"), arguments.pop("shape"), **arguments)


@pytest.mark.parametrize(("boundary", "prior"), [("reflect", "natural"), ("periodic", "smooth"), ("unknown", "smooth")])
def test_no_window_takes_more_memory_than_planned(boundary, prior, rng):
    n, inside = 512, ((False, False), (False, False))
    options = {"boundary": boundary, "dtype": "float32", "prior": prior}
    recipe = Recipe(psf.disk(5)[None], 1e-2, options)
    plan = plan_tiles(psf.disk(5), 1e-2, HUGE, tile=n - 64, overlap=32, memory=2**30, **options)
    windows = [(inside, n, ((32, 32), (32, 32)))]
    if boundary != "periodic":
        windows.append((((True, False), (True, False)), n - 32, ((0, 32), (0, 32))))
    for at_frame, side, trim in windows:
        window = rng.random((1, 1, side, side), np.float32)
        restore(recipe, window[..., :200, :200], at_frame, trim)  # what is imported and kept by then
        tracemalloc.start()
        restore(recipe, window, at_frame, trim)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most + window.nbytes <= plan.bytes
