"""`deblur.matlab` against Octave's output, published MATLAB values and independent computations."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.ndimage
import scipy.signal
import scipy.stats
from refusals import refused

from deblur import matlab
from deblur.device import asnumpy
from deblur.errors import SingularMatrixError

DATA = Path(__file__).parents[1] / "data"
LISTING = np.load(DATA / "octave_listing.npz")
OCTAVE = np.load(DATA / "octave_face.npz")


def relative(a, b):
    assert a.shape == b.shape
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), np.finfo(float).tiny)


# ---------------------------------------------------------------------------------------------
# The listings
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 7))
def test_filter2matrix_is_the_listing(n):
    rows, cols = (int(v) for v in LISTING[f"H{n}_shape"].ravel())
    h = matlab.filter2matrix(LISTING[f"H{n}_h"], rows, cols, rows, cols)
    assert relative(h, LISTING[f"H{n}_H"]) <= 1e-15


@pytest.mark.parametrize("n", range(1, 8))
def test_filter2matrix_for_images_of_different_sizes(n):
    kernel, theirs = OCTAVE[f"filter2matrix_{n}_kernel"], OCTAVE[f"filter2matrix_{n}_matrix"]
    rowsf, colsf, rowsg, colsg = (int(v) for v in OCTAVE[f"filter2matrix_{n}_shape"].ravel())
    ours = matlab.filter2matrix(kernel, rowsf, colsf, rowsg, colsg)
    assert ours.shape == (rowsg * colsg, rowsf * colsf)
    # The listing reserves rowsf * colsg columns; what one matrix has more than the other is zero.
    common = min(ours.shape[1], theirs.shape[1])
    np.testing.assert_array_equal(ours[:, :common], theirs[:, :common])
    assert not ours[:, common:].any()
    assert not theirs[:, common:].any()
    if colsf == colsg:
        assert ours.shape == theirs.shape


@pytest.mark.parametrize("n", range(1, 28))
def test_reconstruction_is_the_listing(n):
    f = matlab.reconstruction(LISTING[f"R{n}_g"], LISTING[f"R{n}_h"], LISTING[f"R{n}_lam"])
    assert f.dtype == np.float64
    assert relative(f, LISTING[f"R{n}_f"]) <= 1e-9


def test_reconstruction_takes_values_as_they_are(rng):
    g = rng.integers(0, 256, (6, 7), dtype=np.uint8)
    h = matlab.fspecial("gaussian", 3, 0.4)
    f = matlab.reconstruction(g, h, 1e-3)
    np.testing.assert_array_equal(f, matlab.reconstruction(g.astype(float), h, 1e-3))
    assert f.max() > 100


def test_reconstruction_refuses_what_has_no_answer():
    g = np.ones((5, 5))
    refused(SingularMatrixError, "singular", matlab.reconstruction, g, np.ones((1, 3)), 0)
    for lam in (-1e-3, math.nan, math.inf, "gcv", [1, 2]):
        with pytest.raises(ValueError, match="lambda_ must be a finite number of at least 0"):
            matlab.reconstruction(g, np.ones((3, 3)), lam)
    with pytest.raises(ValueError, match=r"g holds 1 value\(s\) that are NaN"):
        matlab.reconstruction([[1, math.nan], [1, 2]], np.ones((3, 3)), 1)
    refused(ValueError, "g must be a matrix", matlab.reconstruction, np.ones((3, 3, 3)), np.ones((3, 3)), 1)
    refused(ValueError, "h must be a matrix", matlab.reconstruction, g, np.ones((3, 3, 3)), 1)
    refused(ValueError, "larger than the image", matlab.reconstruction, g, np.ones((6, 3)), 1)


def test_vectors_run_along_the_rows(rng):
    image = rng.integers(0, 9, (3, 5), dtype=np.int16)
    vector = matlab.im2vector(image)
    assert vector.shape == (15, 1)
    assert vector.dtype == np.int16
    assert [int(v) for v in vector[:, 0]] == [int(image[i, j]) for i in range(3) for j in range(5)]
    for v in (vector, vector.T, vector.ravel()):
        np.testing.assert_array_equal(matlab.vector2im(v, (3, 5)), image)
    square = rng.random((4, 4))
    np.testing.assert_array_equal(matlab.vector2im(matlab.im2vector(square)), square)
    assert matlab.im2vector([1, 2, 3]).shape == (3, 1)  # a 1-D array is a row


def test_vectors_that_do_not_fit():
    refused(ValueError, r"15 pixels do not make a square image; give shape", matlab.vector2im, np.ones(15))
    refused(ValueError, r"do not fill an image of shape \(3, 4\)", matlab.vector2im, np.ones(15), (3, 4))
    refused(ValueError, "must be a row or a column", matlab.vector2im, np.ones((2, 8)))
    refused(ValueError, "one channel at a time", matlab.im2vector, np.ones((2, 2, 3)))


# ---------------------------------------------------------------------------------------------
# fspecial
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, len(OCTAVE["fspecial_calls"]) + 1))
def test_fspecial_equals_octave(n):
    kind, *words = OCTAVE["fspecial_calls"][n - 1].split()
    parameters = [[float(v) for v in word.split(",")] for word in words]
    h = matlab.fspecial(kind, *(p if len(p) > 1 else p[0] for p in parameters))
    assert relative(h, OCTAVE[f"fspecial_{n}"]) <= 1e-13


def test_fspecial_log_has_the_published_values():
    ring, edge = [0.0448, 0.0468, 0.0564, 0.0468, 0.0448], [0.0468, 0.3167, 0.7146, 0.3167, 0.0468]
    published = [ring, edge, [0.0564, 0.7146, -4.9048, 0.7146, 0.0564], edge, ring]
    np.testing.assert_allclose(matlab.fspecial("log"), published, atol=5e-5)


@pytest.mark.parametrize(("size", "sigma"), [((5, 5), 0.5), ((6, 9), 1.1), ((1, 7), 0.3), ((21, 21), 2.5)])
def test_fspecial_log_is_its_formula(size, sigma):
    h = matlab.fspecial("log", size, sigma)
    i, j = np.indices(size)
    r2 = (i - (size[0] - 1) / 2) ** 2 + (j - (size[1] - 1) / 2) ** 2
    bell = np.exp(-r2 / (2 * sigma**2))
    expected = bell * (r2 - 2 * sigma**2) / sigma**4 / bell.sum()
    expected -= expected.mean()
    assert relative(h, expected) <= 1e-13
    assert abs(h.sum()) <= 1e-13 * abs(h).sum()


@pytest.mark.parametrize("radius", [0.3, 0.5, 0.6, 0.75, 1.2, 1.5, 2.3, 3.5, 4.99, 6.71])
def test_fspecial_disk_holds_the_area_of_each_pixel(radius):
    h = matlab.fspecial("disk", radius)
    reach = math.ceil(radius - 0.5)
    assert h.shape == (2 * reach + 1, 2 * reach + 1)

    def chord(y, x):
        """Length of the disk's chord at height y within the pixel column at x."""
        half = math.sqrt(max(radius**2 - y**2, 0))
        return max(0.0, min(x + 0.5, half) - max(x - 0.5, -half))

    expected = np.empty(h.shape)
    for i, j in np.ndindex(h.shape):
        x, y = j - reach, i - reach
        kinks = [s * math.sqrt(max(radius**2 - e**2, 0)) for s in (-1, 1) for e in (x - 0.5, x + 0.5, 0)]
        parts = itertools.pairwise(np.unique(np.clip([y - 0.5, y + 0.5, *kinks], y - 0.5, y + 0.5)))
        expected[i, j] = sum(scipy.integrate.quad(chord, a, b, (x,), epsabs=1e-12)[0] for a, b in parts)
    assert abs(expected.sum() - math.pi * radius**2) <= 1e-8
    np.testing.assert_allclose(h, expected / expected.sum(), atol=1e-10)


