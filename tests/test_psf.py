"""PSF builders against integrals, moments and definitions written down anew; files and short forms."""

import io
import itertools
import math
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.integrate
import scipy.ndimage
import scipy.signal
import scipy.stats
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st

from deblur import image, psf
from deblur.errors import InsufficientMemoryError

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


def moments(h):
    """Mean (2,) about the centre index and covariance (2, 2), in pixels."""
    at = np.stack([i - c for i, c in zip(np.indices(h.shape), centre(h), strict=True)]).reshape(2, -1)
    mean = at @ h.ravel()
    away = at - mean[:, None]
    return mean, (away * h.ravel()) @ away.T


# -- what holds for all of them --------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SIZED)
def test_is_a_psf(name, size):
    h = SIZED[name](size)
    assert h.shape == (size if isinstance(size, tuple) else (size, size))
    assert h.dtype == np.float64
    assert h.min() >= 0
    assert abs(h.sum() - 1) <= 1e-14


@pytest.mark.parametrize("size", [s for s in SIZES if s != 1])
@pytest.mark.parametrize("name", ["delta", "gaussian", "moffat", "airy"])
def test_peak_is_where_scipy_same_has_the_centre(name, size):
    h = SIZED[name](size)
    point = np.zeros((31, 33))
    point[14, 16] = 1
    seen = scipy.signal.convolve2d(point, h, "same")
    assert np.unravel_index(seen.argmax(), seen.shape) == (14, 16)


@pytest.mark.parametrize("name", ["delta", "gaussian", "moffat", "airy"])
def test_even_size_is_the_odd_one_less_a_row_and_column(name):
    odd = SIZED[name](9)
    part = odd[1:, 1:] / odd[1:, 1:].sum()
    np.testing.assert_allclose(SIZED[name](8), part, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", ["delta", "box", "gaussian", "disk", "moffat", "airy"])
@pytest.mark.parametrize("size", [3, 13, (5, 9)])
def test_odd_sizes_are_symmetric_to_the_last_bit_that_counts(name, size):
    h = SIZED[name](size)
    for other in (h[::-1], h[:, ::-1]):
        assert np.abs(h - other).max() <= 4 * np.finfo(float).eps * h.max()


@pytest.mark.parametrize("size", [0, -3, 2.5, (3, 0), (3, 3, 3), (3,), True, math.nan, "a"])
@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_are_none(name, size):
    with pytest.raises(ValueError, match="size must be"):
        SIZED[name](size)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "build",
    [
        lambda v: psf.gaussian(5, v),
        lambda v: psf.gaussian(5, (1.0, v)),
        lambda v: psf.disk(5, v),
        lambda v: psf.motion(v),
        lambda v: psf.moffat(5, v),
        lambda v: psf.airy(5, v),
    ],
)
def test_widths_that_are_none(build, bad):
    with pytest.raises(ValueError, match="must be a positive finite number"):
        build(bad)


@given(width=st.floats(1e-300, 1e300), size=st.integers(1, 6))
def test_extreme_widths_give_a_psf_or_an_error(width, size):
    builders = (
        lambda: psf.gaussian(size, width),
        lambda: psf.disk(size, width),
        lambda: psf.moffat(size, width),
        lambda: psf.airy(size, width),
    )
    for build in builders:
        try:
            h = build()
        except ValueError:
            assert not 1e-100 <= width <= 1e100
        else:
            assert h.min() >= 0
            assert abs(h.sum() - 1) <= 1e-13


# -- each one's own definition ---------------------------------------------------------------


def test_box_and_delta():
    np.testing.assert_array_equal(psf.box((2, 5)), np.full((2, 5), 0.1))
    np.testing.assert_array_equal(psf.delta((4, 5)), [[0] * 5, [0, 0, 1, 0, 0], [0] * 5, [0] * 5])


def test_gaussian_is_the_density_at_the_pixel_centres():
    h = psf.gaussian((9, 7), (1.7, 0.8))
    y, x = np.arange(9) - 4, np.arange(7) - 3
    density = scipy.stats.norm.pdf(y, scale=1.7)[:, None] * scipy.stats.norm.pdf(x, scale=0.8)
    np.testing.assert_allclose(h, density / density.sum(), rtol=1e-13)


@given(vertical=st.floats(0.8, 3), horizontal=st.floats(0.8, 3))
@settings(max_examples=20)
def test_gaussian_has_the_variances_asked_for(vertical, horizontal):
    mean, covariance = moments(psf.gaussian(51, (vertical, horizontal)))
    assert np.abs(mean).max() <= 1e-12
    # Sampling at whole pixels changes the variance by less than 4 π² σ⁴ · 2 exp(-2 π² σ²), 1e-4 at σ = 0.8.
    np.testing.assert_allclose(covariance, np.diag([vertical**2, horizontal**2]), rtol=2e-4, atol=1e-12)


