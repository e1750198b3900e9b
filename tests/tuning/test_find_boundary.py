"""The boundary, read off the picture: what is found, what is said of it, and that nothing is examined where it is
named."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from realistic import photograph
from refusals import refused
from scipy.ndimage import gaussian_filter
from structured import dense_answer

import deblur
from deblur.errors import MethodError
from deblur.operators.boundary import BOUNDARIES
from deblur.tuning import boundary as reading

PSFS = {
    "gaussian": deblur.psf.gaussian(9, 1.5),
    "shake": deblur.psf.camera_shake(9, 3),
    "motion": deblur.psf.motion(9, 20),
    "line": deblur.psf.motion(7, 0),
    "even": deblur.psf.box(4),
}


def blurred(boundary, psf="gaussian", noise=0.005, seed=0, **where):
    return deblur.degrade(photograph(**where), PSFS[psf], noise=noise, boundary=boundary, seed=seed)


def read(g, h, weights=None, origin=None):
    return reading.find_boundary(deblur.Blur(h, g.shape, origin=origin), g[None, None], weights)[0]


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("psf", PSFS)
@pytest.mark.parametrize("boundary", ["zero", "periodic", "unknown"])
def test_zero_and_periodic_are_found_and_a_scene_beyond_the_frame_is_neither(boundary, psf, noise):
    for name, at in (("camera", (100, 180)), ("brick", (30, 40)), ("cat", (60, 150))):
        g = blurred(boundary, psf, noise, name=name, at=at)
        assert read(g, PSFS[psf]) == boundary, name
        # The picture knows no left and right, and no unit.
        turned = PSFS[psf][::-1, ::-1]
        assert read(1e-3 * g[::-1, ::-1], turned, origin=[m // 2 for m in turned.shape]) == boundary


def test_a_mirrored_scene_is_taken_for_unknown_the_safe_answer():
    for noise in (0.0, 0.01):
        assert read(blurred("reflect", "even", noise), PSFS["even"]) == "unknown"


def test_the_evidence_is_the_likelihood_of_lines_drawn_from_the_model():
    """Scenes that are what the model says: its own boundary wins by about as much as it says."""
    rng, n, m = np.random.default_rng(0), 64, 9
    h = np.outer(np.hanning(m + 2)[1:-1], [1.0, 2, 1])
    h /= h.sum()
    f = rng.standard_normal((3 * n, 3 * n)).cumsum(0).cumsum(1)[n : n + n + m - 1, n : n + n + 2]
    f = (f - f.mean()) / f.std() + 3
    for name in ("zero", "periodic", "reflect", "unknown"):
        scene = f if name == "unknown" else f[:n, :n]
        g = deblur.degrade(scene, h, noise=0.002, boundary=name, seed=1)
        found = reading.evidence(deblur.Blur(h, (n, n)), g[None, None], among=("zero", "periodic", "reflect"))
        assert max(found, key=found.get) == name
        assert found["unknown"] == 0


def test_hidden_pixels_have_no_effect():
    h, rng = PSFS["shake"], np.random.default_rng(5)
    for boundary in ("zero", "periodic", "unknown"):
        g = blurred(boundary, "shake")
        hidden = rng.random(g.shape) < 0.1
        spoiled = np.where(hidden, 1e3 * rng.random(g.shape), g)
        assert read(spoiled, h, (~hidden)[None, None].astype(float)) == boundary
    g = blurred("zero", "shake")
    border = np.ones(g.shape)
    border[reading._DEEP : -reading._DEEP, reading._DEEP : -reading._DEEP] = 0
    blur = deblur.Blur(h, g.shape)
    assert reading.evidence(blur, g[None, None], 1 - border) == {}
    assert reading.find_boundary(blur, g[None, None], 1 - border)[0] == "unknown"
    assert deblur.solve(spoiled, h, 1e-2, mask=hidden).boundary == "unknown"


@pytest.mark.parametrize(
    "g",
    [np.zeros((12, 12)), np.full((12, 12), 0.3), np.zeros((1, 12)), np.random.default_rng(0).random((3, 3))],
    ids=["black", "grey", "a row", "tiny"],
)
def test_where_the_border_says_nothing_the_boundary_is_unknown(g):
    result = deblur.solve(g, np.ones((1, 3)) / 3, 1e-2)
    assert result.boundary == "unknown"
    assert np.isfinite(result.image).all()
    assert deblur.solve(g, [[1.0]], 1e-2).boundary == "unknown"


def test_a_psf_as_large_as_the_picture_or_without_brightness_is_no_trouble():
    g = photograph(size=24)
    for h in (deblur.psf.gaussian(24, 5), [[1.0, -2, 1]], -np.ones((3, 3)) / 9, np.ones((3, 3))):
        assert read(g, np.asarray(h)) == "unknown"
    assert read(np.float64(1e300) * blurred("zero"), PSFS["gaussian"]) == "zero"


def test_a_border_that_is_dark_by_itself_is_neither_a_dark_surround_nor_a_repetition():
    rows, cols = np.mgrid[:80, :80] - 40
    scene = np.where(rows**2 + cols**2 < 20**2, 1.0, 0.0)
    for noise in (0.0, 0.001, 0.05):
        for boundary in ("zero", "periodic", "reflect"):
            g = deblur.degrade(scene, PSFS["gaussian"], noise=noise, boundary=boundary, seed=0)
            assert read(g, PSFS["gaussian"]) == "unknown"
    rng = np.random.default_rng(3)
    for _ in range(8):  # stars cross the edge
        stars = np.where(rng.random((104, 104)) < 0.003, 5 * rng.random((104, 104)), 0.0)
        g = deblur.degrade(stars, PSFS["gaussian"], noise=0.001, boundary="unknown", seed=0)
        assert read(g, PSFS["gaussian"]) == "unknown"


def test_the_call_the_deblurrer_and_colour_say_what_was_taken_and_why():
    h = PSFS["gaussian"]
    for boundary in ("zero", "periodic", "unknown"):
        g = blurred(boundary)
        result = deblur.solve(g, h, 1e-2)
        assert (result.boundary, result.prior) == (boundary, "smooth" if boundary == "unknown" else "zero")
        assert "detected" in result.boundary_reason
        assert f"boundary    {boundary}: {result.boundary_reason}" in str(result)
        named = deblur.solve(g, h, 1e-2, boundary=boundary)
        assert named.boundary_reason == "as requested"
        assert np.array_equal(named.image, result.image)
        assert deblur.solve(np.stack([g, 0.5 * g, g**2], axis=-1), h, 1e-2).boundary == boundary
        assert deblur.solve(np.stack([g] * 2), h, 1e-2, stack_axis=0).boundary == boundary
        assert deblur.solve(g + 0.2, h, 1e-2, background=0.2).boundary == boundary
        assert deblur.solve(g, h, 1e-2, method="tv", max_iterations=5, check=False).boundary == boundary


def test_with_a_boundary_named_nothing_is_examined(monkeypatch):
    def looked(*_):
        raise AssertionError("looked at")

    monkeypatch.setattr(reading, "evidence", looked)
    for boundary in BOUNDARIES:
        deblur.solve(photograph(size=24), PSFS["line"], 1e-2, boundary=boundary)
    refused(AssertionError, "looked at", deblur.solve, photograph(size=24), PSFS["line"], 1e-2)


@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect"])
def test_a_boundary_named_against_the_picture_is_warned_of(boundary, recwarn):
    h, where = PSFS["gaussian"], {"size": 160}
    for true, told in (("unknown", True), (boundary, False)):
        g = blurred(true, noise=0.002, **where)
        result = deblur.solve(g, h, boundary=boundary, check=False)
        words = [str(w.message) for w in recwarn]
        recwarn.clear()
        assert told == any(f"boundary '{boundary}' does not fit the picture" in text for text in words), words
        assert told == ("the scene continues beyond the frame" in str(result))
    deblur.solve(blurred("unknown", **where), h, 1e-2, boundary=boundary)  # the formula as it is written
    assert not len(recwarn)


def test_of_a_volume_each_pair_of_edges_is_read_and_a_wrong_name_warned_of(rng, recwarn):
    h, scene = deblur.psf.gaussian((5, 7, 7), (1, 1.5, 1.5)), gaussian_filter(rng.random((30, 46, 52)), 1.5)
    for true in ("zero", "periodic", "unknown"):
        g = deblur.degrade(scene, h, noise=0.002, boundary=true, seed=0)
        assert deblur.solve(g, h).boundary == true
    recwarn.clear()
    assert "scene continues beyond" in deblur.solve(g, h, boundary="periodic").checks
    assert [str(w.message)[:43] for w in recwarn] == ["boundary 'periodic' does not fit the picture"[:43]]
    # Dark at four of its six edges, it goes on beyond the other two; and of hidden voxels nothing is read.
    g = deblur.degrade(np.pad(scene, ((0, 0), (9, 9), (9, 9))), h, noise=0.002, boundary="unknown", seed=0)
    assert deblur.solve(g, h).boundary == "unknown"
    g = deblur.degrade(scene, h, noise=0.002, boundary="zero", seed=0)
    hidden = rng.random(g.shape) < 1e-4
    assert deblur.solve(np.where(hidden, 1e6, g), h, 1e-3, mask=hidden).boundary == "zero"
    assert deblur.solve(g[:4], h).boundary == "unknown"  # of fewer slices than the PSF


@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect"])
@pytest.mark.parametrize("seed", range(4))
def test_with_a_number_for_lambda_the_call_is_the_formula_of_the_boundary_that_was_read(boundary, seed):
    rng = np.random.default_rng(seed)
    shape, at = tuple(int(n) for n in rng.integers(30, 44, 2)), rng.integers(0, 400, 2)
    normal = seed % 2 and boundary != "reflect"  # H is normal: both formulas give one image
    h = rng.random(rng.choice([3, 5], 2) if normal else rng.integers(2, 7, 2))
    h = h + h[::-1, ::-1] if normal else h
    blur, lam = deblur.Blur(h / h.sum(), shape, boundary), 10.0 ** rng.uniform(-4, -1)
    g = blur.forward(photograph(size=44, at=at)[: shape[0], : shape[1]])
    # Else "reflect" is taken for "unknown", as is safe.
    options = {"formula": "hht"} if boundary == "reflect" else {}
    result = deblur.solve(g, blur.psf, lam, **options)
    expected = dense_answer(blur, lam, "hht" if normal or options else "tikhonov", g[None])[0]
    assert np.linalg.norm(result.image - expected) <= 1e-6 * np.linalg.norm(expected)
    assert f"boundary    {boundary}: " in str(result)
    assert "towards zero: f = " in str(result)
    assert (result.boundary, result.prior) == (boundary, "zero")


def test_what_does_not_serve_every_boundary_gets_one_that_the_picture_agrees_with_or_a_reason():
    h = PSFS["gaussian"]
    periodic, beyond = blurred("periodic"), blurred("unknown", "even")
    assert deblur.solve(periodic, h, 1e-2, method="fft").boundary == "periodic"
    assert deblur.solve(blurred("zero"), h, formula="hht").boundary == "zero"
    assert deblur.solve(blurred("reflect"), h, 1e-2, formula="hht").boundary == "reflect"
    assert deblur.solve(blurred("reflect"), h, 1e-2, method="dct").boundary == "reflect"
    assert deblur.solve(blurred("reflect"), h, 1e-2, method="kronecker").boundary == "unknown"
    words = "method='fft'.* cannot be used with the boundary .*boundary='periodic'"
    refused(MethodError, words, deblur.solve, beyond, PSFS["even"], 1e-2, method="fft")
    refused(MethodError, "formula='hht'", deblur.solve, blurred("unknown", "line", 0.0), PSFS["line"], formula="hht")
    refused(MethodError, "separable", deblur.solve, periodic, PSFS["shake"], 1e-2, method="kronecker")
    refused(MethodError, "does not iterate", deblur.solve, periodic, h, 1e-2, method="fft", rtol=1e-3)


def test_a_deblurrer_decides_with_its_first_image_or_the_one_it_is_tuned_with():
    h, g = PSFS["gaussian"], blurred("zero")
    restore = deblur.Deblurrer(h, g.shape, 1e-2)
    assert (restore.boundary, restore.blur, restore.choice) == ("auto", None, None)
    other = pickle.loads(pickle.dumps(restore))
    restore(g)
    assert restore.boundary == "zero"
    assert restore.blur.boundary == "zero"
    assert restore.choice is not None
    assert restore.solve(blurred("unknown", size=104)).boundary == "zero"
    assert pickle.loads(pickle.dumps(restore)).boundary == "zero"
    other.tune(blurred("periodic"))
    assert other.boundary == "periodic"
    refused(ValueError, "96 x 96 pixels.*96 x 95", deblur.Deblurrer(h, (96, 95), 1e-2), g)
    shared = deblur.Deblurrer(h, g.shape, 1e-2)
    with ThreadPoolExecutor(4) as pool:
        images = list(pool.map(shared, [g] * 4))
    assert all(np.array_equal(image, images[0]) for image in images)


def test_colour_needs_no_name_and_opacity_is_kept():
    h, rng = PSFS["gaussian"], np.random.default_rng(2)
    colour = np.stack([blurred("unknown", seed=i) for i in range(3)], axis=-1)
    image = deblur.solve(colour, h, 1e-2).image
    assert np.array_equal(image, deblur.solve(colour, h, 1e-2, channel_axis=-1).image)
    opacity = rng.random(colour.shape[:2])
    result = deblur.solve(np.dstack([colour, opacity]), h, 1e-2)
    assert np.array_equal(result.image, np.dstack([image, opacity]))
    assert np.array_equal(result.residual_image[..., 3], np.zeros(opacity.shape))
    hidden = rng.random(opacity.shape) < 0.05
    masked = deblur.solve(np.dstack([colour, opacity]), h, 1e-2, mask=hidden)
    assert masked.mask.shape == masked.image.shape
    assert not masked.mask[..., 3].any()
    few = np.dstack([hidden] * 4)
    assert np.array_equal(deblur.solve(np.dstack([colour, opacity]), h, 1e-2, mask=few).image, masked.image)
    four = deblur.solve(np.dstack([colour, opacity]), h, 1e-2, channel_axis=-1).image
    assert not np.array_equal(four[..., 3], opacity)
    integers = np.rint(255 * np.clip(np.dstack([colour, opacity]), 0, 1)).astype(np.uint8)
    assert np.allclose(deblur.reconstruct(integers, h, 1e-2)[..., 3], integers[..., 3] / 255)
    sharp = np.stack([photograph()] * 3, axis=-1)
    assert np.array_equal(
        deblur.degrade(sharp, h, noise=0.01, seed=1), deblur.degrade(sharp, h, noise=0.01, seed=1, channel_axis=-1)
    )


def test_a_picture_is_read_where_it_lies(xp):
    for boundary in ("zero", "periodic", "unknown"):
        result = deblur.solve(xp.asarray(blurred(boundary)), PSFS["gaussian"], 1e-2)
        assert (result.boundary, type(result.image)) == (boundary, xp.ndarray)