def test_fspecial_motion_has_the_published_values():
    published = [[0, 0.0754, 0.1883], [0.0754, 0.3215, 0.0754], [0.1883, 0.0754, 0]]
    np.testing.assert_allclose(matlab.fspecial("motion", 3, 45), published, atol=5e-5)
    np.testing.assert_allclose(matlab.fspecial("motion"), np.full((1, 9), 1 / 9), atol=1e-15)
    np.testing.assert_allclose(matlab.fspecial("motion", 4), [[0.125, 0.25, 0.25, 0.25, 0.125]], atol=1e-15)
    np.testing.assert_array_equal(matlab.fspecial("motion", 0.2, 30), [[1]])
    assert matlab.fspecial("motion", 20, 45).shape == (15, 15)


@pytest.mark.parametrize("theta", [0, 11, 30, 45, 63.4, 90, 97, 135, 160, 180, 270, -20])
@pytest.mark.parametrize("length", [1, 2, 3, 6.5, 9, 20])
def test_fspecial_motion_is_its_construction(length, theta):
    h = matlab.fspecial("motion", length, theta)
    half, turn = (length - 1) / 2, math.radians(theta)
    tip = np.array([-math.sin(turn), math.cos(turn)]) * half  # (rows, columns): rows count downwards
    wide = 14
    weight = np.zeros((2 * wide + 1, 2 * wide + 1))
    for at in np.ndindex(weight.shape):
        p = np.array(at, float) - wide
        foot = 0.0 if half == 0 else float(np.clip(p @ tip / half**2, -1, 1))
        distance = np.linalg.norm(p - foot * tip)  # from the segment, as documented
        if np.linalg.norm(p) >= half > 0 and abs(foot) < 1:
            # beyond the half length MATLAB adds what is left to the end point
            distance = math.hypot(distance, half * (1 - abs(foot)))
        weight[at] = max(1 - distance, 0)
    weight[weight < 1e-14] = 0
    weight /= weight.sum()
    rows, cols = h.shape
    assert rows % 2 == 1
    assert cols % 2 == 1
    pad = [(wide - rows // 2,) * 2, (wide - cols // 2,) * 2]
    np.testing.assert_allclose(np.pad(h, pad), weight, atol=1e-13)
    np.testing.assert_allclose(h, h[::-1, ::-1], atol=1e-15)


@pytest.mark.parametrize("length", [1, 5, 9, 13])
def test_fspecial_motion_keeps_matlabs_column_of_zeros_at_120_degrees(length):
    h = matlab.fspecial("motion", length, 120)
    assert h.shape[1] == (length - 1) // 2 + 3
    assert h[:, [0, -1]].max() <= 1e-15
    np.testing.assert_allclose(h[:, 1:-1], matlab.fspecial("motion", length, 60)[:, ::-1], atol=1e-15)


SIZES = {
    "tuple": (3, 5),
    "floats": [3.0, 5.0],
    "array": np.array([3, 5]),
    "row": np.array([[3, 5]]),
    "column": [[3], [5]],
    "uint8": np.array([[3], [5]], np.uint8),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_size_may_be_a_row_or_a_column_of_any_class(rng, size):
    for name in ("average", "gaussian", "log"):
        h = matlab.fspecial(name, size)
        assert h.shape == (3, 5)
        np.testing.assert_array_equal(h, matlab.fspecial(name, (3, 5)))
    v = rng.random(15)
    np.testing.assert_array_equal(matlab.vector2im(v, size), v.reshape(3, 5))
    psf, otf = rng.random((2, 3)), np.fft.fft2(rng.random((4, 6)))
    np.testing.assert_array_equal(matlab.psf2otf(psf, size), matlab.psf2otf(psf, (3, 5)))
    np.testing.assert_array_equal(matlab.otf2psf(otf, size), matlab.otf2psf(otf, (3, 5)))


def test_a_number_may_be_a_one_by_one_array():
    one = np.array([[3]], np.uint8)
    np.testing.assert_array_equal(matlab.fspecial("average", one), np.full((3, 3), 1 / 9))
    np.testing.assert_array_equal(matlab.fspecial("log", one, [[0.5]]), matlab.fspecial("log", 3, 0.5))
    listing = matlab.filter2matrix([[1, 2]], one, [[4]], 3.0, np.float32(4))
    np.testing.assert_array_equal(listing, matlab.filter2matrix([[1, 2]], 3, 4, 3, 4))


@pytest.mark.parametrize("size", [[[3, 5], [5, 3]], [], [3, math.nan], [3, math.inf], [2.5, 3], [-1, 3], "3", True])
def test_what_is_no_size(size):
    for call in (
        lambda: matlab.fspecial("average", size),
        lambda: matlab.psf2otf([[1]], size),
        lambda: matlab.otf2psf(np.ones((9, 9)), size),
        lambda: matlab.vector2im(np.ones(15), size),
    ):
        refused(ValueError, "must be a .*whole number.*, or a row or a column of them", call)
    refused(ValueError, r"shape \(15,\); give \(rows, columns\)", matlab.vector2im, np.ones(15), 15)
    refused(ValueError, "colsf must be", matlab.filter2matrix, [[1]], 3, size, 3, 3)


def test_fspecial_names_may_be_short_and_bad_calls_say_why():
    np.testing.assert_array_equal(matlab.fspecial("GAUSS", 5, 1), matlab.fspecial("gaussian", [5, 5], 1.0))
    np.testing.assert_array_equal(matlab.fspecial("lo"), matlab.fspecial("log"))
    for name in ("l", "", "box", 3):
        refused(ValueError, "must be one of 'average', 'disk'", matlab.fspecial, name)
    bad = {
        ("average", 0): "hsize",
        ("average", 2.5): "hsize",
        ("average", (3, 3, 3)): "hsize",
        ("gaussian", 3, 0): "sigma must be a finite number above 0",
        ("disk", -1): "radius",
        ("laplacian", 1.01): "alpha must be a finite number of at least 0 and at most 1",
        ("unsharp", -0.1): "alpha",
        ("motion", math.inf): "len",
        ("motion", 9, "45"): "theta",
        ("sobel", 3): "'sobel' takes no parameters; 1 were given",
        ("disk", 3, 4): "'disk' takes radius; 2 were given",
    }
    for call, text in bad.items():
        refused(ValueError, text, matlab.fspecial, *call)


# ---------------------------------------------------------------------------------------------
# imfilter
# ---------------------------------------------------------------------------------------------

OPTIONS = [str(text).split() for text in OCTAVE["imfilter_options"]]


def as_option(word):
    try:
        return float(word)
    except ValueError:
        return word


@pytest.mark.parametrize("kernel", range(1, 6))
@pytest.mark.parametrize("row", range(len(OPTIONS)))
def test_imfilter_equals_octave(kernel, row):
    h, options = OCTAVE[f"imfilter_kernel_{kernel}"], [as_option(word) for word in OPTIONS[row]]
    key = f"imfilter_{kernel}_{row + 1}"
    if key not in OCTAVE:
        # Octave turns an even kernel about its middle, and pads it by half for 'full'; all else was recorded.
        assert "conv" in options or "full" in options
        assert h.shape[0] % 2 == 0 or h.shape[1] % 2 == 0
        return
    for order in (options, options[::-1]):
        assert relative(matlab.imfilter(OCTAVE["imfilter_a"], h, *order), OCTAVE[key]) <= 1e-13


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "single", "colour"])
def test_imfilter_rounds_and_saturates_as_octave(name):
    a, expected = OCTAVE[f"imfilter_{name}_a"], OCTAVE[f"imfilter_{name}_b"]
    b = matlab.imfilter(a, OCTAVE["imfilter_dyadic"], "replicate")
    assert b.dtype == a.dtype == expected.dtype
    np.testing.assert_array_equal(b, expected)


def test_imfilter_rounds_halves_away_from_zero():
    a = np.array([[1, 3, 5, -1, -3, -5, 127, -128]], np.int8)
    np.testing.assert_array_equal(matlab.imfilter(a, 0.5), [[1, 2, 3, -1, -2, -3, 64, -64]])
    np.testing.assert_array_equal(matlab.imfilter(a, 3), [[3, 9, 15, -3, -9, -15, 127, -128]])
    np.testing.assert_array_equal(matlab.imfilter(np.array([[1]], np.uint8), np.nextafter(0.5, 0)), [[0]])
    logical = matlab.imfilter(np.array([[True, False, True]]), [[0.5, 0.4]])
    assert logical.dtype == bool
    np.testing.assert_array_equal(logical, [[True, False, True]])


def test_imfilter_has_the_published_values():
    magic = "17 24 1 8 15 23 5 7 14 16 4 6 13 20 22 10 12 19 21 3 11 18 25 2 9"
    corr = "24 -16 -16 14 -8 5 -16 9 9 -14 6 9 14 9 -20 12 9 9 -16 -21 18 14 -16 -16 -2"
    magic, corr = (np.array(text.split(), float).reshape(5, 5) for text in (magic, corr))
    np.testing.assert_array_equal(matlab.imfilter(magic, [-1, 0, 1]), corr)
    np.testing.assert_array_equal(matlab.imfilter(magic, [-1, 0, 1], "conv"), -corr)
    even = matlab.imfilter(np.full((2, 5), 11.0), np.full((2, 2), 2.0))
    np.testing.assert_array_equal(even, [[88, 88, 88, 88, 44], [44, 44, 44, 44, 22]])


@pytest.mark.parametrize("mode", ["corr", "conv"])
def test_the_centre_of_an_even_kernel_is_the_documented_one(rng, mode):
    a = rng.random((6, 9))
    four = [0.25, 0.75, -0.75, -0.25]
    even, odd = (matlab.imfilter(a, kernel, mode, "circular") for kernel in (four, [0, *four]))
    np.testing.assert_allclose(even, odd, atol=1e-15)
    impulse = scipy.signal.unit_impulse((7, 7), "mid")
    h = rng.random((4, 2))
    # Element floor((size + 1)/2) of h, one-based, stays where the impulse was.
    expected = np.pad(h, ((2, 1), (3, 2))) if mode == "conv" else np.pad(h[::-1, ::-1], ((1, 2), (2, 3)))
    np.testing.assert_array_equal(matlab.imfilter(impulse, h, mode), expected)


PAD = {
    "symmetric": {"mode": "symmetric"},
    "replicate": {"mode": "edge"},
    "circular": {"mode": "wrap"},
    -2: {"constant_values": -2},
}


@pytest.mark.parametrize("boundary", PAD)
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (4, 5), (9, 13)])
def test_imfilter_full_continues_the_image_as_far_as_the_kernel_reaches(rng, size, boundary):
    a, h = rng.random((6, 5)), rng.random(size)
    padded = np.pad(a, [(m - 1, m - 1) for m in size], **PAD[boundary])
    for mode, reference in {"corr": scipy.signal.correlate2d, "conv": scipy.signal.convolve2d}.items():
        ours = matlab.imfilter(a, h, boundary, mode, "full")
        np.testing.assert_allclose(ours, reference(padded, h, "valid"), atol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "pad", "cast"),
    [
        ("uint8", 300, 255),
        ("uint8", -7, 0),
        ("uint8", 2.5, 3),
        ("int16", -1e6, -32768),
        ("int8", -2.5, -3),
        ("uint32", 1e12, 4294967295),
        ("bool", 0.2, 1),
        ("bool", -3, 1),
        ("float32", 0.1, np.float32(0.1)),
        ("float64", 0.1, 0.1),
    ],
)
def test_imfilter_takes_what_lies_outside_in_the_images_class(rng, dtype, pad, cast):
    a = (100 * rng.random((5, 6))).astype(dtype)
    h = np.array([[0.25, 0.125], [0.25, 0.375]])
    expected = scipy.signal.correlate2d(np.pad(a.astype(float), 1, constant_values=cast), h, "valid")
    ours = matlab.imfilter(a, h, pad, "full")
    assert ours.dtype == a.dtype
    if a.dtype.kind == "f":
        np.testing.assert_allclose(ours, expected.astype(dtype), rtol=1e-7 if dtype == "float32" else 1e-15)
    else:
        np.testing.assert_array_equal(ours, np.trunc(expected + np.copysign(0.5, expected)).astype(dtype))


