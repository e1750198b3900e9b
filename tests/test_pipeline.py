"""`reconstruct` and `solve` with the linear formula, against a float64 dense solution."""

import itertools
from functools import reduce

import numpy as np
import pytest
import scipy.ndimage  # noqa: F401  its import is part of no prediction
from problems import Spoiled

import deblur
from deblur import BOUNDARIES, Blur
from deblur.methods import METHODS, Method
from deblur.problem import Problem

LINEAR = [m.name for m in METHODS.values() if m.linear]
#: The iterations that stop at a residual, and the one requested of them (None: their own default).
TIGHT = {"pcg": None, "hybrid-lsqr": 1e-12}
#: Relative errors of the methods that are not accurate to rounding times the condition number. Gauss-Jordan elimination
#: is not backward stable (Peters & Wilkinson 1975): it loses some hundred times more.
ERRORS = {"pcg": 1e-7, "hybrid-lsqr": 1e-7, "gauss-seidel": 1e-8, "gauss-jordan": 1e-7}
ANSWERS = {}  # of `dense_solution`, which all methods are compared with
TRANSFORMS = {"fft": "periodic", "dct": "reflect"}  # of other boundaries, boundary "zero" is used


def psfs(rng, axes=2):
    def outer(*lines):
        return np.array(reduce(np.multiply.outer, lines[:axes]))

    symmetric = outer([1, 4, 6, 4, 1], [1, 2, 1], [1, 2, 1])
    tiny = outer(*[[1, 2, 1]] * 3)
    separable = outer(rng.random(4), rng.random(3), rng.random(2))
    any_psf = rng.random((3, 4, 2)[:axes])
    kinds = {"symmetric": symmetric, "tiny": tiny, "separable": separable, "any": any_psf}
    return {name: h / h.sum() for name, h in kinds.items()}


def dense_solution(g, blur, lam, formula):
    """The formula, written out with NumPy's general solver on the dense matrix and refined in long double."""
    h = blur.to_dense()
    a = h @ h.T + lam * np.eye(len(h))
    h = h.astype(np.longdouble)
    b = g.ravel() if formula == "tikhonov" else h.T @ g.ravel()
    x = np.zeros(len(a), np.longdouble)
    for _ in range(3):
        x += np.linalg.solve(a, (b - h @ (h.T @ x) - lam * x).astype(float))
    return (h.T @ x if formula == "tikhonov" else x).astype(float).reshape(blur.scene_shape)[blur.crop]


