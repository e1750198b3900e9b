"""PSF builders against integrals and independent definitions."""

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.ndimage
import scipy.signal
import scipy.stats
from hypothesis import given, strategies as st
from refusals import refused

from deblur import psf

SIZES = [1, 2, 3, 4, 7, 8, 13, (5, 9), (6, 3), (1, 8), (17, 19)]

SIZED = {
    "delta": psf.delta,
    "box": psf.box,
    "gaussian": lambda size: psf.gaussian(size, 1.3),
    "disk": psf.disk,
    "moffat": lambda size: psf.moffat(size, 3.1, 2.5),
    "airy": lambda size: psf.airy(size, 2.7),
    "shake": lambda size: psf.camera_shake(size, 3),
}


def centre(h):
    return (h.shape[0] - 1) // 2, (h.shape[1] - 1) // 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SIZED)
def test_is_a_psf(name, size):
    h = SIZED[name](size)
    assert (h.shape, h.dtype) == (size if isinstance(size, tuple) else (size, size), np.float64)
    assert h.min() >= 0
    assert abs(h.sum() - 1) <= 1e-14


@pytest.mark.parametrize("size", [s for s in SIZES if s != 1])
@pytest.mark.parametrize("name", ["delta", "gaussian", "moffat", "airy"])
def test_peak_is_where_scipy_same_has_the_centre(name, size):
    seen = scipy.signal.convolve2d(scipy.signal.unit_impulse((31, 33), (14, 16)), SIZED[name](size), "same")
    assert np.unravel_index(seen.argmax(), seen.shape) == (14, 16)