def test_imfilter_in_three_dimensions(rng):
    a, h = rng.random((5, 6, 7)), rng.random((3, 5, 3))
    for option, mode in {"symmetric": "reflect", "replicate": "nearest", "circular": "wrap"}.items():
        np.testing.assert_allclose(matlab.imfilter(a, h, option), scipy.ndimage.correlate(a, h, mode=mode), atol=1e-13)
    flat = matlab.imfilter(a, h[:, :, 0])
    for k in range(7):
        np.testing.assert_allclose(flat[:, :, k], matlab.imfilter(a[:, :, k], h[:, :, 0]), atol=1e-14)
    assert matlab.imfilter(a[:, :, 0], h, "full").shape == (7, 10, 3)


def test_imfilter_keeps_small_weights_and_leaves_nan_where_it_is(rng):
    a, h = rng.random((6, 6)), rng.random((3, 3))
    np.testing.assert_allclose(matlab.imfilter(a, 2.0**-90 * h), 2.0**-90 * matlab.imfilter(a, h), rtol=1e-14)
    a[0, 0] = np.nan
    assert np.isnan(matlab.imfilter(a, [0, 1, 1])).sum() == 1
    assert matlab.imfilter(a.astype(np.float32), h).dtype == np.float32


def test_imfilter_options_short_repeated_and_wrong(rng):
    a, h = rng.random((4, 4)), rng.random((3, 3))
    np.testing.assert_array_equal(matlab.imfilter(a, h, "SYM", "f"), matlab.imfilter(a, h, "full", "symmetric"))
    np.testing.assert_array_equal(matlab.imfilter(a, h, "full", "circular", "same", 2), matlab.imfilter(a, h, 2))
    for option in ("mirror", "s", "co", math.nan, None):
        refused(ValueError, "must be", matlab.imfilter, a, h, option)
    for dtype in (np.int64, np.uint64, np.float16, complex):
        with pytest.raises(TypeError, match=r"a must be of dtype bool, uint8.*convert it with \.astype"):
            matlab.imfilter(np.ones((3, 3), dtype), h)
    refused(ValueError, r"h holds 1 value", matlab.imfilter, a, [[1, math.inf]])
    refused(ValueError, r"a is empty \(shape \(0, 3\)\)", matlab.imfilter, np.ones((0, 3)), h)
    refused(TypeError, "a must hold numbers", matlab.imfilter, [["x"]], h)