@pytest.mark.parametrize("formula", ["tikhonov", "hht"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.slow) if m == "pcg" else m for m in LINEAR])
def test_every_method_equals_the_dense_solution(rng, method, boundary, formula):
    served = 0
    options = {"method": method, "boundary": boundary, "formula": formula}
    shapes = ((9, 7), (1, 8), (8, 11), (9,), (5, 4, 6))
    cases = [(shape, psf) for shape in shapes for psf in psfs(rng, len(shape)).items()]
    # Each PSF and each shape meets each λ; a formula takes half of the PSFs of a shape, and the others of the next.
    for i, ((shape, (name, psf)), lam) in enumerate(zip(cases, itertools.cycle((1e-1, 1e-3, 1e-6)))):
        if (i + i // 4) % 2 == (formula == "hht"):
            continue
        if shape[0] < psf.shape[0]:
            psf = psf[:1] / psf[:1].sum()
        blur = Blur(psf, shape, boundary)
        g = rng.random(shape)
        refusal = METHODS[method].refuses(Problem(blur, lam, formula=formula))
        if refusal is not None:
            with pytest.raises(deblur.MethodError) as caught:
                deblur.reconstruct(g, psf, lam, **options)
            assert refusal in str(caught.value)
            continue
        served += 1
        result = deblur.solve(g, psf, lam, **options, rtol=TIGHT.get(method), prior="zero")
        at = boundary, formula, lam, shape, psf.tobytes(), g.tobytes()
        expected = ANSWERS[at] = ANSWERS[at] if at in ANSWERS else dense_solution(g, blur, lam, formula)
        error = np.linalg.norm(result.image - expected) / np.linalg.norm(expected)
        condition = (blur.norm_bound**2 + lam) / lam
        assert error <= ERRORS.get(method, 16 * np.finfo(float).eps * condition), (shape, name, lam)
        assert result.status.ok
    if boundary == "zero" and formula == "tikhonov" and method not in ("fft", "dct"):
        assert served > 0


@pytest.mark.parametrize("method", ["cholesky", "gauss-jordan", "gauss-seidel"])
@pytest.mark.parametrize("formula", ["tikhonov", "hht"])
def test_the_inverse_gives_the_same_image(rng, method, formula):
    psf, g = psfs(rng)["any"], rng.random((9, 12))
    plain = deblur.reconstruct(g, psf, 1e-2, method="lu", formula=formula, boundary="zero")
    inverted = deblur.reconstruct(g, psf, 1e-2, method=method, formula=formula, inverse=True, boundary="zero")
    assert np.linalg.norm(plain - inverted) <= 1e-8 * np.linalg.norm(plain)


@pytest.mark.parametrize(("psf", "differ"), [("symmetric", False), ("any", True)])
def test_the_two_formulas_differ_exactly_when_the_blur_is_not_normal(rng, psf, differ):
    psf, g = psfs(rng)[psf], rng.random((12, 12))
    one, two = (deblur.reconstruct(g, psf, 1e-3, formula=f, boundary="zero") for f in ("tikhonov", "hht"))
    distance = np.linalg.norm(one - two) / np.linalg.norm(one)
    assert distance >= 1e-2 if differ else distance <= 1e-9


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_auto_takes_a_method_that_serves_and_says_why(rng, boundary):
    psf, g = psfs(rng)["any"], rng.random((20, 23))
    result = deblur.solve(g, psf, 1e-3, boundary=boundary, prior="zero")
    blur = Blur(psf, g.shape, boundary)
    choice = deblur.choose_method(blur, 1e-3)
    assert result.method == choice.method
    assert result.reason == choice.reason
    assert boundary in result.reason
    assert {choice.method, *choice.others, *choice.refused} == set(LINEAR)
    expected = dense_solution(g, blur, 1e-3, "tikhonov")
    assert np.linalg.norm(result.image - expected) <= 1e-5 * np.linalg.norm(expected)


def test_verification_measures_the_residual_itself(rng, monkeypatch):
    psf, g = psfs(rng)["any"], rng.random((12, 9))
    lam = 1e-2
    result = deblur.solve(g, psf, lam, method="lu", boundary="zero")
    h, f = Blur(psf, g.shape).to_dense(), result.image.ravel()
    b = h.T @ g.ravel()
    system = h.T @ h + lam * np.eye(len(h))
    honest = Method.prepare
    monkeypatch.setattr(Method, "prepare", lambda self, p, **how: Spoiled(honest(self, p, **how), lambda x: 1.01 * x))
    wrong = deblur.solve(g, psf, lam, method="lu", check=False, boundary="zero")
    expected = np.linalg.norm(b - system @ (1.01 * f)) / np.linalg.norm(b)
    assert wrong.residual == pytest.approx(expected, rel=1e-8)
    assert wrong.status is deblur.Status.INACCURATE
    assert result.residual <= 1e-12
    with pytest.raises(deblur.ConvergenceError, match="larger λ") as caught:
        deblur.solve(g, psf, lam, method="lu", boundary="zero")
    assert caught.value.result.residual == wrong.residual
    data_residual = np.linalg.norm(g.ravel() - h @ f) / np.linalg.norm(g)
    assert result.data_residual == pytest.approx(data_residual, rel=1e-8)
    assert np.allclose(result.residual_image.ravel(), g.ravel() - h @ f, atol=1e-12)


def test_where_float32_is_not_enough_float64_is_computed_with(rng):
    img = rng.integers(0, 256, (16, 16)).astype(np.uint8)
    # A box of 4 has frequencies that it takes away: HHᵀ + λI is singular to float32.
    blur = Blur(deblur.psf.box(4), img.shape, "periodic")
    expected = dense_solution(img / np.float32(255), blur, 1e-11, "tikhonov")
    restore = deblur.Deblurrer(blur.psf, img.shape, 1e-11, boundary="periodic")
    for given in (img, img, img.astype(np.float32) / 255):
        result = restore.solve(given)
        assert result.image.dtype == np.float32
        assert np.linalg.norm(result.image - expected) <= 1e-4 * np.linalg.norm(expected)
        assert "computed    in float64: with so small a λ float32" in str(result)
    with pytest.raises(TypeError, match="float16"):
        deblur.solve(img, deblur.psf.box(4), 1e-3, dtype="float16")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((24, 22, 3), {"channel_axis": -1}),
        ((5, 24, 22), {"stack_axis": 0}),
        ((2, 24, 3, 22), {"stack_axis": 0, "channel_axis": 2}),
        ((3, 6, 24, 22), {"stack_axis": 0}),
    ],
)
@pytest.mark.parametrize(("together", "lam"), [(1, 1e-2), (2 * 24 * 22, 1e-2), (1, "auto")])
def test_an_image_solved_in_parts_is_the_same_image(rng, monkeypatch, shape, axes, together, lam):
    img, psf = rng.random(shape, np.float32), deblur.psf.motion(5, 30)
    if len(shape) - len(axes) == 3:
        psf = np.multiply.outer([0.25, 0.5, 0.25], psf)
    whole = deblur.solve(img, psf, lam, boundary="unknown", **axes)
    monkeypatch.setattr("deblur.methods.TOGETHER", together)
    parts = deblur.solve(img, psf, lam, boundary="unknown", **axes)
    assert parts.lam == pytest.approx(whole.lam, rel=1e-4)
    assert np.allclose(parts.image, whole.image, atol=1e-4)
    assert np.allclose(parts.residual_image, whole.residual_image, atol=1e-4)
    assert parts.data_residual == pytest.approx(whole.data_residual, rel=1e-4)
    assert parts.residual == pytest.approx(whole.residual, abs=1e-5)
    assert parts.status is whole.status