def test_gaussian_is_that_of_scipy_ndimage():
    point = psf.delta(41)
    np.testing.assert_allclose(
        psf.gaussian(41, 2.0), scipy.ndimage.gaussian_filter(point, 2.0, truncate=10), rtol=1e-10, atol=1e-15
    )


def test_gaussian_wants_one_sigma_or_two():
    with pytest.raises(ValueError, match="one number or two"):
        psf.gaussian(5, (1.0, 2.0, 3.0))


def overlap(i, j, r):
    """Area of the disc of radius r about the origin within pixel (i, j), by quadrature over columns."""

    def height(u):
        h = math.sqrt(max(r * r - u * u, 0.0))
        return max(min(i + 0.5, h) - max(i - 0.5, -h), 0.0)

    corners = [r, -r]
    corners += [s * math.sqrt(r * r - v * v) for v in (i - 0.5, i + 0.5) if abs(v) < r for s in (-1, 1)]
    points = sorted({p for p in corners if j - 0.5 < p < j + 0.5} | {j - 0.5, j + 0.5})
    return sum(
        scipy.integrate.quad(height, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(points)
    )


@pytest.mark.parametrize(
    ("size", "radius"),
    [(7, None), (5, 2.0), (9, 3.3), (5, 0.4), (6, None), ((4, 7), 2.9), (5, 2.9), (3, 100.0)],
)
def test_disk_is_the_area_of_the_disc_in_each_pixel(size, radius):
    h = psf.disk(size, radius)
    r = radius if radius is not None else (min(h.shape) - 1) // 2 + 0.5
    rows, cols = centre(h)
    area = np.array([[overlap(i - rows, j - cols, r) for j in range(h.shape[1])] for i in range(h.shape[0])])
    np.testing.assert_allclose(h, area / area.sum(), rtol=1e-9, atol=1e-12)
    assert not h[area == 0].any()


def test_disk_by_default_has_the_size_as_its_diameter():
    h = psf.disk(7)
    assert abs(h[3, 3] - 1 / (math.pi * 3.5**2)) <= 1e-14  # nothing is cut off, and the middle is covered


@pytest.mark.parametrize("length", [1, 3, 9, 15])
def test_level_motion_of_odd_length_is_a_row_of_equal_pixels(length):
    np.testing.assert_allclose(psf.motion(length, 0), np.full((1, length), 1 / length), rtol=1e-14)
    np.testing.assert_allclose(psf.motion(length, 90), np.full((length, 1), 1 / length), rtol=1e-14)


def test_level_motion_of_even_length_ends_in_half_pixels():
    np.testing.assert_allclose(psf.motion(4), [[0.125, 0.25, 0.25, 0.25, 0.125]], rtol=1e-14)


def test_diagonal_motion_takes_the_diagonal_alone():
    h = psf.motion(5 * math.sqrt(2), 45)
    np.testing.assert_allclose(h, np.eye(5)[::-1] / 5, atol=1e-15)
    assert np.count_nonzero(h) == 5


@pytest.mark.parametrize(
    ("length", "angle"), [(15, 30), (7.3, -62), (20, 101.5), (2, 10), (33, 269), (1, 77)]
)
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


@pytest.mark.parametrize("angle", [0, 20, 45, 70, 90, 135, 200, -30])
def test_motion_has_the_length_and_the_angle_asked_for(angle):
    length = 101
    mean, covariance = moments(psf.motion(length, angle))
    assert np.abs(mean).max() <= 1e-12
    values, vectors = np.linalg.eigh(covariance)
    # A uniform line has the variance L²/12; whole pixels move each end by half a pixel at most.
    assert abs(math.sqrt(12 * values[1]) - length) <= 1
    rows, cols = vectors[:, 1]
    difference = (math.degrees(math.atan2(-rows, cols)) - angle + 90) % 180 - 90
    assert abs(difference) <= 0.3


@given(length=st.floats(1, 40), angle=st.floats(-720, 720))
def test_motion_is_a_symmetric_psf_at_any_length_and_angle(length, angle):
    h = psf.motion(length, angle)
    assert h.shape[0] % 2 == 1
    assert h.shape[1] % 2 == 1
    assert max(h.shape) <= length + 2
    assert h.min() >= 0
    assert abs(h.sum() - 1) <= 1e-13
    np.testing.assert_array_equal(h, h[::-1, ::-1])
    assert np.abs(h - psf.motion(length, angle + 180)).max() <= 1e-9


def test_motion_shorter_than_a_pixel_or_at_no_angle():
    with pytest.raises(ValueError, match="at least 1 pixel"):
        psf.motion(0.5)
    with pytest.raises(ValueError, match="angle must be finite"):
        psf.motion(5, math.nan)


@pytest.mark.parametrize("beta", [1.2, 2.5, 4.765])
def test_moffat_has_half_its_height_at_half_the_fwhm(beta):
    h = psf.moffat(21, 8.0, beta)
    assert abs(h[10, 14] / h[10, 10] - 0.5) <= 1e-13
    ratio = (h[10, 10] / h[10, 19]) ** (1 / beta) - 1, (h[10, 10] / h[10, 13]) ** (1 / beta) - 1
    assert abs(ratio[0] / ratio[1] - 9) <= 1e-9  # (r/α)² at 9 and at 3 pixels


@pytest.mark.parametrize("beta", [1, 0.3, math.nan, math.inf])
def test_moffat_refuses_infinite_light(beta):
    with pytest.raises(ValueError, match="beta"):
        psf.moffat(5, 2, beta)


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


def test_airy_is_dark_at_its_radius_and_holds_the_known_energy_inside():
    h = psf.airy(401, 20.0)
    assert h[200, 220] <= 1e-25
    y, x = np.indices(h.shape) - 200
    # 83.8 % of the light of an infinite pattern lies within the ring; 0.6 % of it lies outside this array.
    assert abs(h[np.hypot(y, x) <= 20].sum() - 0.838) <= 0.02


# -- camera shake ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 9, 17, 32, (9, 21), (1, 11)])
@pytest.mark.parametrize("seed", range(8))
def test_camera_shake_is_one_centred_trace_that_fills_its_size(size, seed):
    h = psf.camera_shake(size, seed)
    mean, _ = moments(h)
    assert np.abs(mean).max() <= 1e-9
    _, count = scipy.ndimage.label(h > 0, structure=np.ones((3, 3)))
    assert count == 1
    edges = [h[0].sum(), h[-1].sum()] * (h.shape[0] > 1) + [h[:, 0].sum(), h[:, -1].sum()] * (h.shape[1] > 1)
    assert max(edges) > 0


def test_camera_shake_depends_on_the_seed_alone():
    np.testing.assert_array_equal(psf.camera_shake(17, 5), psf.camera_shake(17, 5))
    np.testing.assert_array_equal(psf.camera_shake(17, 5), psf.camera_shake(17, np.random.default_rng(5)))
    assert np.abs(psf.camera_shake(17, 5) - psf.camera_shake(17, 6)).max() > 0.01


def test_camera_shake_is_a_thin_unsymmetric_trace():
    for seed in range(8):
        h = psf.camera_shake(25, seed)
        assert np.abs(h - h[::-1, ::-1]).max() > 0.1 * h.max()
        assert np.count_nonzero(h) < 0.5 * h.size


# -- files -----------------------------------------------------------------------------------

TABLE = np.array([[1.0, 2, 3], [4, 5, 6]])


@pytest.fixture
def saved(tmp_path):
    def save(name, content):
        path = tmp_path / name
        if isinstance(content, dict):
            np.savez(path, **content)
        elif isinstance(content, str):
            path.write_text(content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".npy"):
            np.save(path, content)
        elif name.endswith(".tif"):
            tifffile.imwrite(path, content)
        else:
            image.write(path, content)
        return path

    return save


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.npy", TABLE),
        ("h.npy", TABLE.astype(np.int16)),
        ("h.npz", {"anything": TABLE}),
        ("h.npz", {"psf": TABLE, "other": np.zeros(3)}),
        ("h.csv", "1,2,3\n4,5,6\n"),
        ("h.csv", "\ufeff1; 2; 3\n4; 5; 6\n"),
        ("h.txt", "# a comment\n1 2 3\n4 5 6"),
        ("h.tif", TABLE.astype(np.float32)),
        ("h.png", TABLE.astype(np.uint8)),
        ("h.png", TABLE.astype(np.uint16)),
        ("h.png", np.repeat(TABLE.astype(np.uint8)[..., None], 3, axis=-1)),
    ],
)
def test_load_reads_every_kind_of_file_and_normalises(saved, name, content):
    h = psf.load(saved(name, content))
    assert h.dtype == np.float64
    np.testing.assert_allclose(h, TABLE / 21, rtol=1e-6)
    assert abs(h.sum() - 1) <= 1e-15


