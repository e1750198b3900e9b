"""reconstruct, solve and Deblurrer against a float64 dense solve, and what bad input gets."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.ndimage  # noqa: F401  what is loaded already is in nobody's prediction

import deblur
from deblur import BOUNDARIES, Blur
from deblur.methods import METHODS, Method
from deblur.problem import Problem

LINEAR = [m.name for m in METHODS.values() if m.linear]
LAMBDAS = (1e-1, 1e-3, 1e-6)
#: The matrix-free iterations, which stop at a residual, and the one asked of them (None: their own default).
TIGHT = {"pcg": None, "hybrid-lsqr": 1e-12}
#: Relative errors of the methods that are no more than that. Iterations stop somewhere. Gauss-Jordan elimination is not
#: backward stable (Peters & Wilkinson 1975): it loses some hundred times what the condition number explains.
ERRORS = {"pcg": 1e-7, "hybrid-lsqr": 1e-7, "gauss-seidel": 1e-8, "gauss-jordan": 1e-7}


def psfs(rng):
    symmetric = np.outer([1, 4, 6, 4, 1], [1, 2, 1]) / 64.0
    separable = np.outer(rng.random(4), rng.random(3))
    any_psf = rng.random((3, 4))
    return {
        "symmetric": symmetric,
        "tiny": np.outer([1, 2, 1], [1, 2, 1]) / 16,
        "separable": separable / separable.sum(),
        "any": any_psf / any_psf.sum(),
    }


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
@pytest.mark.parametrize("method", LINEAR)
def test_every_method_equals_the_dense_solution(rng, method, boundary, formula):
    served = 0
    for shape in ((9, 7), (1, 8), (10, 13)):
        for name, psf in psfs(rng).items():
            if shape[0] < psf.shape[0]:
                psf = psf[:1] / psf[:1].sum()
            blur = Blur(psf, shape, boundary)
            g = rng.random(shape)
            for lam in LAMBDAS:
                refusal = METHODS[method].refuses(Problem(blur, lam, formula=formula))
                if refusal is not None:
                    with pytest.raises(deblur.MethodError) as caught:
                        deblur.reconstruct(g, psf, lam, method=method, boundary=boundary, formula=formula)
                    assert refusal in str(caught.value)
                    continue
                served += 1
                result = deblur.solve(
                    g,
                    psf,
                    lam,
                    method=method,
                    boundary=boundary,
                    formula=formula,
                    rtol=TIGHT.get(method),
                    prior="zero",
                )
                expected = dense_solution(g, blur, lam, formula)
                error = np.linalg.norm(result.image - expected) / np.linalg.norm(expected)
                stable = (
                    16 * np.finfo(float).eps * (blur.norm_bound**2 + lam) / lam
                )  # rounding times condition
                assert error <= ERRORS.get(method, stable), (
                    method,
                    boundary,
                    formula,
                    shape,
                    name,
                    lam,
                )
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


def test_the_two_formulas_differ_exactly_when_the_blur_is_not_normal(rng):
    g = rng.random((12, 12))
    same = [
        deblur.reconstruct(g, psfs(rng)["symmetric"], 1e-3, formula=f, boundary="zero")
        for f in ("tikhonov", "hht")
    ]
    assert np.linalg.norm(same[0] - same[1]) <= 1e-9 * np.linalg.norm(same[0])
    other = [
        deblur.reconstruct(g, psfs(rng)["any"], 1e-3, formula=f, boundary="zero") for f in ("tikhonov", "hht")
    ]
    assert np.linalg.norm(other[0] - other[1]) >= 1e-2 * np.linalg.norm(other[0])


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


def test_the_judge_measures_the_residual_itself(rng, monkeypatch):
    psf, g = psfs(rng)["any"], rng.random((12, 9))
    lam = 1e-2
    result = deblur.solve(g, psf, lam, method="lu", boundary="zero")
    h, f = Blur(psf, g.shape).to_dense(), result.image.ravel()
    b = h.T @ g.ravel()
    system = h.T @ h + lam * np.eye(len(h))
    # A worse image must be judged worse, whatever its method says: spoil one and compare.
    honest = Method.prepare

    class Spoiled:
        def __init__(self, factor):
            self.factor = factor

        def solve(self, g, start=None):
            solution = self.factor.solve(g, start)
            return replace(solution, scene=1.01 * solution.scene)

    monkeypatch.setattr(Method, "prepare", lambda self, problem, **how: Spoiled(honest(self, problem, **how)))
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


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_integers_are_scaled_as_img_as_float_does(rng, dtype):
    from skimage.util import img_as_float

    img = rng.integers(0, np.iinfo(dtype).max, (12, 10), endpoint=True).astype(dtype)
    psf = psfs(rng)["symmetric"]
    exact = deblur.reconstruct(img_as_float(img), psf, 1e-2, boundary="zero")
    image = deblur.reconstruct(img, psf, 1e-2, boundary="zero", dtype="float64")
    assert image.dtype == np.float64
    assert np.allclose(image, exact, atol=1e-14)
    result = deblur.solve(img, psf, 1e-2, boundary="zero")
    assert result.image.dtype == np.float32
    assert np.allclose(result.image, exact, atol=1e-4)
    assert result.dtype_reason == f"enough for {np.dtype(dtype).name} pixels"


def test_where_float32_is_not_enough_for_an_integer_image_float64_goes_on(rng):
    img = rng.integers(0, 256, (16, 16)).astype(np.uint8)
    options = {"boundary": "periodic", "method": "fft", "prior": "zero"}
    # A box of 4 has frequencies that it takes away: HHᵀ + λI is singular to float32.
    result = deblur.solve(img, deblur.psf.box(4), 1e-15, **options, check=False)
    assert result.image.dtype == np.float64
    assert (
        "float32, enough for uint8, was not: the solver failed (HHᵀ + λI is singular" in result.dtype_reason
    )
    assert "float64: float32, enough" in str(result)
    with pytest.raises(deblur.SingularMatrixError):
        deblur.solve(img, deblur.psf.box(4), 1e-15, **options, dtype="float32")
    with pytest.raises(TypeError, match="float16"):
        deblur.solve(img, deblur.psf.box(4), 1e-3, dtype="float16")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((24, 22, 3), {"channel_axis": -1}),
        ((5, 24, 22), {"stack_axis": 0}),
        ((2, 24, 3, 22), {"stack_axis": 0, "channel_axis": 2}),
    ],
)
@pytest.mark.parametrize(("together", "lam"), [(1, 1e-2), (2 * 24 * 22, 1e-2), (1, "auto")])
def test_an_image_solved_in_parts_is_the_same_image(rng, monkeypatch, shape, axes, together, lam):
    img, psf = rng.random(shape, np.float32), deblur.psf.motion(5, 30)
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
    boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
    g = rng.random((24, 21))
    exact = dense_solution(g, Blur(psf, g.shape, boundary), lam, "tikhonov")
    image = deblur.reconstruct(g.astype(np.float32), psf, lam, method=method, boundary=boundary)
    assert image.dtype == np.float32
    # The condition number of HHᵀ + λI is about 1/λ; ten times eps over λ leaves room for the norm of n.
    bound = 10 * np.finfo(np.float32).eps / lam
    assert np.linalg.norm(image - exact) <= bound * np.linalg.norm(exact)


def test_colour_and_stacks_equal_their_parts(rng):
    psf = psfs(rng)["any"]
    stack = rng.random((3, 14, 11))
    parts = np.stack(
        [deblur.reconstruct(frame, psf, 1e-3, method="cholesky", boundary="zero") for frame in stack]
    )
    together = deblur.reconstruct(stack, psf, 1e-3, method="cholesky", stack_axis=0, boundary="zero")
    assert np.allclose(together, parts, atol=1e-11)
    colour = np.moveaxis(stack, 0, -1)
    restored = deblur.reconstruct(colour, psf, 1e-3, method="cholesky", channel_axis=-1, boundary="zero")
    assert np.allclose(restored, np.moveaxis(parts, 0, -1), atol=1e-11)
    movie = np.stack([colour, 2 * colour])
    both = deblur.reconstruct(
        movie, psf, 1e-3, method="cholesky", channel_axis=3, stack_axis=0, boundary="zero"
    )
    assert both.shape == movie.shape
    assert np.allclose(both[1], 2 * np.moveaxis(parts, 0, -1), atol=1e-10)


def test_non_contiguous_input_and_untouched_input(rng):
    psf = psfs(rng)["any"]
    wide = rng.random((20, 26))
    view = wide[::2, ::-2].T
    before = wide.copy()
    assert np.allclose(
        deblur.reconstruct(view, psf, 1e-2, boundary="zero"),
        deblur.reconstruct(view.copy(), psf, 1e-2, boundary="zero"),
        atol=1e-12,
    )
    assert np.array_equal(wide, before)


@pytest.mark.parametrize("method", LINEAR)
def test_a_deblurrer_gives_what_the_call_gives_again_and_again(rng, method):
    psf = psfs(rng)["tiny"]
    boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
    frames = rng.random((3, 13, 14))
    restore = deblur.Deblurrer(psf, (13, 14), 1e-2, method=method, boundary=boundary)
    for frame in frames:
        one = deblur.reconstruct(frame, psf, 1e-2, method=method, boundary=boundary)
        assert np.allclose(restore(frame), one, atol=1e-7)


def test_the_second_frame_is_spared_the_setup(rng, monkeypatch):
    from deblur.solvers import dense

    calls = []
    honest = dense.normal_matrix
    monkeypatch.setattr(dense, "normal_matrix", lambda *a, **k: calls.append(1) or honest(*a, **k))
    restore = deblur.Deblurrer(psfs(rng)["any"], (16, 16), 1e-2, method="cholesky", boundary="zero")
    first, second = (restore.solve(rng.random((16, 16))) for _ in range(2))
    assert len(calls) == 1
    assert first.setup_seconds > 0
    assert second.setup_seconds == 0


@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve", "upre"])
def test_lambda_by_rule_is_reported_and_reproducible(rule):
    sharp = deblur.data.load("camera")[:48, :48]
    psf = deblur.psf.gaussian(7, 1.2)
    blurred = deblur.degrade(sharp, psf, noise=0.01, seed=1)
    result = deblur.solve(blurred, psf, rule, boundary="zero")
    assert result.lambda_choice is not None
    assert result.lam > 0
    assert result.lam_reason
    again = deblur.solve(blurred, psf, result.lam, boundary="zero")
    assert np.allclose(result.image, again.image, atol=1e-10)
    restore = deblur.Deblurrer(psf, (48, 48), rule, boundary="zero")
    restore(blurred)
    assert restore.lam == pytest.approx(result.lam, rel=1e-12)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("formula", ["tikhonov", "hht"])
def test_a_smooth_prior_minimises_what_it_says(rng, boundary, formula):
    if formula == "hht" and boundary == "unknown":
        return
    psf, g, lam = psfs(rng)["any"], rng.random((12, 11)), 1e-2
    result = deblur.solve(g, psf, lam, boundary=boundary, formula=formula, prior="smooth", method="cholesky")
    blur = Blur(psf, g.shape, boundary)
    from deblur.solvers.start import prior_scene

    prior = prior_scene(blur, g)
    deviation = dense_solution(g - blur.forward(prior), blur, lam, formula)
    expected = prior[blur.crop] + deviation
    assert np.linalg.norm(result.image - expected) <= 1e-9 * np.linalg.norm(expected)
    assert result.prior == "smooth"
    assert result.residual <= 1e-10
    data_residual = np.linalg.norm(result.residual_image) / np.linalg.norm(g)
    assert result.data_residual == pytest.approx(data_residual, rel=1e-10)


def test_the_prior_is_smooth_where_the_scene_goes_on_unknown():
    sharp = deblur.data.load("camera64")
    psf = deblur.psf.disk(5)
    blurred = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", seed=0)
    chosen = deblur.solve(blurred, psf, "gcv", boundary="unknown")
    assert chosen.prior == "smooth"
    assert "smoothed" in str(chosen)
    again = deblur.solve(blurred, psf, chosen.lam, boundary="unknown")
    assert again.prior == "smooth"
    assert np.allclose(again.image, chosen.image, atol=1e-6)
    assert deblur.solve(blurred, psf, chosen.lam, boundary="unknown", prior="zero").prior == "zero"
    assert deblur.solve(blurred, psf, "gcv", boundary="zero").prior == "zero"
    truth = sharp[2:-2, 2:-2]
    assert deblur.metrics.psnr(truth, chosen.image) >= deblur.metrics.psnr(truth, blurred) + 1


def test_lambda_zero_with_a_regular_matrix_inverts_the_blur(rng):
    psf = np.array([[0.0, 0.1, 0], [0.1, 1.0, 0.2], [0, 0.1, 0]])
    f = rng.random((12, 13))
    g = Blur(psf, f.shape).forward(f)
    for method in ("cholesky", "gauss-jordan", "lu", "banded", "qr"):
        image = deblur.reconstruct(g, psf, 0, method=method, boundary="zero")
        assert np.linalg.norm(image - f) <= 1e-10 * np.linalg.norm(f), method


@pytest.mark.parametrize("method", [m for m in LINEAR if m not in ("fft", "dct", "dst")])
def test_lambda_zero_with_a_singular_matrix_is_an_error_not_an_image(method):
    # [1, 1, 1] on 5 pixels with zeros outside: eigenvalue 1 + 2 cos(pi k / 6) is zero for k = 4.
    psf = np.ones((1, 3)) / 3
    g = np.random.default_rng(3).random((5, 5))
    with pytest.raises((deblur.SingularMatrixError, deblur.MethodError, deblur.ConvergenceError), match="λ"):
        deblur.reconstruct(g, psf, 0.0, method=method, boundary="zero")


@pytest.mark.parametrize(("method", "boundary"), [("fft", "periodic"), ("dct", "reflect")])
def test_lambda_zero_where_a_transform_has_zeros(method, boundary):
    # 1 + 2 cos(w): zero at w = 2 pi / 3, a frequency of 6 pixels in both transforms.
    psf = np.ones((1, 3)) / 3
    g = np.random.default_rng(3).random((6, 6))
    with pytest.raises(deblur.SingularMatrixError, match="λ"):
        deblur.reconstruct(g, psf, 0.0, method=method, boundary=boundary)


@pytest.mark.parametrize("method", ["pcg", "gauss-seidel", "hybrid-lsqr"])
def test_an_iteration_cut_short_is_never_returned_as_success(rng, method):
    psf, g = deblur.psf.disk(7), rng.random((40, 40))
    with pytest.raises(deblur.ConvergenceError, match="max_iterations") as caught:
        deblur.reconstruct(g, psf, 1e-6, method=method, max_iterations=2, boundary="zero")
    assert caught.value.result.status is deblur.Status.NOT_CONVERGED
    assert caught.value.result.image.shape == g.shape
    result = deblur.solve(g, psf, 1e-6, method=method, max_iterations=2, check=False, boundary="zero")
    assert not result.status.ok


def test_callback_sees_every_iteration(rng):
    for method in ("pcg", "gauss-seidel", "hybrid-lsqr"):
        seen = []
        result = deblur.solve(
            rng.random((15, 15)),
            psfs(rng)["any"],
            1e-3,
            method=method,
            callback=lambda i, r, seen=seen: seen.append((i, r)),
            boundary="zero",
        )
        counts = [i for i, _ in seen]
        assert sorted(counts) == counts, method
        assert set(range(1, result.iterations + 1)) <= set(counts), method
        assert counts[-1] == result.iterations, method
        assert seen[-1][1] < seen[0][1]


G = np.full((8, 8), 0.5)
PSF = np.ones((3, 3)) / 9


@pytest.mark.parametrize(
    ("img", "error", "message"),
    [
        (np.full((8, 8), np.nan), ValueError, "NaN"),
        (np.full((8, 8), -np.inf), ValueError, "infinite"),
        (np.zeros((0, 8)), ValueError, "empty"),
        (np.zeros(8), ValueError, "rows"),
        (np.zeros((2, 8, 8, 3)), ValueError, "channel_axis"),
        (np.zeros((8, 8, 2)), ValueError, "channel_axis"),
        (np.zeros((3, 8, 3)), ValueError, "channel_axis"),
        (np.zeros((8, 4, 4)), ValueError, "channel_axis"),
        (np.zeros((8, 8), complex), TypeError, "real|complex"),
        (np.full((8, 8), "a"), TypeError, "dtype"),
    ],
)
def test_bad_images(img, error, message):
    with pytest.raises(error, match=message):
        deblur.reconstruct(img, PSF, 1e-3, boundary="zero")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"lam": -1e-3}, ValueError, "not negative"),
        ({"lam": np.nan}, ValueError, "finite"),
        ({"lam": np.inf}, ValueError, "finite"),
        ({"lam": "best"}, ValueError, "gcv"),
        ({"lam": None}, TypeError, "number"),
        ({"method": "magic"}, ValueError, "cholesky"),
        ({"boundary": "mirror"}, ValueError, "reflect"),
        ({"formula": "wiener"}, ValueError, "tikhonov"),
        ({"prior": "flat"}, ValueError, "smooth"),
        ({"psf": np.ones((9, 9))}, ValueError, "larger than the image"),
        ({"psf": np.zeros((3, 3))}, ValueError, "zero everywhere"),
        ({"psf": np.ones(3)}, ValueError, "2-D"),
        ({"channel_axis": 5}, ValueError, "channel_axis"),
        ({"rtol": 2.0}, ValueError, "rtol"),
        ({"max_iterations": 0}, ValueError, "max_iterations"),
        ({"noise": -1}, ValueError, "noise"),
        ({"origin": (3, 3)}, ValueError, "origin"),
        (
            {"formula": "hht", "psf": np.array([[1.0, 2, 4]]), "lam": "gcv", "boundary": "zero"},
            ValueError,
            "number",
        ),
    ],
)
def test_bad_options(changes, error, message):
    arguments = {"psf": PSF, "lam": 1e-3} | changes
    with pytest.raises(error, match=message):
        deblur.reconstruct(G, **arguments)


def test_unknown_keywords_are_not_swallowed():
    with pytest.raises(TypeError, match="lambda_"):
        deblur.reconstruct(G, PSF, 1e-3, lambda_=3, boundary="zero")


def test_a_matrix_that_will_not_fit_is_refused_before_it_is_allocated():
    big = np.zeros((2000, 2000))
    with pytest.raises(deblur.InsufficientMemoryError, match="free.*pcg"):
        deblur.reconstruct(big, PSF, 1e-3, method="cholesky", boundary="zero")


def test_images_of_another_size_are_refused_by_a_deblurrer():
    with pytest.raises(ValueError, match="8 x 8.*9 x 9|9 x 9.*8 x 8"):
        deblur.Deblurrer(PSF, (9, 9), 1e-3, boundary="zero")(G)


def test_degenerate_images():
    assert np.array_equal(deblur.reconstruct(np.zeros((8, 8)), PSF, 1e-3, boundary="zero"), np.zeros((8, 8)))
    one = deblur.reconstruct(np.array([[3.0]]), np.array([[2.0]]), 1.0, boundary="zero")
    assert one == pytest.approx(np.array([[2 * 3 / (4 + 1)]]))


def test_result_prints_what_was_done():
    text = str(deblur.solve(G, PSF, 1e-3, method="cholesky", boundary="zero"))
    for word in ("cholesky", "lambda", "residual", "as requested", "solved directly"):
        assert word in text