@pytest.mark.parametrize("method", LINEAR)
def test_float32_stays_float32_and_is_as_good_as_float32_can_be(rng, method):
    psf, lam = psfs(rng)["tiny"], 1e-2
    boundary = TRANSFORMS.get(method, "zero")
    g = rng.random((24, 21))
    exact = dense_solution(g, Blur(psf, g.shape, boundary), lam, "tikhonov")
    image = deblur.reconstruct(g.astype(np.float32), psf, lam, method=method, boundary=boundary)
    assert image.dtype == np.float32
    # The condition number of HHᵀ + λI is about 1/λ; ten times eps over λ leaves room for the norm of n.
    assert np.linalg.norm(image - exact) <= (10 * np.finfo(np.float32).eps / lam) * np.linalg.norm(exact)


@pytest.mark.parametrize("space", [(14, 11), (11,), (7, 6, 5)])
def test_colour_and_stacks_equal_their_parts(rng, space):
    psf, options = psfs(rng, len(space))["any"], {"method": "cholesky", "boundary": "zero"}
    stack = rng.random((3, *space))
    parts = np.stack([deblur.reconstruct(frame, psf, 1e-3, **options) for frame in stack])
    assert np.allclose(deblur.reconstruct(stack, psf, 1e-3, stack_axis=0, **options), parts, atol=1e-11)
    colour = np.moveaxis(stack, 0, -1)
    restored = deblur.reconstruct(colour, psf, 1e-3, channel_axis=-1, **options)
    assert np.allclose(restored, np.moveaxis(parts, 0, -1), atol=1e-11)
    movie = np.stack([colour, 2 * colour])
    both = deblur.reconstruct(movie, psf, 1e-3, channel_axis=-1, stack_axis=0, **options)
    assert both.shape == movie.shape
    assert np.allclose(both[1], 2 * np.moveaxis(parts, 0, -1), atol=1e-10)