# ---------------------------------------------------------------------------------------------
# imnoise: its statistics, for a fixed seed, within 5 standard errors
# ---------------------------------------------------------------------------------------------

SHAPE = (300, 200)
N = math.prod(SHAPE)


def check_moments(noise, mean, variance, fourth=3.0):
    """Mean and variance of N values whose fourth standardised moment is `fourth` (3: normal)."""
    assert abs(noise.mean() - mean) <= 5 * math.sqrt(variance / N)
    assert abs(noise.var() - variance) <= 5 * variance * math.sqrt((fourth - 1) / N)


@pytest.mark.parametrize(
    ("parameters", "mean", "variance"), [((), 0, 0.01), ((0.1,), 0.1, 0.01), ((-0.05, 0.002), -0.05, 0.002)]
)
def test_gaussian_noise(parameters, mean, variance):
    noise = matlab.imnoise(np.full(SHAPE, 0.5), "gaussian", *parameters, seed=1) - 0.5
    check_moments(noise, mean, variance)
    assert scipy.stats.kstest(noise.ravel(), "norm", (mean, math.sqrt(variance))).pvalue > 1e-4


def test_gaussian_noise_is_the_default_and_is_clipped():
    grey = np.full((5, 5), 0.5)
    np.testing.assert_array_equal(matlab.imnoise(grey, seed=3), matlab.imnoise(grey, "gaussian", 0, 0.01, seed=3))
    noisy = matlab.imnoise(np.full(SHAPE, 0.9), "gaussian", 0, 0.04, seed=3)
    assert noisy.min() >= 0
    assert noisy.max() == 1
    assert abs((noisy == 1).mean() - scipy.stats.norm.sf(0.5)) <= 5 * math.sqrt(0.25 / N)
    # Values beyond [0, 1] are clipped before noise is added, not after alone.
    np.testing.assert_array_equal(matlab.imnoise([[-3.0, 7.0]], "gaussian", 0.25, 0), [[0.25, 1.0]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["gaussian", "salt & pepper", "speckle", "poisson", "localvar"])
def test_noise_keeps_the_class(kind, dtype):
    integer = np.issubdtype(dtype, np.integer)
    middle = int(np.iinfo(dtype).min + 0.25 * (np.iinfo(dtype).max - np.iinfo(dtype).min)) if integer else 0.25
    image = np.full((40, 30), middle, dtype)
    parameters = (np.full((40, 30), 0.01),) if kind == "localvar" else ()
    if kind == "poisson" and dtype == np.int16:
        refused(TypeError, "not int16", matlab.imnoise, image, kind)
        refused(TypeError, "uint8, uint16, float32, float64, not bool", matlab.imnoise, image > 0, kind)
        return
    noisy = matlab.imnoise(image, kind, *parameters, seed=8)
    assert (noisy.dtype, noisy.shape) == (dtype, image.shape)
    assert (noisy != image).any()
    np.testing.assert_array_equal(image, np.full((40, 30), middle, dtype))
    np.testing.assert_array_equal(noisy, matlab.imnoise(image, kind, *parameters, seed=8))
    generator = np.random.default_rng(8)
    np.testing.assert_array_equal(noisy, matlab.imnoise(image, kind, *parameters, seed=generator))
    assert (noisy != matlab.imnoise(image, kind, *parameters, seed=generator)).any()  # it went on
    assert (matlab.imnoise(image, kind, *parameters) != matlab.imnoise(image, kind, *parameters)).any()


def test_integer_noise_is_scaled_to_the_class():
    noise = matlab.imnoise(np.full(SHAPE, 128, np.uint8), "gaussian", 0, 0.01, seed=4).astype(float) - 128
    check_moments(noise / 255, 0, 0.01 + 1 / 12 / 255**2)
    noise = matlab.imnoise(np.full(SHAPE, -1000, np.int16), "gaussian", 0, 0.001, seed=4).astype(float) + 1000
    check_moments(noise / 65535, 0, 0.001)
    levels = np.arange(256, dtype=np.uint8)[None]
    np.testing.assert_array_equal(matlab.imnoise(levels, "gaussian", 0, 0), levels)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float64])
