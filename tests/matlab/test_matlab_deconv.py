"""MATLAB's deconvolution functions against Octave, dense circulant matrices and loops written out."""

from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import deblur
from deblur import Blur, matlab
from deblur.device import asnumpy
from deblur.matlab import deconvblind, deconvlucy, deconvreg, deconvwnr

OCTAVE = np.load(Path(__file__).parents[1] / "data" / "octave_deconv.npz")


def circulant(psf, shape):
    """The dense matrix of the circular convolution with MATLAB's centre."""
    psf = np.atleast_2d(psf)
    return Blur(psf, shape, "periodic", origin=tuple(m // 2 for m in psf.shape)).to_dense()


def covariance(acf, shape):
    """The dense covariance matrix of a periodic process with this autocorrelation, its zero lag in the middle."""
    shifts = np.array(list(np.ndindex(*shape))) - np.array(acf.shape) // 2
    return np.stack([np.roll(acf, by, (0, 1)).ravel() for by in shifts])


@pytest.fixture
def case(rng):
    """An image, an even and asymmetric PSF, and the image blurred circularly."""
    img = rng.random((9, 10)) + 0.1
    psf = rng.random((4, 3)) + 0.05
    psf /= psf.sum()
    return img, psf, (circulant(psf, img.shape) @ img.ravel()).reshape(img.shape)


@pytest.fixture
def psf(case):
    return case[1]


@pytest.fixture
def blurred(case):
    return case[2]


# ---------------------------------------------------------------------------------------------
# deconvwnr
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 7))
def test_deconvwnr_is_octaves(n, xp):
    img, psf, nsr, expected = (OCTAVE[f"wiener_{n}_{what}"] for what in ("img", "psf", "nsr", "out"))
    ours = deconvwnr(xp.asarray(img), psf, nsr if nsr.size > 1 else float(nsr.item()))
    assert isinstance(ours, xp.ndarray)
    np.testing.assert_allclose(asnumpy(ours), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["uint8", "uint16", "int16", "single"])
def test_deconvwnr_of_every_class(name):
    ours = deconvwnr(OCTAVE[f"wiener_{name}_img"], OCTAVE["wiener_4_psf"], 0.05)
    expected = OCTAVE[f"wiener_{name}_out"]
    assert ours.dtype == expected.dtype
    if name == "single":
        np.testing.assert_allclose(ours, expected, atol=1e-6)
    else:
        np.testing.assert_array_equal(ours, expected)


def test_deconvwnr_without_noise_is_the_inverse(case):
    img, psf, blurred = case
    np.testing.assert_allclose(deconvwnr(blurred, psf), img, atol=1e-10)
    np.testing.assert_array_equal(deconvwnr(blurred, psf), deconvwnr(blurred, psf, 0))


def test_deconvwnr_where_the_psf_has_zeros():
    # A PSF that sums to zero: the mean of the image is lost, and division by zero must not show.
    out = deconvwnr(np.arange(12.0).reshape(3, 4), [[1.0, -1.0]])
    assert np.isfinite(out).all()
    assert abs(out.mean()) <= 1e-12


def test_deconvwnr_is_tikhonovs(psf, blurred):
    h = circulant(psf, blurred.shape)
    expected = np.linalg.solve(h.T @ h + 0.03 * np.eye(90), h.T @ blurred.ravel())
    np.testing.assert_allclose(deconvwnr(blurred, psf, 0.03).ravel(), expected, atol=1e-12)


def test_deconvwnr_with_autocorrelations_is_the_linear_minimum_mean_square_estimate(case, rng):
    img, psf, blurred = case
    g = blurred + 0.1 * rng.standard_normal(img.shape)

    def acf(x):
        return np.fft.fftshift(np.fft.ifft2(np.abs(np.fft.fft2(x)) ** 2).real)

    ncorr, icorr = acf(g - blurred), acf(img)
    h, s, n = circulant(psf, img.shape), covariance(icorr, img.shape), covariance(ncorr, img.shape)
    expected = s @ h.T @ np.linalg.solve(h @ s @ h.T + n, g.ravel())
    np.testing.assert_allclose(deconvwnr(g, psf, ncorr, icorr).ravel(), expected, atol=1e-10)