@pytest.mark.parametrize(
    ("image", "psf", "axes", "words"),
    [
        ((9, 20, 22), (5, 5), {}, r"stack of frames.*stack_axis=0.*volume, give a 3-D PSF"),
        ((20, 22), (3, 5, 5), {}, r"3 channels and the image 1.*for the PSF of a volume"),
        ((20, 22), (5,), {}, r"one left, a line, for a 1-D PSF, not 2.*stack_axis=0.*2-D PSF"),
        ((2, 9, 20, 22), (3, 5, 5), {}, r"three left, a volume, for a 3-D PSF, not 4"),
        ((9, 20, 22), (2, 3, 5, 5), {}, r"4 axes, shape \(2, 3, 5, 5\)"),
        ((9, 20, 22), (11, 5, 5), {"boundary": "zero"}, r"\(11 x 5 x 5\) is larger than the image \(9 x 20 x 22\)"),
        ((9, 20, 22), (11, 5, 23), {"boundary": "unknown"}, r"\(11 x 5 x 23\) is larger than .*; only slices"),
        ((9, 20, 22), (3, 5, 5), {"origin": (2, 2)}, "index into the 3 x 5 x 5 PSF"),
        ((9, 20, 22), (3, 5, 5), {"method": "banded"}, "only images of two axes, and this problem has 3"),
        ((22,), (5,), {"mask": "auto"}, "for a line give the mask"),
    ],
)
def test_what_a_psf_cannot_blur_is_refused_with_what_would_work(image, psf, axes, words):
    with pytest.raises((ValueError, deblur.MethodError), match=words):
        deblur.solve(np.ones(image), np.ones(psf) / np.prod(psf), 1e-2, **axes)


def test_three_psfs_are_those_of_colours_only_if_the_image_has_two_axes_of_space(rng):
    psf, colour = rng.random((3, 2, 3)), rng.random((12, 11, 3))
    by_colour = [deblur.reconstruct(colour[..., c], psf[c], 0.1, boundary="zero", prior="zero") for c in range(3)]
    for restore in (deblur.reconstruct, lambda g, h, lam, **o: deblur.Deblurrer(h, (12, 11), lam, **o)(g)):
        found = restore(colour, psf, 0.1, boundary="zero", prior="zero", method="hybrid-lsqr", rtol=1e-12)
        assert np.abs(found - np.stack(by_colour, -1)).max() <= 1e-9
    volume = rng.random((12, 11, 4))  # by itself it looks like colour with opacity
    expected = dense_solution(volume, Blur(psf, volume.shape), 0.1, "tikhonov")
    restored = deblur.Deblurrer(psf, volume.shape, 0.1, boundary="zero")(volume)
    assert np.abs(restored - expected).max() <= 1e-6
    restored = deblur.reconstruct(volume[None], psf, 0.1, boundary="zero", stack_axis=0)
    assert np.abs(restored - expected).max() <= 1e-6


def test_a_view_gives_the_same_image_and_is_left_unchanged(rng):
    psf, wide = psfs(rng)["any"], rng.random((20, 26))
    view, before = wide[::2, ::-2].T, wide.copy()
    expected = deblur.reconstruct(view.copy(), psf, 1e-2, boundary="zero")
    assert np.allclose(deblur.reconstruct(view, psf, 1e-2, boundary="zero"), expected, atol=1e-12)
    assert np.array_equal(wide, before)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("formula", ["tikhonov", "hht"])
def test_a_smooth_prior_minimises_what_it_says(rng, boundary, formula):
    if formula == "hht" and boundary == "unknown":
        return
    psf, g, lam = psfs(rng)["any"], rng.random((12, 11)), 1e-2
    result = deblur.solve(g, psf, lam, boundary=boundary, formula=formula, prior="smooth", method="cholesky")
    blur = Blur(psf, g.shape, boundary)
    prior = deblur.tuning.prior_scene(blur, g)
    expected = prior[blur.crop] + dense_solution(g - blur.forward(prior), blur, lam, formula)
    assert np.linalg.norm(result.image - expected) <= 1e-9 * np.linalg.norm(expected)
    assert result.prior == "smooth"
    assert result.residual <= 1e-10
    data_residual = np.linalg.norm(result.residual_image) / np.linalg.norm(g)
    assert result.data_residual == pytest.approx(data_residual, rel=1e-10)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("shape", [(31,), (12, 11), (9, 8, 7)])
def test_the_data_residual_is_that_of_the_residual_image(xp, rng, shape, boundary):
    g = xp.asarray(rng.random(shape))
    result = deblur.solve(g, psfs(rng, len(shape))["any"], 1e-2, boundary=boundary)
    assert result.data_residual == pytest.approx(float(xp.linalg.norm(result.residual_image) / xp.linalg.norm(g)))