@pytest.mark.parametrize("density", [None, 0.0, 0.02, 0.3, 1.0])
def test_salt_and_pepper(dtype, density):
    integer = np.issubdtype(dtype, np.integer)
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if integer else (0, 1)
    middle = 100 if integer else 0.4
    noisy = matlab.imnoise(
        np.full(SHAPE, middle, dtype), "salt & pepper", *([] if density is None else [density]), seed=5
    )
    d = 0.05 if density is None else density
    for value, p in ((low, d / 2), (high, d / 2), (middle, 1 - d)):
        count = int((noisy == value).sum())
        assert scipy.stats.binom.ppf(1e-6, N, p) <= count <= scipy.stats.binom.ppf(1 - 1e-6, N, p)
    assert np.isin(noisy, [low, high, middle]).all()


@pytest.mark.parametrize("variance", [None, 0.01, 0.3])
def test_speckle_is_uniform_and_multiplies(variance):
    v = 0.05 if variance is None else variance
    ramp = np.broadcast_to(np.linspace(0, 0.4, SHAPE[1]), SHAPE)
    noisy = matlab.imnoise(ramp, "speckle", *([] if variance is None else [variance]), seed=6)
    assert (noisy[:, 0] == 0).all()
    factor = noisy[:, 1:] / ramp[:, 1:] - 1
    width = math.sqrt(12 * v)
    assert abs(factor).max() <= width / 2 * (1 + 1e-12)
    inside = abs(factor) < min(width / 2, 1)  # a factor below -1 is clipped
    assert inside.mean() >= 0.99 or variance == 0.3
    if width / 2 <= 1:
        assert scipy.stats.kstest(factor.ravel(), "uniform", (-width / 2, width)).pvalue > 1e-4
        n = factor.size
        assert abs(factor.mean()) <= 5 * math.sqrt(v / n)
        assert abs(factor.var() - v) <= 5 * v * math.sqrt(0.8 / n)


