"""H, and Blur, against SciPy's convolution and against each other."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal
import scipy.sparse.linalg
from refusals import refused
from scipy.signal import convolve2d

from deblur.device import asnumpy
from deblur.errors import InsufficientMemoryError
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.operators.matrix import filter2matrix

PSF_SHAPES = [(1, 1), (3, 3), (4, 2), (5, 4), (2, 7), (1, 6), (6, 1)]
SHAPES = [(9, 11), (17, 19), (7, 7), (8, 7)]
OTHERS = [((4,), (9,)), ((3, 2, 4), (7, 6, 5))]  # a line, a volume
EPS = np.finfo(np.float64).eps


def close(a, b, factor=200):
    return np.abs(np.asarray(a) - np.asarray(b)).max() <= factor * EPS * max(1, np.abs(b).max())


@pytest.mark.parametrize(("psf_shape", "shape"), [*itertools.product(PSF_SHAPES, SHAPES), *OTHERS])
def test_filter2matrix_is_scipys_convolution(rng, psf_shape, shape):
    h, f = rng.standard_normal(psf_shape), rng.standard_normal(shape)
    for mode, grow in (("same", 0), ("full", 1), ("valid", -1)):
        expected = scipy.signal.convolve(f, h, mode, method="direct")
        size = tuple(n + grow * (m - 1) for n, m in zip(shape, psf_shape, strict=True))
        for sparse in (False, True):
            matrix = filter2matrix(h, shape, size, sparse=sparse)
            assert matrix.shape == (expected.size, f.size)
            assert close(matrix @ f.ravel(), expected.ravel())


def test_filter2matrix_takes_shapes_for_sizes(rng):
    h = rng.random((3, 2))
    np.testing.assert_array_equal(filter2matrix(h, (5, 6)), filter2matrix(h, 5, 6))
    np.testing.assert_array_equal(filter2matrix(h, np.array([5, 6]), (3, 4)), filter2matrix(h, 5, 6, 3, 4))
    for sizes in [((5, 6, 7),), ((5, 6), 4), (5, (6, 7)), (5,), ((5, 6.5),)]:
        refused(ValueError, r"\(rows, columns\)|positive whole number", filter2matrix, h, *sizes)


@pytest.mark.parametrize(("psf_shape", "shape"), [*((psf, (9, 11)) for psf in PSF_SHAPES), *OTHERS])
def test_boundaries_are_scipys(rng, psf_shape, shape):
    h, f = rng.standard_normal(psf_shape), rng.standard_normal(shape)
    origin = [-1 if m % 2 == 0 else 0 for m in psf_shape]  # ndimage takes the later of two middles
    for boundary, name in (("zero", "constant"), ("periodic", "wrap"), ("reflect", "reflect")):
        expected = scipy.ndimage.convolve(f, h, mode=name, origin=origin)
        assert close(Blur(h, f.shape, boundary).forward(f), expected)


def test_antireflect_continues_straight_lines(rng):
    # f~[-i] = 2 f[0] - f[i] keeps a plane a plane: a PSF of sum one and mean zero leaves it unchanged.
    i, j = np.mgrid[:12, :15]
    plane = 2.0 + 0.3 * i - 0.7 * j
    h = rng.random((5, 3))
    h = h + h[::-1, ::-1]
    h /= h.sum()
    assert close(Blur(h, plane.shape, "antireflect").forward(plane), plane)


def test_antireflect_by_hand():
    # One axis, PSF [1, 2, 4] centred at its middle: g[0] = 4 f~[-1] + 2 f[0] + 1 f[1], f~[-1] = 2 f[0] - f[1].
    f = np.array([[3.0, 5.0, 11.0, 2.0]])
    g = Blur([[1, 2, 4]], f.shape, "antireflect").forward(f)
    assert close(g[0, 0], 4 * (2 * 3 - 5) + 2 * 3 + 5)
    assert close(g[0, 3], 4 * 11 + 2 * 2 + (2 * 2 - 11))


def test_unknown_is_valid_convolution_of_the_larger_scene(rng):
    h = rng.random((4, 5))
    blur = Blur(h, (9, 11), "unknown")
    assert blur.scene_shape == (12, 15)
    f = rng.random(blur.scene_shape)
    assert close(blur.forward(f), convolve2d(f, h, "valid"))
    # The crop is where the image lies: a PSF of one point at its centre blurs nothing.
    at = Blur(scipy.signal.unit_impulse((4, 5), blur.origin), (9, 11), "unknown")
    assert close(at.forward(f), f[at.crop])


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(
    ("psf_shape", "shapes"), [*((psf, SHAPES) for psf in PSF_SHAPES), *((psf, [one]) for psf, one in OTHERS)]
)
def test_matrix_and_map_agree_and_the_dot_test_holds(rng, boundary, psf_shape, shapes):
    h = rng.standard_normal(psf_shape)
    for shape in shapes:
        blur = Blur(h, shape, boundary)
        matrix = blur.to_sparse()
        f = rng.standard_normal((3, *blur.scene_shape))
        g = rng.standard_normal((3, *blur.image_shape))
        forward, adjoint = blur.forward(f), blur.adjoint(g)
        assert matrix.shape == blur.shape
        assert close(forward.reshape(3, -1).T, matrix @ f.reshape(3, -1).T)
        assert close(adjoint.reshape(3, -1).T, matrix.T @ g.reshape(3, -1).T)
        left, right = np.vdot(forward, g), np.vdot(f, adjoint)
        assert abs(left - right) <= 100 * EPS * np.linalg.norm(forward) * np.linalg.norm(g)
        assert np.array_equal(blur.to_dense(), matrix.toarray())
        other = filter2matrix(h, blur.scene_shape, boundary=boundary, sparse=True)
        assert abs(other - matrix).max() == 0


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_origin(rng, boundary):
    h = rng.standard_normal((3, 4))
    f9 = rng.standard_normal((9, 10))
    for origin in itertools.product(range(3), range(4)):
        blur = Blur(h, (9, 10), boundary, origin=origin)
        f = f9 if boundary != "unknown" else rng.standard_normal(blur.scene_shape)
        g = rng.standard_normal((9, 10))
        assert close(blur.forward(f).ravel(), blur.to_sparse() @ f.ravel())
        assert close(blur.adjoint(g).ravel(), blur.to_sparse().T @ g.ravel())
        if boundary in ("periodic", "reflect"):
            # ndimage's origin counts from the middle, and it turns the kernel round before it shifts.
            mode = {"periodic": "wrap", "reflect": "reflect"}[boundary]
            shift = (origin[0] - 3 // 2, origin[1] - 4 // 2)
            expected = scipy.ndimage.correlate(f, h[::-1, ::-1], mode=mode, origin=(-(shift[0] + 0), -(shift[1] + 1)))
            assert close(blur.forward(f), expected)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_separable_blur_is_a_kronecker_product(rng, boundary):
    h = np.outer(rng.random(4), rng.random(3))
    blur = Blur(h, (9, 11), boundary)
    column, row = blur.factors
    assert close(np.outer(column, row), h)
    c, r = blur.axis_matrices()
    assert close(np.kron(c, r), blur.to_dense())
    assert Blur(rng.random((4, 3)), (9, 11), boundary).factors is None


def test_point_symmetry_is_measured_about_the_origin():
    odd = np.array([[1, 2, 3], [4, 5, 4], [3, 2, 1.0]])
    assert Blur(odd, (9, 9)).point_symmetric
    assert not Blur(odd, (9, 9), origin=(0, 1)).point_symmetric
    assert not Blur([[1, 2, 3.0]], (9, 9)).point_symmetric
    assert not Blur(np.ones((2, 2)), (9, 9)).point_symmetric  # no centre pixel
    assert Blur(np.pad(odd, ((0, 1), (0, 1))), (9, 9), origin=(1, 1)).point_symmetric


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_normal_is_never_claimed_wrongly(rng, boundary):
    for h in (np.ones((3, 3)), rng.random((3, 2)), np.array([[1, 2, 3], [4, 5, 4], [3, 2, 1.0]])):
        blur = Blur(h, (7, 8), boundary)
        if blur.normal:
            matrix = blur.to_dense()
            assert close(matrix @ matrix.T, matrix.T @ matrix)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_it_is_a_scipy_linear_operator(rng, boundary):
    blur = Blur(rng.random((3, 4)), (6, 7), boundary)
    operator = scipy.sparse.linalg.aslinearoperator(blur)
    x, y = rng.random(blur.shape[1]), rng.random(blur.shape[0])
    dense = blur.to_dense()
    assert close(operator.matvec(x), dense @ x)
    assert close(operator.rmatvec(y), dense.T @ y)
    assert close(operator.matmat(np.stack([x, 2 * x], 1)), dense @ np.stack([x, 2 * x], 1))
    assert close(operator.H @ np.stack([y, -y], 1), dense.T @ np.stack([y, -y], 1))
    assert close(blur @ x, dense @ x)
    assert close(blur @ x[:, None], dense @ x[:, None])
    solution = scipy.sparse.linalg.lsqr(blur, dense @ x, atol=1e-12, btol=1e-12, iter_lim=5000)[0]
    assert np.linalg.norm(dense @ solution - dense @ x) <= 1e-6 * np.linalg.norm(dense @ x)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_transposes_and_products_from_the_left(rng, boundary, dtype):
    blur = Blur(rng.standard_normal((3, 4)), (6, 7), boundary)
    dense = blur.to_dense()
    x, y = rng.random(blur.shape[1]).astype(dtype), rng.random(blur.shape[0]).astype(dtype)
    rows, columns = np.stack([y, -2 * y]), np.stack([y, -2 * y], 1)
    factor = 200 if dtype == np.float64 else 2e11
    for turned in (blur.T, blur.H):
        assert turned.shape == blur.shape[::-1]
        assert close(turned @ y, dense.T @ y, factor)
        assert close(turned @ columns, dense.T @ columns, factor)
        assert close(x @ turned, x @ dense.T, factor)
        assert turned.T is blur
        assert (turned @ y).dtype == dtype
    assert close(y @ blur, y @ dense, factor)
    assert close(rows @ blur, rows @ dense, factor)
    # The dot test, as SciPy and PyLops make it.
    left, right = np.vdot(y, blur.matvec(x)), np.vdot(blur.rmatvec(y), x)
    scale = np.linalg.norm(dense) * np.linalg.norm(x) * np.linalg.norm(y)
    assert abs(left - right) <= 100 * np.finfo(dtype).eps * scale
    assert close(blur.T @ (blur @ x), dense.T @ (dense @ x), factor)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_solvers_sums_and_products_of_scipy(rng, boundary):
    blur = Blur(rng.random((3, 4)), (6, 7), boundary)
    dense, n = blur.to_dense(), blur.shape[1]
    x, y = rng.random(n), rng.random(blur.shape[0])
    h = scipy.sparse.linalg.aslinearoperator(blur)
    normal = h.T @ h + 0.1 * scipy.sparse.linalg.aslinearoperator(np.eye(n))
    assert close(h.T @ y, dense.T @ y)
    assert close((2 * h - h) @ x, dense @ x)
    assert close(blur * x, dense @ x)
    assert close(normal @ x, dense.T @ (dense @ x) + 0.1 * x, 200)
    solution, failed = scipy.sparse.linalg.cg(normal, normal @ x, rtol=1e-12)
    assert not failed
    assert np.linalg.norm(solution - x) <= 1e-8 * np.linalg.norm(x)
    found = scipy.sparse.linalg.svds(blur, k=3, return_singular_vectors=False)
    np.testing.assert_allclose(np.sort(found)[::-1], np.linalg.svd(dense)[1][:3], rtol=1e-9)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_pylops_may_wrap_it(rng, boundary, dtype):
    blur = Blur(rng.random((3, 4)), (6, 7), boundary)
    x, y = rng.random(blur.shape[1]).astype(dtype), rng.random(blur.shape[0]).astype(dtype)
    # What it calls of what it wraps.
    assert (blur._matvec(x) == blur @ x).all()
    assert (blur._rmatvec(y) == blur.T @ y).all()
    assert (blur._matmat(x[:, None]) == blur @ x[:, None]).all()
    assert (blur._rmatmat(y[:, None]) == blur.T @ y[:, None]).all()


def test_products_refuse_what_is_not_theirs():
    blur = Blur(np.ones((3, 3)), (6, 7))
    for bad in (np.ones(41), np.ones((6, 7)), np.ones((2, 42, 3)), np.float64(1.0)):
        for product in (blur.__matmul__, blur.matvec, blur.rmatvec, blur.T.matvec):
            refused(ValueError, r"42 x 42.*\(42,\).*forward", product, bad)
    with pytest.raises(ValueError, match="42"):
        np.ones(41) @ blur


def test_bytes_and_truth_values_are_numbers(rng):
    blur, f = Blur(rng.random((3, 3)), (6, 7), "reflect"), rng.integers(0, 2, (6, 7))
    for dtype in (np.uint8, bool):
        assert blur.forward(f.astype(dtype)).dtype == np.float64
        assert close(blur.forward(f.astype(dtype)), blur.forward(f.astype(np.float64)))


def test_blurs_compare_by_value_and_pickle(rng):
    h = rng.random((3, 4))
    blur = Blur(h, (6, 7), "reflect")
    f = rng.random((6, 7))
    before = blur.forward(f)
    assert blur == Blur(h.copy(), (6, 7), "reflect")
    assert len({blur, Blur(h, (6, 7), "reflect")}) == 1
    others = (
        Blur(h, (6, 7), "zero"), Blur(h, (6, 8), "reflect"), Blur(h, (6, 7), "reflect", origin=(0, 0)),
        Blur(h.reshape(4, 3), (6, 7), "reflect"), Blur(h + 1e-16, (6, 7), "reflect"), "blur",
    )  # fmt: skip
    for other in others:
        assert blur != other
    for again in (pickle.loads(pickle.dumps(blur)), copy.deepcopy(blur)):
        assert again == blur
        assert again.boundary.continued
        assert np.array_equal(again.forward(f), before)
    with pytest.raises(ValueError, match="read-only"):
        blur.psf[0, 0] = 2.0


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("psf_shape", "shape"), [((5, 4), (33, 17)), *OTHERS])
def test_float32_stays_float32_on_both_devices(xp, rng, boundary, psf_shape, shape):
    blur = Blur(rng.random(psf_shape), shape, boundary)
    f = rng.random(blur.scene_shape)
    single = blur.forward(xp.asarray(f.astype(np.float32)))
    assert single.dtype == np.float32
    double = blur.forward(xp.asarray(f))
    assert double.dtype == np.float64
    assert close(asnumpy(double).ravel(), blur.to_sparse() @ f.ravel())
    assert close(asnumpy(blur.adjoint(double)).ravel(), blur.to_sparse().T @ asnumpy(double).ravel())
    assert float(abs(single - double).max()) <= 50 * np.finfo(np.float32).eps * float(abs(double).max())
    assert blur.adjoint(single).dtype == np.float32


def test_transfer_holds_the_eigenvalues_of_the_periodic_blur(rng):
    blur = Blur(rng.random((3, 4)), (6, 8), "periodic")
    half = blur.transfer()
    expected = np.linalg.eigvals(blur.to_dense())
    distance = np.abs(np.fft.fft2(np.fft.irfft2(half, s=(6, 8))).ravel()[:, None] - expected[None, :])
    assert distance.min(axis=1).max() <= 1e-12
    assert distance.min(axis=0).max() <= 1e-12


@pytest.mark.parametrize(
    ("psf", "message"),
    [
        (np.ones(3), "2-D"),
        (np.ones((0, 3)), "non-empty"),
        (np.array([[1, np.nan]]), "NaN"),
        (np.array([[1, np.inf]]), "infinite"),
        (np.zeros((3, 3)), "zero everywhere"),
        (np.ones((9, 3)), "larger than the image"),
    ],
)
def test_bad_psf(psf, message):
    refused(ValueError, message, Blur, psf, (8, 8))


def test_other_bad_input():
    psf = np.ones((3, 3))
    refused(ValueError, "unknown boundary 'mirror'.*reflect", Blur, psf, (8, 8), "mirror")
    refused(ValueError, "rows, columns", Blur, psf, (8, 8, 3))
    refused(ValueError, f"an image of 8 x {10**30} pixels does not fit any", Blur, psf, (8, 10**30))
    refused(ValueError, "origin", Blur, psf, (8, 8), origin=(3, 0))
    refused(ValueError, "shape", Blur(psf, (8, 8)).forward, np.ones((8, 9)))
    refused(ValueError, "not separable", Blur(np.eye(3), (8, 8)).axis_matrices)
    refused(ValueError, "antireflect", filter2matrix, np.ones((1, 9)), 1, 3, boundary="antireflect")
    words = r"the PSF \(3 x 3\) is larger than the scene \(9 x 2\), of which boundary 'unknown' leaves"
    refused(ValueError, words, filter2matrix, psf, (9, 2), boundary="unknown")
    for origin in ((10, 10), (-1, 0), (0, 3), (0,)):
        refused(ValueError, r"origin must be an index into the 3 x 3 PSF", filter2matrix, psf, 8, 8, origin=origin)
        refused(ValueError, r"origin must be an index into the 3 x 3 PSF", Blur, psf, (8, 8), origin=origin)
    for origin in ((1.7, 1), 1, "ab", (True, 1)):
        refused(ValueError, "a whole number for each axis", filter2matrix, psf, 8, 8, origin=origin)


def test_a_dense_matrix_that_cannot_fit_is_refused_with_figures():
    with pytest.raises(InsufficientMemoryError, match=r"10485\d* x 10485\d*.*TiB.*free.*sparse") as caught:
        filter2matrix(np.ones((3, 3)), 1024, 1024)
    assert caught.value.needed == 8 * 2**40
    assert caught.value.free < caught.value.needed
    refused(InsufficientMemoryError, "GiB", Blur(np.ones((3, 3)), (1024, 1024)).to_dense)


def test_large_volumes_are_transformed_slice_by_slice(rng):
    psf, f = rng.random((3, 5, 7)), rng.standard_normal((2, 20, 120, 130))
    blur = Blur(psf, f.shape[1:], "zero")
    seen = blur.forward(f)
    for found, of, h in ((seen, f, psf), (blur.adjoint(seen), seen.copy(), np.flip(psf))):
        expected = scipy.signal.fftconvolve(of, h[None], mode="same", axes=(1, 2, 3))
        assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("boundary", ["zero", "reflect", "unknown"])
def test_a_volumes_memory_may_be_that_of_its_product(rng, boundary):
    blur = Blur(rng.random((3, 4, 5)), (9, 8, 7), boundary)
    g = blur.forward(rng.random((2, 2, *blur.scene_shape)))
    np.testing.assert_array_equal(blur.adjoint(g.copy()), blur.adjoint(g, overwrite=True))