@pytest.mark.parametrize("method", ["cholesky", "gauss-jordan", "lu", "banded", "qr"])
def test_lambda_zero_with_a_regular_matrix_inverts_the_blur(rng, method):
    psf = np.array([[0.0, 0.1, 0], [0.1, 1.0, 0.2], [0, 0.1, 0]])
    f = rng.random((12, 13))
    image = deblur.reconstruct(Blur(psf, f.shape).forward(f), psf, 0, method=method, boundary="zero")
    assert np.linalg.norm(image - f) <= 1e-10 * np.linalg.norm(f)


@pytest.mark.parametrize("method", [m for m in LINEAR if m != "dst"])
def test_lambda_zero_with_a_singular_matrix_is_an_error_not_an_image(method):
    # [1, 1, 1] on 5 pixels with zeros outside: eigenvalue 1 + 2 cos(pi k / 6) is zero for k = 4. The transforms of 6
    # pixels have the frequency w = 2 pi / 3, at which 1 + 2 cos(w) is zero.
    psf, n = np.ones((1, 3)) / 3, 6 if method in TRANSFORMS else 5
    errors = (deblur.SingularMatrixError, deblur.MethodError, deblur.ConvergenceError)
    with pytest.raises(errors[:1] if method in TRANSFORMS else errors, match="λ"):
        deblur.reconstruct(np.eye(n) + 1, psf, 0.0, method=method, boundary=TRANSFORMS.get(method, "zero"))


@pytest.mark.parametrize("method", ["pcg", "gauss-seidel", "hybrid-lsqr"])
def test_an_iteration_cut_short_is_never_returned_as_success(rng, method):
    psf, g = deblur.psf.disk(7), rng.random((40, 40))
    with pytest.raises(deblur.ConvergenceError, match="max_iterations") as caught:
        deblur.reconstruct(g, psf, 1e-6, method=method, max_iterations=2, boundary="zero")
    assert caught.value.result.status is deblur.Status.NOT_CONVERGED
    assert caught.value.result.image.shape == g.shape
    result = deblur.solve(g, psf, 1e-6, method=method, max_iterations=2, check=False, boundary="zero")
    assert not result.status.ok


@pytest.mark.parametrize("method", ["pcg", "gauss-seidel", "hybrid-lsqr"])
def test_the_callback_gets_every_iteration(rng, method):
    calls, options = [], {"method": method, "boundary": "zero"}
    result = deblur.solve(
        rng.random((15, 15)), psfs(rng)["any"], 1e-3, callback=lambda *call: calls.append(call), **options
    )
    counts = [i for i, _ in calls]
    assert sorted(counts) == counts
    assert set(range(1, result.iterations + 1)) <= set(counts)
    assert counts[-1] == result.iterations
    assert calls[-1][1] < calls[0][1]


def test_a_matrix_that_will_not_fit_is_refused_before_it_is_allocated():
    big = np.zeros((2000, 2000))
    with pytest.raises(deblur.InsufficientMemoryError, match="free.*pcg"):
        deblur.reconstruct(big, np.ones((3, 3)) / 9, 1e-3, method="cholesky", boundary="zero")


def test_an_image_of_one_pixel():
    one = deblur.reconstruct(np.array([[3.0]]), np.array([[2.0]]), 1.0, boundary="zero")
    assert one == pytest.approx(np.array([[2 * 3 / (4 + 1)]]))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_without_blur_and_noise_the_image_is_returned(boundary):
    g = deblur.data.load("camera")[100:140, 200:240]
    assert np.abs(deblur.solve(g, deblur.psf.delta(1), boundary=boundary).image - g).max() <= 1e-6


@pytest.mark.parametrize("lam", ["auto", 1e-3])
@pytest.mark.parametrize("method", METHODS)
def test_black_stays_black(method, lam):
    boundary = {"fft": "periodic", "dst": "zero"}.get(method, "reflect")
    result = deblur.solve(np.zeros((16, 18)), deblur.psf.gaussian(3, 0.8), lam, method=method, boundary=boundary)
    assert result.status.ok
    assert not result.image.any()
