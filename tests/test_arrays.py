"""Arrays as the ecosystem hands them over: one test for every public call that takes one."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse
from refusals import refused

import deblur
from deblur import image, linalg, matlab, metrics
from deblur.device import as_real, unwrapped
from deblur.problem import Problem

SHAPE = (12, 12)
IMAGE = np.arange(144.0).reshape(SHAPE) % 7 / 8  # exact in float16
MATRIX = 4 * np.eye(4) + np.arange(16.0).reshape(4, 4).T @ np.arange(16.0).reshape(4, 4) / 1024
VECTOR = np.array([1.0, 0.5, -2.0, 3.0])
PSF = np.array([[0.0, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.0]])
BLUR = deblur.Blur(PSF, SHAPE)
OF_A_MATRIX = ("cholesky", "cholesky_inverse", "gauss_jordan_inverse", "gets", "gram")
OF_BOTH = ("cholesky_solve", "gauss_jordan_solve", "solve_triangular", "matmul")

#: Calls of one array, with an array that they take.
CALLS = {
    **{f"linalg.{name}": (getattr(linalg, name), MATRIX) for name in OF_A_MATRIX},
    **{f"linalg.{name}": (lambda a, name=name: getattr(linalg, name)(a, VECTOR), MATRIX) for name in OF_BOTH},
    **{f"linalg.{name} b": (partial(getattr(linalg, name), MATRIX), VECTOR) for name in OF_BOTH},
    "linalg.gauss_seidel": (lambda a: linalg.gauss_seidel(a, VECTOR)[0], MATRIX),
    "linalg.gauss_seidel b": (lambda b: linalg.gauss_seidel(MATRIX, b, acceleration="cg")[0], VECTOR),
    "linalg.gauss_seidel x0": (lambda x: linalg.gauss_seidel(MATRIX, VECTOR, x)[0], VECTOR),
    "linalg.damped_qr": (lambda a: linalg.damped_qr(a, 0.1).solve(VECTOR), MATRIX),
    "linalg.DampedQR.solve": (linalg.damped_qr(MATRIX, 0.1).solve, VECTOR),
    "linalg.qr": (lambda a: linalg.qr(a, "r"), MATRIX),
    "linalg.QRModel": (lambda a: linalg.QRModel(a, VECTOR).solve(), MATRIX),
    "linalg.QRModel b": (lambda b: linalg.QRModel(MATRIX, b).solve(), VECTOR),
    "linalg.QRModel.add_rows": (lambda u: _with_row(u, 1.0), VECTOR),
    "linalg.QRModel.add_rows b": (lambda b: _with_row(MATRIX, b), VECTOR),
    "Blur": (lambda h: deblur.Blur(h, SHAPE).forward(IMAGE), PSF),
    **{f"Blur.{name}": (getattr(BLUR, name), IMAGE) for name in ("forward", "adjoint")},
    **{f"Blur.{name}": (getattr(BLUR, name), IMAGE.ravel()) for name in ("matvec", "rmatvec")},
    **{f"Blur.{name}": (getattr(BLUR, name), IMAGE.reshape(-1, 1)) for name in ("matmat", "rmatmat")},
    "Blur @ x": (lambda x: BLUR @ x, IMAGE.ravel()),
    "filter2matrix": (lambda h: deblur.filter2matrix(h, 5, 6), PSF),
    "estimate_noise": (lambda g: deblur.tuning.estimate_noise(g, PSF.tolist()), IMAGE),
    "prior_scene": (lambda g: deblur.tuning.prior_scene(BLUR, g), IMAGE),
    "choose_lambda": (lambda g: deblur.tuning.choose_lambda(BLUR, g).lam, IMAGE),
    "degrade": (lambda f: deblur.degrade(f, PSF), IMAGE),
    "degrade psf": (lambda h: deblur.degrade(IMAGE, h), PSF),
    "metrics.mse": (lambda f: metrics.mse(f, IMAGE / 2), IMAGE),
    "metrics.psnr": (lambda f: metrics.psnr(IMAGE / 2, f), IMAGE),
    "metrics.ssim": (lambda f: metrics.ssim(IMAGE / 2, f), IMAGE),
    "posterior_std image": (lambda g: deblur.posterior_std(Problem(BLUR, 0.1), image=g).std, IMAGE),
    "QRDeblurrer": (deblur.QRDeblurrer(PSF, SHAPE, 0.1), IMAGE),
    "QRDeblurrer psf": (lambda h: deblur.QRDeblurrer(h, SHAPE, 0.1)(IMAGE), PSF),
    "QRDeblurrer weights": (lambda w: deblur.QRDeblurrer(PSF, SHAPE, 0.1, weights=w)(IMAGE), IMAGE),
    "reconstruct psf": (lambda h: deblur.reconstruct(IMAGE, h, 0.1), PSF),
    "reconstruct weights": (lambda w: deblur.reconstruct(IMAGE, PSF, 0.1, weights=w), IMAGE),
    "matlab.filter2matrix": (lambda h: matlab.filter2matrix(h, 5, 6, 5, 6), PSF),
    "matlab.reconstruction": (lambda g: matlab.reconstruction(g, PSF, 0.1), IMAGE),
    "matlab.imfilter h": (lambda h: matlab.imfilter(IMAGE, h), PSF),
    "matlab.deconvwnr psf": (lambda h: matlab.deconvwnr(IMAGE, h, 0.1), PSF),
    "matlab.deconvreg psf": (lambda h: matlab.deconvreg(IMAGE, h)[0], PSF),
    "matlab.deconvlucy psf": (lambda h: matlab.deconvlucy(IMAGE, h), PSF),
    "matlab.edgetaper psf": (lambda h: matlab.edgetaper(IMAGE, h), PSF),
}

#: Calls that keep the class of what they are given: of float32 and float64 in any byte order.
KEEPS = {
    "reconstruct": (lambda g: deblur.reconstruct(g, PSF, 0.1), IMAGE),
    "image.im2vector": (image.im2vector, IMAGE),
    "image.vector2im": (lambda v: image.vector2im(v, SHAPE), IMAGE.ravel()),
    "image.as_float": (image.as_float, IMAGE),
    "matlab.im2vector": (matlab.im2vector, IMAGE),
    "matlab.vector2im": (matlab.vector2im, IMAGE.ravel()),
    "matlab.imfilter": (lambda a: matlab.imfilter(a, PSF), IMAGE),
    "matlab.imnoise": (lambda a: matlab.imnoise(a, "gaussian", seed=0), IMAGE),
    "matlab.immse": (lambda a: matlab.immse(a, np.array(a) * np.float32(0.5)), IMAGE),
    "matlab.deconvwnr": (lambda g: matlab.deconvwnr(g, PSF, 0.1), IMAGE),
    "matlab.deconvreg": (lambda g: matlab.deconvreg(g, PSF)[0], IMAGE),
    "matlab.deconvlucy": (lambda g: matlab.deconvlucy(g, PSF), IMAGE),
    "matlab.deconvblind": (lambda g: matlab.deconvblind(g, PSF)[0], IMAGE),
    "matlab.edgetaper": (lambda g: matlab.edgetaper(g, PSF), IMAGE),
    "matlab.psf2otf": (lambda h: matlab.psf2otf(h, SHAPE), PSF),
}


def _with_row(u, b):
    model = linalg.QRModel(MATRIX, VECTOR)
    model.add_rows(u, b)
    return model.solve()


class Offers:
    """What pandas, xarray and PyTorch offer, and nothing more."""

    def __init__(self, a):
        self._a = a

    def __array__(self, dtype=None, copy=None):
        return np.array(self._a, dtype=dtype)


def strided(a):
    wide = np.full([2 * n for n in a.shape], np.nan)
    wide[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return wide[tuple(slice(None, None, 2) for _ in a.shape)]


SAME_VALUES = {
    "big-endian": lambda a: a.astype(">f8"),
    "longdouble": lambda a: a.astype(np.longdouble),
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "strided": strided,
    "backwards": lambda a: a[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "__array__": Offers,
    "masks nothing": np.ma.array,
}


def check_same(function, form, given, expected, rtol):
    before = np.array(given)
    answer = np.asarray(function(given))
    np.testing.assert_array_equal(np.array(given), before, err_msg=f"{form}: the input has changed")
    assert answer.dtype == np.asarray(expected).dtype, form
    assert answer.dtype.isnative, form
    # BLAS sums by memory order.
    np.testing.assert_allclose(answer, expected, rtol=rtol, atol=rtol, err_msg=form)


@pytest.mark.parametrize("call", CALLS)
def test_the_same_numbers_give_the_same_answer_in_any_form(call):
    function, a = CALLS[call]
    expected = function(a)
    for form, made in SAME_VALUES.items():
        check_same(function, form, made(a), expected, 1e-12)


@pytest.mark.parametrize("call", KEEPS)
def test_the_class_is_kept_in_native_order(call, dtype):
    function, a = KEEPS[call]
    a = a.astype(dtype)
    expected = function(a)
    changed = {"big-endian": lambda a: a.astype(np.dtype(dtype).newbyteorder(">"))}
    changed["strided"] = lambda a: strided(a).astype(dtype)
    for form, made in (SAME_VALUES | changed).items():
        if form != "longdouble":
            check_same(function, form, made(a), expected, 1e-6)


@pytest.mark.parametrize("call", CALLS)
def test_small_floats_in_any_byte_order_and_integers_are_computed_with(call):
    function, a = CALLS[call]
    small = function(a.astype(np.float32))
    for dtype in (np.float16, ">f2", ">f4"):
        narrow = a.astype(dtype)
        assert np.asarray(function(narrow)).dtype == np.asarray(small).dtype
        np.testing.assert_allclose(function(narrow), function(narrow.astype("f4")), rtol=1e-4, atol=1e-4)
    whole = (4 * a).round() + 64 * (a == a.max())
    words = ("reconstruct", "degrade", "mse", "psnr", "ssim", "QRDeblurrer", "posterior_std image")
    scales = any(word in call for word in words)
    if call in ("degrade psf", "QRDeblurrer psf", "reconstruct psf") or not scales or "weights" in call:
        for dtype in (np.int8, ">i2", np.int64, ">u4" if whole.min() >= 0 else ">i4"):
            np.testing.assert_allclose(function(whole.astype(dtype)), function(whole), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("call", [name for name in CALLS | KEEPS if name not in ("reconstruct", "QRDeblurrer")])
def test_hidden_values_are_never_data(call):
    function, a = (CALLS | KEEPS)[call]
    hidden = np.ma.array(a, mask=np.zeros(a.shape, bool))
    hidden[(-1,) * a.ndim] = np.ma.masked
    refused(TypeError, r"masked array with 1 hidden value\(s\).*fill them", function, hidden)


#: These move numbers or transform them, complex ones too.
TAKE_COMPLEX = ("im2vector", "vector2im", "psf2otf")


@pytest.mark.parametrize("call", [name for name in CALLS | KEEPS if not name.endswith(TAKE_COMPLEX)])
def test_complex_numbers_are_refused(call):
    function, a = (CALLS | KEEPS)[call]
    refused(TypeError, r"real|complex", function, a + 0j)


def test_hidden_values_are_neither_written_nor_compared(tmp_path):
    hidden = np.ma.masked_less(IMAGE, 0.2)
    for call in (
        lambda: image.write(tmp_path / "a.png", hidden),
        lambda: deblur.compare.make_cases(hidden),
        lambda: deblur.compare.make_cases("camera64", np.ma.masked_less(PSF, 0.1)),
        lambda: deblur.reconstruct([hidden] * 2, PSF, 0.1, stack_axis=0),
    ):
        refused(TypeError, "hidden", call)
    assert list(tmp_path.iterdir()) == []


def test_errors_say_what_an_image_and_a_psf_are():
    refused(TypeError, r"not 'disk:3': .*deblur\.psf\.parse", deblur.reconstruct, IMAGE, "disk:3")
    refused(ValueError, "with no axis named", deblur.reconstruct, IMAGE[0], PSF)
    broken = np.where(IMAGE.max() == IMAGE, np.nan, IMAGE)
    refused(ValueError, r"mask=~numpy\.isfinite\(image\)", deblur.reconstruct, broken, PSF)
    assert np.isfinite(deblur.reconstruct(broken, PSF, mask=~np.isfinite(broken))).all()


def test_sparse_matrices_and_operators_are_refused_where_arrays_are_needed():
    for operator in (deblur.Blur(PSF, SHAPE), scipy.sparse.linalg.aslinearoperator(np.eye(3))):
        refused(TypeError, r"psf is a linear operator .*array.*solve.*take", deblur.Blur, operator, SHAPE)
    refused(TypeError, r"psf is sparse \(csr_array\).*toarray", deblur.Blur, scipy.sparse.csr_array(PSF), SHAPE)
    sparse = scipy.sparse.csr_array(MATRIX)
    refused(TypeError, r"a is sparse \(csr_array\).*toarray", linalg.gauss_jordan_inverse, sparse)


SEEDED = [partial(deblur.degrade, IMAGE, PSF), partial(deblur.psf.camera_shake, 9), partial(matlab.imnoise, IMAGE)]
SEEDED += [partial(deblur.posterior_std, Problem(BLUR, 0.1), noise=0.1, method="probing")]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: deblur.Blur(PSF, 7), r"shape must be \(rows, columns\).*not 7;"),
        (lambda: deblur.choose_lambda(PSF, IMAGE), "blur must be .*not ndarray"),
        (lambda: deblur.choose_lambda(deblur.Blur(PSF, SHAPE), IMAGE, ["gcv"]), r"unknown rule \['gcv'\]"),
        (lambda: deblur.psf.box({}), "size must be a positive whole number.*not {}"),
        (lambda: deblur.psf.gaussian(3, "1"), "positive finite number, not '1'"),
        (lambda: deblur.psf.parse(PSF), r"form or file must be text, not array\("),
        (lambda: deblur.tiled(None, PSF, 1e-2), "the image must be an array, not None"),
        (lambda: deblur.tiled(np.ma.array(IMAGE, mask=IMAGE > 0.5), PSF, 1e-2), "tiles do not support mask"),
        (lambda: deblur.data.load([]), r"unknown sample image \[\]"),
        (lambda: deblur.image.write("x.png", range(3)), r"an image is .*shape \(3,\)"),
        (lambda: deblur.tiled(IMAGE, 1.0, 1e-2), r"psf must be a non-empty .* not shape \(\)"),
        (lambda: deblur.image.srgb([1j]), "light: real numbers"),
        (lambda: deblur.vector2im(np.ones(6), ("a", 2)), "positive whole number, not 'a'"),
        (lambda: deblur.VaryingBlur(PSF[None, None], 300), "not shape 300"),
        (lambda: linalg.qr(MATRIX, MATRIX), r"unknown mode array\(.*choose one of reduced"),
        (lambda: linalg.choose_qr(MATRIX), r"shape must be \(\.\.\., M, N\)"),
        (lambda: deblur.filter2matrix(PSF, 8, 8, dtype="int8"), "dtype must be 'float32' or 'float64'"),
        (lambda: linalg.damped_qr(MATRIX, None), "lam must be a finite number >= 0, not None"),
        (lambda: linalg.gauss_seidel(MATRIX, MATRIX[0], rtol="x"), "rtol must be .*'x'"),
        *((lambda call=call: call(seed="x"), "^seed must be .*'x'") for call in SEEDED),
        (lambda: deblur.psf.moffat(9, 2, "x"), "beta must be .*'x'"),
        (lambda: deblur.plan_tiles(PSF, 1e-2, (300, 300), tile=(64, np.nan)), r"tile must be .*\(64, nan\)"),
        (lambda: deblur.degrade(IMAGE, PSF, noise="poisson", level=1e30), "1e[+]30 photons at value 1 are too many"),
        (lambda: deblur.solve(IMAGE, psfs=(PSF, PSF, 1)), "psfs as a tuple must be .PSFs, positions., not 3"),
        (lambda: deblur.tiled(IMAGE, PSF, memory="8GB"), "memory must be .*'8GB'"),
        (lambda: deblur.solve(IMAGE, PSF, noise=(1, 2, 3)), r"noise must be a number, or .*, not \(1, 2, 3\)"),
        (lambda: deblur.degrade(IMAGE, PSF, noise=[1, 2]), r"the level of the noise .* must be .*\[1, 2\]"),
    ],
)
def test_arguments_of_any_kind_are_refused_by_their_names(call, words):
    refused((ValueError, TypeError), words, call)


def test_unwrapping_gives_an_array_of_the_caller_itself():
    assert unwrapped(IMAGE, "the image") is IMAGE
    assert as_real(IMAGE, "the image") is IMAGE


def test_a_mask_in_a_list_of_frames_is_seen():
    with pytest.raises(TypeError, match="2 hidden"):
        unwrapped([np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0])], "the frames")


def test_numbers_too_large_for_float64_are_refused():
    huge = np.full(4, np.finfo(np.longdouble).max)
    if huge.dtype == np.float64:
        pytest.skip("longdouble is float64 here")
    refused(ValueError, "NaN or infinite", linalg.matmul, MATRIX, huge)


@pytest.mark.parametrize(
    ("img", "options", "error", "says"),
    [
        ("cat.png", {}, TypeError, r"must be an array, not 'cat.png': deblur\.image\.read"),
        (None, {}, TypeError, "the image must be an array, not None"),
        ([[1, 2], [3]], {}, ValueError, "the image is not an array: its parts differ in length"),
        (IMAGE.astype(object), {}, TypeError, r"the image: .* dtype object: \.astype\(float\)"),
        (IMAGE + 1j, {}, TypeError, r"the image: .* dtype complex128: take \.real"),
        (IMAGE, {"channel_axis": "c"}, TypeError, "channel_axis must be a whole number, .*, not 'c'"),
        (IMAGE, {"psf": np.stack([PSF] * 2)}, ValueError, "PSF has 2 channels and the image 1: give one"),
    ],
)
def test_what_is_no_image_is_refused(img, options, error, says):
    refused(error, says, deblur.reconstruct, img, **{"psf": PSF, **options})


BLURRING = deblur.psf.gaussian(3, 0.8)
PHOTOGRAPH = np.round(127 * deblur.data.load("camera64")[:16, :18])  # whole in every dtype
IMAGES = {
    **{form: lambda a, made=made: made(a / 256) for form, made in SAME_VALUES.items()},
    "big-endian float32": lambda a: (a / 256).astype(">f4"),
    "float16": lambda a: (a / 256).astype(np.float16),
    "uint8": lambda a: a.astype(np.uint8),
    "big-endian uint16": lambda a: a.astype(">u2"),
    "int32": lambda a: (a * 2**23).astype(np.int32),
    "bool": lambda a: a > 60,
    "repeated": lambda a: np.broadcast_to(a[:, :1] / 256, a.shape),
    "list": lambda a: (a / 256).tolist(),
}


@pytest.mark.parametrize("form", IMAGES)
@pytest.mark.parametrize("method", ["auto", "tv"])
def test_an_image_may_have_any_form(form, method):
    given = IMAGES[form](PHOTOGRAPH)
    plain = deblur.image.as_float(np.asarray(given))
    narrow = plain.dtype.itemsize <= 4 or np.asarray(given).dtype.itemsize <= 2
    plain = plain.astype(np.float32 if narrow else np.float64)
    expected = deblur.reconstruct(plain, BLURRING, 0.01, method=method, boundary="zero")
    found = deblur.solve(given, BLURRING, 0.01, method=method, boundary="zero").image
    assert found.dtype == plain.dtype
    assert found.dtype.isnative
    near = 8 * np.finfo(np.float32).eps if np.asarray(given).dtype.kind in "ub" else 1e-12
    assert np.abs(found - expected).max() <= near
    restore = deblur.Deblurrer(BLURRING, plain.shape, 0.01, method=method, dtype=plain.dtype, boundary="zero")
    assert np.abs(restore(given) - expected).max() <= near


def hiding(kind, a, mask):
    """An array of this kind whose values are hidden where `mask` is True."""
    if kind == "numpy":
        return np.ma.array(a, mask=mask)
    if kind == "dask":
        return pytest.importorskip("dask.array").ma.masked_array(a, mask)
    if kind == "CCDData":
        return pytest.importorskip("astropy.nddata").CCDData(a, unit="", mask=mask)
    return pytest.importorskip("astropy.utils.masked").Masked(a, mask=mask)


@pytest.mark.parametrize("kind", ["numpy", "dask", "CCDData", "Masked"])
def test_a_masked_array_gives_the_mask(kind):
    hidden = np.zeros(PHOTOGRAPH.shape, bool)
    hidden[4, 5] = True
    given = hiding(kind, np.where(hidden, np.nan, PHOTOGRAPH / 256), hidden)
    expected = deblur.reconstruct(PHOTOGRAPH / 256, BLURRING, 0.01, method="tv", mask=hidden, boundary="zero")
    assert np.array_equal(deblur.reconstruct(given, BLURRING, 0.01, method="tv", boundary="zero"), expected)
    restore = deblur.Deblurrer(BLURRING, PHOTOGRAPH.shape, 0.01, method="tv", boundary="zero")
    assert np.array_equal(restore(given), expected)
    with pytest.raises((TypeError, ValueError), match="mask"):
        deblur.tuning.choose_lambda(deblur.Blur(BLURRING, PHOTOGRAPH.shape), given, "gcv")
    with pytest.raises(TypeError, match="psf is a masked array with"):
        deblur.reconstruct(PHOTOGRAPH, hiding(kind, BLURRING, BLURRING > 0), 0.01)


def test_a_unit_is_not_lost_without_a_word():
    units = pytest.importorskip("astropy.units")
    with pytest.warns(UserWarning, match="an array without it: in adu$"):
        found = deblur.reconstruct(PHOTOGRAPH / 256 * units.adu, BLURRING, 0.01)
    assert np.array_equal(found, deblur.reconstruct(PHOTOGRAPH / 256, BLURRING, 0.01))
    photons = PHOTOGRAPH.astype(np.uint16)
    counts = pytest.importorskip("xarray").DataArray(photons, attrs={"units": "electron"})
    with pytest.warns(UserWarning, match="in units of 65535 electron$"):
        deblur.reconstruct(counts, BLURRING, 0.01)