def test_load_keeps_the_values_when_asked(saved):
    np.testing.assert_array_equal(psf.load(saved("h.npy", TABLE), normalize=False), TABLE)
    signed = np.array([[0.0, -1, 0], [-1, 5, -1], [0, -1, 0]])
    np.testing.assert_array_equal(psf.load(saved("s.npy", signed), allow_negative=True), signed)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("h.npy", np.array([[1.0, np.nan]]), "NaN"),
        ("h.npy", np.array([[1.0, np.inf]]), "NaN or infinite"),
        ("h.npy", np.array([[1.0, -0.1]]), "allow_negative"),
        ("h.npy", np.zeros((3, 3)), "sum to zero"),
        ("h.npy", np.ones(4), "2-D"),
        ("h.npy", np.ones((2, 2, 2)), "2-D"),
        ("h.npy", np.ones((0, 2)), "non-empty"),
        ("h.npy", np.ones((2, 2), complex), "not real"),
        ("h.npy", np.array([["a"]]), "not real"),
        ("h.npy", np.array([[None]]), "pickle"),
        ("h.npy", b"\x93NUMPY\x01", "cannot use"),
        ("h.npz", b"PK\x03\x04 broken", "cannot use"),
        ("h.npz", {"a": TABLE, "b": TABLE}, "name one of them"),
        ("h.csv", "1,2\n3\n", "cannot use"),
        ("h.csv", "a,b\n", "cannot use"),
        pytest.param("h.txt", "\n\n", "no numbers", id="blank lines"),
        ("h.txt", "", "0 bytes"),
        ("h.png", np.stack([TABLE.astype(np.uint8)] * 2 + [TABLE.astype(np.uint8) + 1], axis=-1), "colours"),
        ("h.png", b"no image at all", "cannot read"),
        ("h.tif", np.full((3, 3), np.nan, np.float32), "NaN"),
    ],
)
def test_load_says_what_is_wrong(saved, name, content, words):
    path = saved(name, content)
    with pytest.raises(ValueError, match=words) as caught:
        psf.load(path)
    assert str(path) in str(caught.value)