@pytest.mark.parametrize("name", ["delta", "gaussian", "moffat", "airy"])
def test_even_size_is_the_odd_one_less_a_row_and_column(name):
    odd = SIZED[name](9)
    np.testing.assert_allclose(SIZED[name](8), odd[1:, 1:] / odd[1:, 1:].sum(), rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", ["delta", "box", "gaussian", "disk", "moffat", "airy"])
@pytest.mark.parametrize("size", [3, 13, (5, 9)])
def test_odd_sizes_are_symmetric_to_rounding(name, size):
    h = SIZED[name](size)
    for other in (h[::-1], h[:, ::-1]):
        assert np.abs(h - other).max() <= 4 * np.finfo(float).eps * h.max()


@pytest.mark.parametrize("size", [0, -3, 2.5, (3, 0), (3, 3, 3, 3), (), True, math.nan, "a"])
@pytest.mark.parametrize("name", SIZED)
def test_invalid_sizes_are_refused(name, size):
    refused(ValueError, "size must be", SIZED[name], size)


WIDE = [psf.gaussian, psf.disk, psf.moffat, psf.airy]


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("build", [*WIDE, lambda n, v: psf.gaussian(n, (1.0, v)), lambda n, v: psf.motion(v)])
def test_invalid_widths_are_refused(build, bad):
    refused(ValueError, "must be a positive finite number", build, 5, bad)


@pytest.mark.parametrize("build", WIDE)
@given(width=st.floats(1e-300, 1e300), size=st.integers(1, 6))
def test_extreme_widths_give_a_psf_or_an_error(build, width, size):
    try:
        h = build(size, width)
    except ValueError:
        assert not 1e-100 <= width <= 1e100
    else:
        assert h.min() >= 0
        assert abs(h.sum() - 1) <= 1e-13


def test_box_and_delta():
    np.testing.assert_array_equal(psf.box((2, 5)), np.full((2, 5), 0.1))
    np.testing.assert_array_equal(psf.delta((4, 5)), [[0] * 5, [0, 0, 1, 0, 0], [0] * 5, [0] * 5])


def test_gaussian_is_the_density_at_the_pixel_centres():
    h = psf.gaussian((9, 7), (1.7, 0.8))
    y, x = np.arange(9) - 4, np.arange(7) - 3
    density = scipy.stats.norm.pdf(y, scale=1.7)[:, None] * scipy.stats.norm.pdf(x, scale=0.8)
    np.testing.assert_allclose(h, density / density.sum(), rtol=1e-13)


def test_gaussian_is_integrated_over_the_voxels():
    along = [
        np.diff(scipy.stats.norm.cdf(np.arange(n + 1) - (n - 1) // 2 - 0.5, scale=s))
        for n, s in ((7, 2.1), (5, 0.3), (6, 0.9))
    ]
    expected = np.einsum("a,b,c", *along)
    h = psf.gaussian((7, 5, 6), (2.1, 0.3, 0.9), integrated=True)
    np.testing.assert_allclose(h, expected / expected.sum(), rtol=1e-9)
    np.testing.assert_array_equal(psf.gaussian((7, 5, 5), (2, 1)), psf.gaussian((7, 5, 5), (2, 1, 1)))
    refused(ValueError, "one for each of 2 axes", psf.gaussian, 5, (1.0, 2.0, 3.0))


def overlap(i, j, r):
    """Area of the disc of radius r about the origin within pixel (i, j), by quadrature over columns."""

    def height(u):
        h = math.sqrt(max(r * r - u * u, 0.0))
        return max(min(i + 0.5, h) - max(i - 0.5, -h), 0.0)

    corners = [r, -r]
    corners += [s * math.sqrt(r * r - v * v) for v in (i - 0.5, i + 0.5) if abs(v) < r for s in (-1, 1)]
    points = sorted({p for p in corners if j - 0.5 < p < j + 0.5} | {j - 0.5, j + 0.5})
    return sum(scipy.integrate.quad(height, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(points))


@pytest.mark.parametrize(
    ("size", "radius"), [(7, None), (5, 2.0), (9, 3.3), (5, 0.4), (6, None), ((4, 7), 2.9), (5, 2.9), (3, 100.0)]
)
def test_disk_is_the_area_of_the_disc_in_each_pixel(size, radius):
    h = psf.disk(size, radius)
    r = radius if radius is not None else (min(h.shape) - 1) // 2 + 0.5
    rows, cols = centre(h)
    area = np.array([[overlap(i - rows, j - cols, r) for j in range(h.shape[1])] for i in range(h.shape[0])])
    np.testing.assert_allclose(h, area / area.sum(), rtol=1e-9, atol=1e-12)
    assert not h[area == 0].any()


@pytest.mark.parametrize("length", [1, 3, 9, 15])
def test_level_motion_of_odd_length_is_a_row_of_equal_pixels(length):
    np.testing.assert_allclose(psf.motion(length, 0), np.full((1, length), 1 / length), rtol=1e-14)
    np.testing.assert_allclose(psf.motion(length, 90), np.full((length, 1), 1 / length), rtol=1e-14)


def test_motion_ends_in_half_pixels_and_fills_the_diagonal_alone():
    np.testing.assert_allclose(psf.motion(4), [[0.125, 0.25, 0.25, 0.25, 0.125]], rtol=1e-14)
    h = psf.motion(5 * math.sqrt(2), 45)
    np.testing.assert_allclose(h, np.eye(5)[::-1] / 5, atol=1e-15)
    assert np.count_nonzero(h) == 5


@pytest.mark.parametrize(("length", "angle"), [(15, 30), (7.3, -62), (20, 101.5), (2, 10), (33, 269), (1, 77)])
def test_motion_is_the_time_spent_in_each_pixel(length, angle):
    h = psf.motion(length, angle)
    n = 400_000
    t = ((np.arange(n) + 0.5) / n - 0.5) * length
    turn = np.deg2rad(angle)
    edges = [np.arange(k + 1) - k / 2 for k in h.shape]
    seen, _, _ = np.histogram2d(-np.sin(turn) * t, np.cos(turn) * t, bins=edges)
    assert seen.sum() == n  # the array holds the whole path
    assert np.abs(h - seen / n).max() <= 4 / n
    for line in (h[0], h[-1], h[:, 0], h[:, -1]):  # and is no larger than it must be
        assert line.sum() > 0


@given(length=st.floats(1, 40), angle=st.floats(-720, 720))
def test_motion_is_symmetric_at_any_length_and_angle(length, angle):
    h = psf.motion(length, angle)
    assert (h.shape[0] % 2, h.shape[1] % 2) == (1, 1)
    assert max(h.shape) <= length + 2
    assert h.min() >= 0
    assert abs(h.sum() - 1) <= 1e-13
    np.testing.assert_array_equal(h, h[::-1, ::-1])
    assert np.abs(h - psf.motion(length, angle + 180)).max() <= 1e-9


@pytest.mark.parametrize("beta", [1.2, 2.5, 4.765])
def test_moffat_has_half_its_height_at_half_the_fwhm(beta):
    h = psf.moffat(21, 8.0, beta)
    assert abs(h[10, 14] / h[10, 10] - 0.5) <= 1e-13
    ratio = (h[10, 10] / h[10, 19]) ** (1 / beta) - 1, (h[10, 10] / h[10, 13]) ** (1 / beta) - 1
    assert abs(ratio[0] / ratio[1] - 9) <= 1e-9  # (r/α)² at 9 and at 3 pixels


def test_airy_is_the_diffraction_integral():
    # The amplitude of a round aperture, 2 ∫ J₀(v s) s ds, with J₀ by its own integral.
    h = psf.airy(15, 3.0)

    def amplitude(v):
        inner = lambda turn, s: s * math.cos(v * s * math.cos(turn))  # noqa: E731
        return scipy.integrate.dblquad(inner, 0, 1, 0, math.pi, epsabs=1e-12)[0] * 2 / math.pi

    first_dark_ring = 3.8317059702075125
    for j in range(8):
        expected = amplitude(first_dark_ring * j / 3.0) ** 2
        assert abs(h[7, 7 + j] / h[7, 7] - expected) <= 1e-10


@pytest.mark.parametrize("size", [3, 9, 17, 32, (9, 21), (1, 11)])
@pytest.mark.parametrize("seed", range(8))
def test_camera_shake_is_one_centred_trace_that_fills_its_size(size, seed):
    h = psf.camera_shake(size, seed)
    assert np.abs(np.subtract(scipy.ndimage.center_of_mass(h), centre(h))).max() <= 1e-9
    _, count = scipy.ndimage.label(h > 0, structure=np.ones((3, 3)))
    assert count == 1
    edges = [h[0].sum(), h[-1].sum()] * (h.shape[0] > 1) + [h[:, 0].sum(), h[:, -1].sum()] * (h.shape[1] > 1)
    assert max(edges) > 0
    if min(h.shape) > 16:
        assert np.abs(h - h[::-1, ::-1]).max() > 0.1 * h.max()
        assert np.count_nonzero(h) < 0.5 * h.size


def test_camera_shake_depends_on_the_seed_alone():
    np.testing.assert_array_equal(psf.camera_shake(17, 5), psf.camera_shake(17, 5))
    np.testing.assert_array_equal(psf.camera_shake(17, 5), psf.camera_shake(17, np.random.default_rng(5)))
    assert np.abs(psf.camera_shake(17, 5) - psf.camera_shake(17, 6)).max() > 0.01