def test_poisson_counts():
    noisy = matlab.imnoise(np.full(SHAPE, 10, np.uint8), "poisson", seed=7).astype(float)
    check_moments(noisy, 10, 10, 3 + 1 / 10)
    counts = np.bincount(noisy.astype(int).ravel(), minlength=41)[:41]
    expected = N * scipy.stats.poisson.pmf(np.arange(41), 10)
    assert (abs(counts - expected) <= 6 * np.sqrt(expected) + 3).all()
    noisy = matlab.imnoise(np.full(SHAPE, 40000, np.uint16), "poisson", seed=7).astype(float)
    check_moments(noisy, 40000, 40000)
    noisy = matlab.imnoise(np.full(SHAPE, 5.5e-12), "poisson", seed=7) * 1e12
    check_moments(noisy, 5.5, 5.5, 3 + 1 / 5.5)
    np.testing.assert_allclose(noisy, np.rint(noisy), atol=1e-9)
    noisy = matlab.imnoise(np.full(SHAPE, 2e-4, np.float32), "poisson", seed=7).astype(float) * 1e6
    check_moments(noisy, 200, 200, 3 + 1 / 200)
    noisy = matlab.imnoise(np.full(SHAPE, 250, np.uint8), "poisson", seed=7)
    assert noisy.max() == 255
    assert (matlab.imnoise(np.zeros((9, 9)), "poisson") == 0).all()


def test_local_variance():
    variance = np.where(np.arange(SHAPE[1]) < 100, 1e-4, 4e-3) * np.ones((SHAPE[0], 1))
    noise = matlab.imnoise(np.full(SHAPE, 0.5), "localvar", variance, seed=9) - 0.5
    check_moments(noise / np.sqrt(variance), 0, 1)
    for half, v in ((noise[:, :100], 1e-4), (noise[:, 100:], 4e-3)):
        assert abs(half.var() - v) <= 5 * v * math.sqrt(4 / N)
    image = np.where(np.arange(SHAPE[1]) < 100, 0.4, 0.6) * np.ones((SHAPE[0], 1))
    noise = matlab.imnoise(image, "localvar", [0.2, 0.5, 1], [1e-4, 1e-3, 2e-4], seed=9) - image
    for half, v in ((noise[:, :100], 7e-4), (noise[:, 100:], 8.4e-4)):
        assert abs(half.var() - v) <= 5 * v * math.sqrt(4 / N)


def test_imnoise_refuses():
    image = np.full((4, 4), 0.5)
    refused(ValueError, "the noise type must be one of 'gaussian', 'localvar'", matlab.imnoise, image, "s")
    short, whole = (matlab.imnoise(image, kind, 0.5, seed=0) for kind in ("SALT", "salt & pepper"))
    np.testing.assert_array_equal(short, whole)
    bad = {
        ("gaussian", 0, -0.1): "var_gauss must be a finite number of at least 0",
        ("gaussian", math.nan): "m must be",
        ("gaussian", 0, 0.1, 3): "takes m, var_gauss; 3 were given",
        ("salt & pepper", 1.1): "d must be a finite number of at least 0 and at most 1",
        ("speckle", -1): "var_speckle",
        ("poisson", 3): "takes no parameters",
        ("localvar",): "needs var_local",
    }
    for call, text in bad.items():
        refused(ValueError, text, matlab.imnoise, image, *call)
    refused(ValueError, r"must have the image's shape \(4, 4\)", matlab.imnoise, image, "localvar", np.ones((3, 4)))
    refused(ValueError, "must not be negative", matlab.imnoise, image, "localvar", -image)
    refused(ValueError, "must increase and be as long as", matlab.imnoise, image, "localvar", [0, 1], [0.1, 0.2, 0.3])
    refused(ValueError, "must increase and be as long as", matlab.imnoise, image, "localvar", [1, 0], [0.1, 0.2])
    refused(ValueError, "img holds", matlab.imnoise, [[math.nan, 1]])
    for dtype in (bool, np.int64, np.float16):
        refused(TypeError, "img must be of dtype uint8", matlab.imnoise, np.ones((3, 3), dtype))