def test_load_of_a_sum_that_is_zero_but_for_rounding(saved):
    with pytest.raises(ValueError, match="sum to zero"):
        psf.load(saved("h.npy", np.array([[0.1, 0.2, -0.3]])), allow_negative=True)


def test_load_of_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        psf.load(tmp_path / "none.npy")
    with pytest.raises(IsADirectoryError, match="is a folder; name"):
        psf.load(tmp_path)


# -- short forms -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gaussian:9,1.2", psf.gaussian(9, 1.2)),
        (" Gaussian : 9x7 , 1.2 ", psf.gaussian((9, 7), 1.2)),
        ("disk:7", psf.disk(7)),
        ("disk:7,2.5", psf.disk(7, 2.5)),
        ("motion:15,30", psf.motion(15, 30)),
        ("motion:15", psf.motion(15)),
        ("box:5", psf.box(5)),
        ("moffat:15,3", psf.moffat(15, 3)),
        ("moffat:15,3,2.5", psf.moffat(15, 3, 2.5)),
        ("airy:15,4", psf.airy(15, 4)),
        ("shake:17,3", psf.camera_shake(17, 3)),
        ("delta:3", psf.delta(3)),
    ],
)
def test_parse_builds_what_it_says(text, expected):
    np.testing.assert_array_equal(psf.parse(text), expected)


def test_parse_reads_a_file(saved):
    np.testing.assert_allclose(psf.parse(str(saved("h.csv", "1,2,3\n4,5,6\n"))), TABLE / 21, rtol=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "gauss:9,1", "gaussian", "nothere.png", "gaussian:9", "gaussian:9,1,1", "box:", "box:x"),
        *("disk:a", "shake:17,1.5", "box:3x", "motion:1,2,3", "gaussian:9.5,1", "\0"),
    ],
)
def test_parse_lists_the_forms_when_it_does_not_understand(text):
    with pytest.raises(ValueError) as caught:
        psf.parse(text)
    for form in psf.FORMS:
        assert form in str(caught.value)


@pytest.mark.parametrize(
    "text", ["gaussian:0,1", "gaussian:9,-1", "motion:0.2", "moffat:9,3,1", "disk:7,nan"]
)
def test_parse_repeats_what_the_builder_says(text):
    with pytest.raises(ValueError, match="must be") as caught:
        psf.parse(text)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "gaussian:9999999,1",
        "box:1000000",
        "motion:1e9,30",
        "motion:1e300",
        "disk:99999999",
        "shake:9999999x9999999,1",
    ],
)
def test_parse_bounds_the_size_before_it_takes_memory(text):
    tracemalloc.start()
    try:
        with pytest.raises(InsufficientMemoryError, match="takes .* free; use a smaller size") as caught:
            psf.parse(text)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert text in str(caught.value)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (2**40, 2**40), (30000, 30000)])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_load_of_a_header_that_promises_more_than_the_file_holds(tmp_path, suffix, shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    path = tmp_path / f"h{suffix}"
    if suffix == ".npy":
        path.write_bytes(buffer.getvalue() + bytes(80))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("psf.npy", buffer.getvalue() + bytes(80))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"h.np.* its header promises .* and it holds 208 bytes"):
            psf.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