def test_deconvwnr_with_a_cut_autocorrelation(psf, blurred):
    small = np.array([[0.1, 0.2, 0.1], [0.3, 2.0, 0.3], [0.1, 0.2, 0.1]])
    large = np.zeros(blurred.shape)
    large[9 // 2 - 1 : 9 // 2 + 2, 10 // 2 - 1 : 10 // 2 + 2] = small
    h, s = circulant(psf, blurred.shape), covariance(large, blurred.shape)
    expected = s @ h.T @ np.linalg.solve(h @ s @ h.T + 0.02 * np.eye(90), blurred.ravel())
    np.testing.assert_allclose(deconvwnr(blurred, psf, 0.02, small).ravel(), expected, atol=1e-10)


def test_deconvwnr_with_powers_alone_is_the_ratio(psf, blurred):
    np.testing.assert_allclose(deconvwnr(blurred, psf, 0.3, 6), deconvwnr(blurred, psf, 0.05), atol=1e-13)


def test_deconvwnr_turns_a_vector_to_every_direction(psf, blurred):
    half = np.array([4.0, 2.0, 1.0, 0.25])
    vector = np.concatenate([half[:0:-1], half])  # seven values about the middle
    i, j = np.indices(blurred.shape)
    expected = deconvwnr(blurred, psf, 0.1, np.interp(np.hypot(i - 4, j - 5), range(4), half, right=0))
    np.testing.assert_allclose(deconvwnr(blurred, psf, 0.1, vector), expected, atol=1e-12)
    np.testing.assert_allclose(deconvwnr(blurred, psf, 0.1, vector[:, None]), expected, atol=1e-12)


def test_colours_are_deblurred_by_themselves(rng):
    img = rng.random((8, 7, 3))
    psf = matlab.fspecial("gaussian", 3, 0.8)
    for one in (
        lambda x: deconvwnr(x, psf, 0.01),
        lambda x: deconvreg(x, psf, 0, 0.01)[0],
        lambda x: deconvlucy(x, psf, 2),
        lambda x: deconvlucy(x, psf, 2, None, None, None, 2),
    ):
        together = one(img)
        for c in range(3):
            np.testing.assert_allclose(together[..., c], one(img[..., c]), atol=1e-7)


# ---------------------------------------------------------------------------------------------
# deconvreg
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regop", [None, np.array([[1.0, -1.0]]), np.array([[0.0, 1], [2, -3], [1, 0]])])
def test_deconvreg_is_the_dense_solution(case, rng, regop, xp):
    img, psf, blurred = case
    g = blurred + 0.05 * rng.standard_normal(img.shape)
    h = circulant(psf, img.shape)
    r = circulant(np.array([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]) if regop is None else regop, img.shape)
    ours, lam = deconvreg(xp.asarray(g), psf, 90 * 0.05**2, (1e-6, 1e3), regop)
    expected = np.linalg.solve(h.T @ h + lam * r.T @ r, h.T @ g.ravel())
    np.testing.assert_allclose(asnumpy(ours).ravel(), expected, atol=1e-9)
    assert abs(((h @ expected - g.ravel()) ** 2).sum() - 90 * 0.05**2) <= 1e-8
    # The same λ, given.
    again, same = deconvreg(xp.asarray(g), psf, 0, lam, regop)
    assert same == lam
    np.testing.assert_array_equal(asnumpy(again), asnumpy(ours))


def test_deconvreg_at_the_ends_of_its_range(psf, blurred):
    assert deconvreg(blurred, psf)[1] == 1e-9
    assert deconvreg(blurred, psf, 1e6)[1] == 1e9
    assert deconvreg(blurred, psf, 0, (0.5, 2))[1] == 0.5


def test_deconvreg_of_one_dimension(rng):
    # A PSF with one dimension brings a Laplacian with one.
    g = rng.random((6, 12))
    psf = np.array([[0.2, 0.5, 0.3]])
    ours, _ = deconvreg(g, psf, 0, 0.1)
    h, r = circulant(psf, g.shape), circulant([[1.0, -2, 1]], g.shape)
    expected = np.linalg.solve(h.T @ h + 0.1 * r.T @ r, h.T @ g.ravel())
    np.testing.assert_allclose(ours.ravel(), expected, atol=1e-12)


# ---------------------------------------------------------------------------------------------
# deconvlucy
# ---------------------------------------------------------------------------------------------


def ahead(history, steps):
    """The point that Biggs and Andrews extrapolate to."""
    a = 0.0
    if len(steps) >= 2:
        a = min(max(steps[-1] @ steps[-2] / (steps[-2] @ steps[-2]), 0), 1)
    return np.maximum(history[-1] + a * (history[-1] - history[-2]), 0)


def damped(data, model, dampar):
    """The ratio of data and model, drawn towards 1 where they agree within dampar."""
    u = np.minimum(2 / dampar**2 * (data * np.log(data / model) + model - data), 1) if dampar > 0 else 1
    return 1 + u**9 * (10 - 9 * u) * (data / model - 1)


def by_hand(img, psf, iterations, dampar=0.0, weight=1.0, readout=0.0, subsmpl=1):
    """The published algorithm with dense matrices: binning B, blur H, on vectors."""
    (m, n), fine = img.shape, subsmpl
    w = np.broadcast_to(weight, img.shape).ravel()
    b = np.kron(np.kron(np.eye(m), np.ones(fine)), np.kron(np.eye(n), np.ones(fine)))
    h = b @ circulant(psf, (fine * m, fine * n))
    images, steps = [b.T @ img.ravel()] * 2, []
    for _ in range(iterations):
        y = ahead(images, steps)
        ratio = damped(w * (img.ravel() + readout), h @ y / fine**2 + readout, dampar)
        images.append(y * (h.T @ ratio) / (h.T @ w))
        steps.append(images[-1] - y)
    return images[-1].reshape(fine * m, fine * n)


@pytest.mark.parametrize("numit", [1, 2, 3, 12])
def test_deconvlucy_is_the_published_iteration(psf, blurred, numit, xp):
    ours = deconvlucy(xp.asarray(blurred), psf, numit)
    assert isinstance(ours, xp.ndarray)
    np.testing.assert_allclose(asnumpy(ours), by_hand(blurred, psf, numit), rtol=3e-6)


def test_deconvlucy_takes_ten_iterations(psf, blurred):
    np.testing.assert_array_equal(deconvlucy(blurred, psf), deconvlucy(blurred, psf, 10, None, None, None, None))


WEIGHT = 0.1 + 0.9 * np.random.default_rng(5).random((9, 10))
OPTIONS = [{"dampar": 0.1}, {"readout": 0.3}, {"weight": WEIGHT}, {"weight": WEIGHT, "readout": 0.2}]


@pytest.mark.parametrize("options", [*OPTIONS, {"subsmpl": 2}, {**OPTIONS[-1], "subsmpl": 3}], ids="-".join)
def test_deconvlucy_with_options(psf, blurred, rng, options):
    g = blurred + 0.05 * rng.random(blurred.shape)
    np.testing.assert_allclose(deconvlucy(g, psf, 6, **options), by_hand(g, psf, 6, **options), rtol=1e-5)


def test_deconvlucy_does_not_look_at_bad_pixels(psf, blurred):
    weight = np.ones(blurred.shape)
    weight[3, 4] = weight[7, 0] = 0
    spoilt = np.where(weight > 0, blurred, 5.0)
    # The first scene is the image, bad pixels and all; iterations forget them.
    a, b = (deconvlucy(x, psf, 200, None, weight) for x in (blurred, spoilt))
    h = circulant(psf, blurred.shape)
    for f in (a, b):
        assert np.abs(((h @ f.ravel()).reshape(f.shape) - blurred) * weight).max() <= 0.02
    assert np.abs((h @ deconvlucy(spoilt, psf, 200).ravel()).reshape(a.shape) - blurred).max() >= 1


def test_deconvlucy_keeps_the_light(psf, blurred):
    assert abs(deconvlucy(blurred, psf, 1).sum() / blurred.sum() - 1) <= 1e-6


def test_deconvlucy_goes_on_where_it_ended(psf, blurred):
    whole = deconvlucy([blurred], psf, 9)
    assert len(whole) == 4
    np.testing.assert_equal(whole, deconvlucy(deconvlucy([blurred], psf, 4), psf, 5))
    np.testing.assert_array_equal(whole[0], blurred)
    np.testing.assert_array_equal(whole[1], deconvlucy(blurred, psf, 9))
    np.testing.assert_array_equal(whole[2], deconvlucy(blurred, psf, 8))


def test_deconvlucy_of_float32(psf, blurred):
    np.testing.assert_allclose(deconvlucy(blurred.astype(np.float32), psf), deconvlucy(blurred, psf), rtol=1e-4)


def test_deconvlucy_sharpens_a_photograph():
    scene = deblur.data.load("camera")[100:180, 100:180]
    psf = matlab.fspecial("gaussian", 7, 1.5)
    g = matlab.imfilter(scene, psf, "circular")
    assert deblur.metrics.psnr(scene, deconvlucy(g, psf, 30)) >= deblur.metrics.psnr(scene, g) + 4


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_cell_array_comes_back_as_it_was_given(psf, blurred, kind):
    once = deconvlucy(kind([blurred]), psf, 2)
    assert type(once) is type(deconvlucy(once, psf, 2)) is kind
    assert all(type(c) is kind for c in deconvblind(kind([blurred]), kind([psf]), 2))


# ---------------------------------------------------------------------------------------------
# Lucy and Richardson with an unknown PSF
# ---------------------------------------------------------------------------------------------


def shifted(f, size):
    """The dense matrix that takes a PSF of this size to the image f blurred by it."""
    at = [(i - size[0] // 2, j - size[1] // 2) for i in range(size[0]) for j in range(size[1])]
    return np.stack([np.roll(f, by, (0, 1)).ravel() for by in at], axis=1)


def blind_by_hand(img, psf, iterations, dampar=0.0, weight=1.0, readout=0.0):
    """Both multiplicative steps with dense matrices, on vectors."""
    w = np.broadcast_to(weight, img.shape).ravel()
    images, psfs = [img.ravel()] * 2, [psf.ravel() / psf.sum()] * 2
    image_steps, psf_steps = [], []
    for _ in range(iterations):
        y, b = ahead(images, image_steps), ahead(psfs, psf_steps)
        b = b / b.sum()
        h, f = circulant(b.reshape(psf.shape), img.shape), shifted(y.reshape(img.shape), psf.shape)
        np.testing.assert_allclose(h @ y, f @ b, rtol=1e-12)  # one model, seen from either side
        ratio = damped(w * (img.ravel() + readout), h @ y + readout, dampar)
        images.append(y * (h.T @ ratio) / (h.T @ w))
        new = b * (f.T @ ratio) / (f.T @ w)
        psfs.append(new / new.sum())
        image_steps.append(images[-1] - y)
        psf_steps.append(psfs[-1] - b)
    return images[-1].reshape(img.shape), psfs[-1].reshape(psf.shape)


@pytest.mark.parametrize("numit", [1, 2, 3, 12])
@pytest.mark.parametrize("size", [(3, 3), (4, 3), (1, 4)])
def test_deconvblind_is_both_steps_written_out(blurred, numit, size, xp):
    ours = deconvblind(xp.asarray(blurred), 3 * np.ones(size), numit)
    for a, b in zip(ours, blind_by_hand(blurred, np.ones(size), numit), strict=True):
        assert isinstance(a, xp.ndarray)
        np.testing.assert_allclose(asnumpy(a), b, rtol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_deconvblind_with_options(psf, blurred, rng, options):
    g = blurred + 0.05 * rng.random(blurred.shape)
    for a, b in zip(deconvblind(g, psf, 6, **options), blind_by_hand(g, psf, 6, **options), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_deconvblind_keeps_the_sum_where_the_extrapolation_is_cut_off_at_zero():
    g = np.full((7, 8), 0.01)
    g[3, 2:6] = 0.25, 0.5, 0.25, 0.9
    start = np.ones((3, 5))
    _, kernel = deconvblind((g,), (start,), 3)
    assert (kernel[1] + 0.5 * (kernel[1] - kernel[2])).min() < 0
    for ours, hand in zip(deconvblind(g, start, 6), blind_by_hand(g, start, 6), strict=True):
        np.testing.assert_allclose(ours, hand, rtol=1e-5, atol=1e-12)


def test_deconvblind_takes_ten_iterations_and_keeps_what_it_must(rng):
    g = rng.random((12, 11)) - 0.1  # the noise of a dark image goes below zero
    psf = rng.random((3, 5))
    image, kernel = deconvblind(g, psf)
    assert image.min() >= 0
    assert kernel.min() >= 0
    assert kernel.shape == psf.shape
    assert abs(kernel.sum() - 1) <= 1e-14
    for a, b in zip((image, kernel), deconvblind(g, 5 * psf, 10, None, None, None, None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_deconvblind_goes_on_where_it_ended(psf, blurred):
    start = np.ones(psf.shape)
    whole = deconvblind((blurred,), (start,), 9)
    np.testing.assert_equal(whole, deconvblind(*deconvblind((blurred,), (start,), 4), 5))
    for ours, first in zip(whole, (blurred, start), strict=True):
        assert len(ours) == 4
        np.testing.assert_array_equal(ours[0], first)
    for n, at in ((9, 1), (8, 2)):
        for cell, plain in zip(whole, deconvblind(blurred, start, n), strict=True):
            np.testing.assert_array_equal(cell[at], plain)


def test_a_pixel_of_weight_zero_has_no_say_in_an_iteration(psf, blurred):
    weight = np.ones(blurred.shape)
    weight[3, 4] = weight[7, 0] = 0
    spoilt = np.where(weight > 0, blurred, 5.0)
    # The first scene is the image with its bad pixels; from the same scene, all that follows is the same.
    for options in ({}, {"dampar": 0.05}, {"readout": 0.1}):
        image, kernel = deconvblind((blurred,), (psf,), 2, weight=weight, **options)
        ours = deconvblind((spoilt, *image[1:]), kernel, 6, weight=weight, **options)
        theirs = deconvblind(image, kernel, 6, weight=weight, **options)
        np.testing.assert_equal(ours[0][1:] + ours[1][1:], theirs[0][1:] + theirs[1][1:])
        assert not np.array_equal(ours[0][1], deconvblind((spoilt, *image[1:]), kernel, 6, **options)[0][1])


def test_deconvblind_leaves_what_damping_covers(psf, blurred):
    image, kernel = deconvblind(blurred, psf, 5, 10.0)
    np.testing.assert_allclose(image, blurred, atol=1e-6)
    np.testing.assert_allclose(kernel, psf, atol=1e-6)


@pytest.mark.parametrize(("sigma", "scene"), [(1.0, "camera"), (1.5, "camera"), (2.0, "camera"), (1.0, "stars")])
def test_deconvblind_comes_nearer_to_the_psf(rng, sigma, scene):
    if scene == "camera":
        sharp = deblur.data.load("camera")[100:180, 100:180]
    else:
        sharp = np.where(rng.random((64, 64)) < 0.01, rng.random((64, 64)), 0.001)
    psf = matlab.fspecial("gaussian", 7, sigma)
    state = (matlab.imfilter(sharp, psf, "circular"),), (np.ones((7, 7)),)
    errors = [np.linalg.norm(1 / 49 - psf)]
    for _ in range(4):
        state = deconvblind(*state, 8)
        errors.append(np.linalg.norm(state[1][1] - psf))
    assert (np.diff(errors) < 0).all()
    assert errors[-1] <= (0.3 if scene == "stars" else 0.9) * errors[0]


def test_deconvblind_has_one_psf_for_all_channels(psf, blurred):
    image, kernel = deconvblind(np.stack([blurred] * 3, axis=-1), psf, 6)
    one, same = deconvblind(blurred, psf, 6)
    assert kernel.shape == psf.shape
    np.testing.assert_allclose(kernel, same, rtol=1e-6)
    np.testing.assert_allclose(image, np.stack([one] * 3, axis=-1), rtol=1e-6)
    cells = deconvblind(*deconvblind((np.stack([blurred] * 3, axis=-1),), (psf,), 3), 3)
    np.testing.assert_array_equal(cells[1][1], kernel)
    row, kernel = deconvblind(blurred[0], [1, 1, 1], 3)
    assert (row.shape, kernel.shape) == ((1, 10), (1, 3))


def test_deconvblind_asks_fun_after_each_iteration(psf, blurred):
    seen = []

    def symmetric(psf):
        seen.append(psf.copy())
        return psf + psf[::-1, ::-1]  # of sum two

    _, kernel = deconvblind(blurred, psf[:3], 4, fun=symmetric)
    assert len(seen) == 4
    np.testing.assert_allclose(kernel, (seen[-1] + seen[-1][::-1, ::-1]) / 2, rtol=1e-14)
    np.testing.assert_array_equal(seen[0], deconvblind(blurred, psf[:3], 1)[1])


def test_deconvblind_of_a_black_image():
    image, kernel = deconvblind(np.zeros((6, 6)), np.ones((3, 3)))
    assert not image.any()
    np.testing.assert_allclose(kernel, np.full((3, 3), 1 / 9), rtol=1e-14)


@pytest.mark.parametrize(
    "call",
    [
        lambda g, grey: deconvreg(g, PSF, 0.1),
        lambda g, grey: (deconvlucy(g, PSF, 5, grey(4), None, grey(10)),),
        lambda g, grey: deconvblind(g, PSF, 5, grey(4), None, grey(10)),
    ],
)
def test_numbers_of_an_image_of_bytes_are_grey_levels(rng, call):
    g = rng.integers(20, 200, (10, 9), dtype=np.uint8)
    (ours, *rest), (double, *same) = call(g, np.uint8), call(g / 255, lambda number: number / 255)
    assert [np.result_type(one) for one in (ours, double, *rest)] == [np.uint8] + [np.float64] * (1 + len(rest))
    np.testing.assert_array_equal(ours, np.floor(255 * np.clip(double, 0, 1) + 0.5))
    np.testing.assert_equal(rest, same)
    assert call(g.astype(np.float32), float)[0].dtype == np.float32


# ---------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------

IMG, PSF = np.full((6, 5), 0.5), np.full((3, 3), 1 / 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deconvwnr(IMG, np.ones((7, 2))), "psf .* is larger than the image"),
        (lambda: deconvwnr(IMG, np.zeros((3, 3))), "psf is zero everywhere"),
        (lambda: deconvwnr(IMG, np.ones((3, 3, 2))), r"\(3, 3, 2\) is larger than the image"),
        (lambda: deconvwnr(IMG, PSF, -1), r"nsr must be a number >= 0, .* with -1"),
        (lambda: deconvwnr(IMG, PSF, np.ones((2, 2))), r"nsr must be .* not one of shape \(2, 2\)"),
        (lambda: deconvwnr(IMG, PSF, 1, np.ones((7, 6))), "icorr .* is larger"),
        (lambda: deconvwnr(IMG * np.nan, PSF), "NaN"),
        (lambda: deconvreg(IMG, PSF, -1), "noisepower"),
        (lambda: deconvreg(IMG, PSF, 1, (2, 1)), "lrange must be"),
        (lambda: deconvreg(IMG, PSF, 1, (1, 2, 3)), "lrange must be"),
        (lambda: deconvreg(IMG, PSF, 1, (1e-9, 1), np.ones((7, 2))), "regop .* is larger"),
        (lambda: deconvlucy(IMG, PSF, 0), "numit"),
        (lambda: deconvlucy(IMG, PSF, 2.5), "numit must be a positive whole number"),
        (lambda: deconvlucy(IMG, PSF, 1, -1), "dampar must be"),
        (lambda: deconvlucy(IMG, PSF, 1, 0, np.ones((2, 2))), "weight must be"),
        (lambda: deconvlucy(IMG, PSF, 1, 0, np.zeros((6, 5))), "weight is zero everywhere"),
        (lambda: deconvlucy(IMG, PSF, 1, 0, None, -1), "readout must be"),
        (lambda: deconvlucy(IMG, PSF, 1, 0, None, 0, 1.5), "subsmpl"),
        (lambda: deconvlucy([IMG, IMG], PSF), "four arrays"),
        (lambda: deconvlucy(deconvlucy([IMG], PSF), PSF, subsmpl=2), "other sizes"),
        (lambda: deconvblind(IMG, np.ones((7, 2))), "psfi .* is larger than the image"),
        (lambda: deconvblind(IMG, np.zeros((3, 3))), "psfi is zero everywhere"),
        (lambda: deconvblind(IMG, -PSF), "psfi must not be negative, and has -0.1111: take"),
        (lambda: deconvblind(IMG, PSF, [1, 2]), "numit must be a positive whole number"),
        (lambda: deconvblind((IMG,), PSF), "img is a cell array of 1 and psfi an array: give two arrays"),
        (lambda: deconvblind(deconvblind((IMG,), (PSF,))[0], (PSF,)), "cell array of 4 and psfi a cell array of 1"),
        (lambda: deconvblind((IMG, IMG), (PSF,)), "four arrays of an earlier call, not of 2"),
        (
            lambda: deconvblind((IMG,) * 4, deconvblind((IMG,), (PSF,))[1]),
            "the cell array is from a call with other sizes",
        ),
        (lambda: deconvblind(IMG, PSF, fun=lambda p: p[1:]), r"fun\(psf\) must have psfi's shape \(3, 3\), not"),
        (lambda: deconvblind(IMG, PSF, fun=lambda p: p - 1), r"fun\(psf\) must not be negative"),
        (lambda: deconvblind(IMG, PSF, fun=lambda p: p * np.nan), r"fun\(psf\) holds"),
    ],
)
def test_bad_input(call, message):
    refused(ValueError, message, call)


def test_fun_must_be_a_function():
    refused(TypeError, "fun must be a function that takes .psf., not 7", deconvblind, IMG, PSF, 1, None, None, None, 7)


@pytest.mark.parametrize("function", [deconvwnr, deconvreg, deconvlucy, deconvblind])
def test_classes_are_matlabs(function):
    refused(TypeError, "int32", function, IMG.astype(np.int32), PSF)