# ---------------------------------------------------------------------------------------------
# Transfer functions and edges
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 9))
def test_transfer_functions_equal_octave(n):
    psf, size = OCTAVE[f"otf_{n}_psf"], OCTAVE[f"otf_{n}_size"].ravel()
    otf, expected = matlab.psf2otf(psf, size), OCTAVE[f"otf_{n}_otf"]
    assert otf.dtype == expected.dtype  # real where Octave's is
    assert relative(otf, expected) <= 1e-13
    whole = matlab.otf2psf(otf)
    assert whole.dtype == np.float64
    assert abs(OCTAVE[f"otf_{n}_back"] - whole).max() <= 1e-14
    # Octave cuts the PSF out, then moves the origin; documented is the other order, which inverts psf2otf.
    back = matlab.otf2psf(otf, psf.shape)
    assert back.dtype == np.float64
    assert abs(back.reshape(psf.shape) - psf).max() <= 1e-14


def test_a_transfer_function_of_no_real_psf():
    psf = matlab.otf2psf(OCTAVE["otf2psf_otf"])
    assert psf.dtype == np.complex128
    assert relative(psf, OCTAVE["otf2psf_psf"]) <= 1e-13


def circular(psf, f):
    """The circular convolution about element floor(size / 2)."""
    at = [(i, i[0] - psf.shape[0] // 2, i[1] - psf.shape[1] // 2) for i in np.ndindex(psf.shape)]
    return sum(psf[i] * np.roll(f, by, (0, 1)) for i, *by in at)


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (2, 5), (4, 4), (7, 6)])
def test_psf2otf_is_circular_convolution_about_the_centre(rng, size):
    psf, f = rng.random(size), rng.random((7, 11))
    g = np.fft.ifft2(np.fft.fft2(f) * matlab.psf2otf(psf, f.shape))
    np.testing.assert_allclose(g, circular(psf, f), atol=1e-13)
    np.testing.assert_allclose(matlab.otf2psf(matlab.psf2otf(psf)), psf, atol=1e-14)


def test_transfer_functions_refuse():
    psf = np.ones((3, 4))
    assert matlab.psf2otf([1, 2, 1]).shape == (1, 3)
    assert matlab.psf2otf(psf.astype(np.float32), (5, 5)).dtype == np.complex128
    assert matlab.psf2otf(psf, (3, 4, 2)).shape == (3, 4, 2)
    for size in ((2, 4), (5, 3), (5, 5, 0)):
        refused(ValueError, "is smaller than the PSF", matlab.psf2otf, psf, size)
    for size in ((4, 4), (3, 0), (3, 4, 2)):
        refused(ValueError, "must be positive and not larger than the OTF", matlab.otf2psf, psf, size)
    for function in (matlab.psf2otf, matlab.otf2psf):
        refused(ValueError, "NaN or infinite", function, [[1, math.nan]])


def taper_weight(psf, n, axis):
    """1 less the autocorrelation of the projection, laid out from both edges: written without a transform."""
    p = psf.sum(axis=1 - axis)
    lags = np.correlate(p, p, "full")[len(p) - 1 :]
    return 1 - np.concatenate([lags, np.zeros(n)])[np.minimum(np.arange(n), n - 1 - np.arange(n))] / lags[0]


@pytest.mark.parametrize("size", [(3, 3), (4, 7), (6, 2), (1, 5)])
def test_edgetaper_is_its_formula(rng, size):
    img, psf = rng.random((17, 19)), rng.random(size)
    tapered = matlab.edgetaper(img, 3 * psf)
    psf /= psf.sum()
    blurred = circular(psf, img)
    down = taper_weight(psf, 17, 0) if size[0] > 1 else np.ones(17)
    w = np.outer(down, taper_weight(psf, 19, 1))
    np.testing.assert_allclose(tapered, w * img + (1 - w) * blurred, atol=1e-13)
    inside = tuple(slice(m, -m) if m > 1 else slice(None) for m in size)
    np.testing.assert_allclose(tapered[inside], img[inside], atol=1e-14)
    np.testing.assert_allclose(tapered[:, 0], blurred[:, 0], atol=1e-14)
    np.testing.assert_allclose(tapered[:, -1], blurred[:, -1], atol=1e-14)


def test_edgetaper_keeps_class_and_range(rng):
    psf = matlab.fspecial("gaussian", 7, 2)
    real = rng.random((21, 24, 3))
    tapered = matlab.edgetaper(real, psf)
    for k in range(3):  # channels are not mixed; only the range is common to them
        np.testing.assert_allclose(tapered[:, :, k], matlab.edgetaper(real[:, :, k], psf), atol=1e-13)
    for dtype, span in ((np.uint8, 255), (np.uint16, 65535)):
        whole = np.floor(real * span).astype(dtype)
        result = matlab.edgetaper(whole, psf)
        assert result.dtype == dtype
        assert abs(result - matlab.edgetaper(whole / span, psf) * span).max() <= 0.5 + 1e-9
    assert matlab.edgetaper(real.astype(np.float32), psf).dtype == np.float32
    overshooting = np.array([[-1.0, 3, -1]])
    step = np.zeros((5, 20))
    step[:, 10:] = 1
    sharpened = matlab.edgetaper(step, overshooting)
    assert sharpened.min() == 0
    assert sharpened.max() == 1
    assert (sharpened != step).any()


def test_edgetaper_refuses():
    img = np.ones((8, 9))
    for psf in (np.ones((4, 3)), np.ones((3, 5)), np.ones((1, 1))):
        refused(ValueError, "smaller than half the image", matlab.edgetaper, img, psf)
    refused(ValueError, "psf is zero everywhere", matlab.edgetaper, img, np.zeros((3, 3)))
    refused(ValueError, "psf holds", matlab.edgetaper, img, [[math.nan, 1, 1]])


# ---------------------------------------------------------------------------------------------
# Measures
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uint8", "uint16", "int16", "single", "double"])
def test_measures_equal_octave(name):
    x, y = OCTAVE[f"measure_{name}_x"], OCTAVE[f"measure_{name}_y"]
    tolerance = 1e-6 if name == "single" else 1e-14  # Octave sums a single in single
    error = OCTAVE[f"measure_{name}_immse"].item()
    assert abs(matlab.immse(x, y) - error) <= tolerance * error
    assert abs(matlab.psnr(x, y, 100) - OCTAVE[f"measure_{name}_psnr100"].item()) <= 10 * tolerance * 50
    if name == "int16":  # documented: the span of the class
        expected = 10 * math.log10(65535**2 / error)
    else:
        expected = OCTAVE[f"measure_{name}_psnr"].item()
    assert abs(matlab.psnr(x, y) - expected) <= 10 * tolerance * abs(expected)


def test_measures_at_their_ends():
    a = np.zeros((3, 4), np.uint8)
    assert matlab.immse(a, a) == 0
    assert matlab.psnr(a, a) == math.inf
    assert matlab.immse(a, a + np.uint8(255)) == 65025  # no wrap-around of the class
    assert matlab.psnr(a, a + np.uint8(255)) == 0
    assert matlab.immse([1, 2], [3, 5]) == 6.5
    assert math.isnan(matlab.immse([math.nan, 1], [1, 1]))
    words = r"a \(uint8, \(3, 4\)\) and ref \(float64, \(3, 4\)\) must have the same class"
    refused(ValueError, words, matlab.psnr, a, a.astype(float))
    refused(ValueError, "must have the same class and shape", matlab.immse, a, a.T)
    refused(TypeError, "a must be of dtype uint8", matlab.psnr, a.astype(bool), a.astype(bool))
    for peak in (0, -1, math.nan, "255"):
        refused(ValueError, "peakval must be a finite number above 0", matlab.psnr, a, a, peak)


def test_measures_of_single_are_single(rng):
    a, b = rng.random((2, 7, 8)).astype(np.float32)
    for measure in (matlab.immse, matlab.psnr):
        ours, double = measure(a, b), measure(a.astype(float), b.astype(float))
        assert isinstance(ours, np.float32)
        assert type(double) is float
        assert ours == np.float32(double)
    assert isinstance(matlab.psnr(a, b, 255), np.float32)
    assert matlab.psnr(a, a) == np.inf
    huge = np.full((2, 2), 1e30, np.float32)
    assert matlab.immse(huge, -huge) == np.inf  # 4e60 is beyond single
    assert matlab.psnr(huge, -huge) == np.float32(-606.0206)
    for dtype in (np.uint8, np.int16, float):
        assert type(matlab.immse(np.ones((2, 2), dtype), np.zeros((2, 2), dtype))) is float


# ---------------------------------------------------------------------------------------------
# One function for both array libraries
# ---------------------------------------------------------------------------------------------


def test_arrays_stay_in_their_library(xp):
    rng = np.random.default_rng(3)
    host, h = rng.random((17, 19)), rng.random((4, 3))
    img = xp.asarray(host)
    calls = {
        "imfilter": lambda a: matlab.imfilter(a, h, "symmetric"),
        "imfilter of uint8": lambda a: matlab.imfilter((200 * a).astype(np.uint8), h, "conv", "full"),
        "imnoise": lambda a: matlab.imnoise(a, "poisson", seed=2),
        "psf2otf": lambda a: matlab.psf2otf(a, (20, 21)),
        "otf2psf": lambda a: matlab.otf2psf(matlab.psf2otf(a)),
        "edgetaper": lambda a: matlab.edgetaper(a, h),
        "im2vector": matlab.im2vector,
        "vector2im": lambda a: matlab.vector2im(a.ravel(), (19, 17)),
        "reconstruction": lambda a: matlab.reconstruction(a, h, 0.1),
    }
    for name, call in calls.items():
        result = call(img)
        assert isinstance(result, xp.ndarray), name
        expected = call(host)
        assert result.dtype == expected.dtype, name
        np.testing.assert_allclose(asnumpy(result), expected, atol=1e-12, err_msg=name)
    assert matlab.immse(img, img + 2) == pytest.approx(4, rel=1e-14)
    assert matlab.psnr(img, img + 0.1) == pytest.approx(20, rel=1e-12)
