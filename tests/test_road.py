"""The road on photographs: a solvable problem is solved, and a λ that nobody can trust does not pass as success."""

from dataclasses import replace

import numpy as np
import pytest
from realistic import draw, outcome

import deblur
from deblur import Blur, Status, pipeline
from deblur.methods import METHODS
from deblur.metrics import psnr
from deblur.solvers import pcg, quadratic
from deblur.tuning.select import boundary_error


def photograph(psf, noise, size=128, name="camera", boundary="unknown"):
    """A picture whose scene goes on beyond the frame, and the truth inside it."""
    sharp = deblur.image.as_float(deblur.data.load(name))[100 : 100 + size, 200 : 200 + size]
    axis = -1 if sharp.ndim == 3 else None
    g = deblur.degrade(sharp, psf, noise=noise, boundary=boundary, channel_axis=axis, seed=0)
    top, left = (n // 2 for n in psf.shape)
    return g, sharp[top : top + g.shape[0], left : left + g.shape[1]]


def test_realistic_draws_are_solved():
    rng = np.random.default_rng(13)
    outcomes = [outcome(draw(rng, largest=64)) for _ in range(60)]
    failed = [o for o in outcomes if o["status"] not in ("SOLVED", "CONVERGED")]
    assert not failed
    assert len({o["method"] for o in outcomes}) >= 4


# -- λ ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "boundary"), [("fft", "periodic"), ("auto", "periodic")])
@pytest.mark.parametrize("rule", ["auto", "discrepancy", "upre"])
def test_a_rule_that_error_rules_falls_back_and_says_so(method, boundary, rule):
    psf = deblur.psf.gaussian(9, 1.5)
    g, truth = photograph(psf, 0.01, 256)
    result = deblur.solve(g, psf, rule, method=method, boundary=boundary)
    assert result.status.ok
    assert "the fallback rule" in result.lam_reason
    assert "what boundary 'periodic' gets wrong" in result.lam_reason
    assert psnr(truth, result.image) >= psnr(truth, g) - 0.5  # and -15 dB where cross-validation ran to


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_a_lambda_that_trusts_the_edges_too_much_is_not_followed(noise):
    psf = deblur.psf.disk(8)
    g, truth = photograph(psf, noise, 40)
    result = deblur.solve(g, psf, boundary="zero")
    assert "as one that allows for the boundary's error" in result.lam_reason
    inner = (slice(8, -8), slice(8, -8))  # at the edge a wrong boundary is wrong whatever λ does
    assert (
        psnr(truth[inner], result.image[inner]) >= psnr(truth[inner], g[inner]) - 1
    )  # and 13 dB below it before


@pytest.mark.parametrize(
    ("boundary", "psf"), [("zero", "disk"), ("periodic", "shake"), ("reflect", "motion")]
)
@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_a_boundary_that_fits_is_trusted(boundary, psf, noise):
    psf = {
        "disk": deblur.psf.disk(8),
        "motion": deblur.psf.motion(9, 0),
        "shake": deblur.psf.camera_shake(9, 1),
    }[psf]
    truth = deblur.image.as_float(deblur.data.load("camera"))[100:172, 200:270]
    g = deblur.degrade(truth, psf, noise=noise, boundary=boundary, seed=1)
    result = deblur.solve(g, psf, boundary=boundary)
    assert "the fallback rule" not in result.lam_reason
    assert psnr(truth, result.image) >= psnr(truth, g)


@pytest.mark.parametrize("method", ["gradient", "tv"])
def test_a_rule_that_solves_on_the_way_falls_back_too(method):
    psf = deblur.psf.gaussian(9, 1.5)
    g, truth = photograph(psf, 0.0, 96)
    result = deblur.solve(g, psf, method=method, boundary="periodic")
    assert result.status.ok
    assert result.lambda_choice.converged
    assert psnr(truth, result.image) >= psnr(truth, g) - 1


def test_a_rule_by_name_that_finds_nothing_sound_is_no_success():
    psf = deblur.psf.gaussian(9, 1.5)
    g, _ = photograph(psf, 0.01, 64)
    with pytest.raises(
        deblur.ConvergenceError, match="λ is a guess.*noise=.*stays above the noise level"
    ) as caught:
        deblur.reconstruct(g, psf, "discrepancy", noise=1e-7, boundary="unknown")
    assert caught.value.result.status is Status.UNSETTLED
    assert not Status.UNSETTLED.ok
    restore = deblur.Deblurrer(psf, g.shape, "discrepancy", noise=1e-7, boundary="unknown")
    for _ in range(2):  # what is kept remains a guess
        assert restore.solve(g, check=False).status is Status.UNSETTLED
    assert deblur.solve(
        g, psf, caught.value.result.lam, boundary="unknown"
    ).status.ok  # as a number it is an order


def test_what_a_boundary_gets_wrong_is_measured_by_the_picture(rng):
    psf = deblur.psf.gaussian(9, 1.5)
    flat = np.full((1, 1, 40, 40), 0.5)
    assert boundary_error(Blur(psf, (40, 40), "unknown"), flat) == 0
    assert boundary_error(Blur(psf, (40, 40), "reflect"), flat) <= 1e-12
    light = flat - Blur(psf, (40, 40), "zero").forward(flat)  # what comes from outside, which zero leaves out
    assert boundary_error(Blur(psf, (40, 40), "zero"), flat) == pytest.approx(
        np.sqrt((light**2).mean()), rel=1e-9
    )


@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect", "antireflect", "unknown"])
def test_where_nothing_is_blurred_the_picture_comes_back(boundary):
    g, _ = photograph(deblur.psf.delta(1), 0.0, 40)
    result = deblur.solve(g, deblur.psf.delta(1), boundary=boundary)
    assert np.abs(result.image - g).max() <= 1e-6


# -- falling back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0, 30, 135])
@pytest.mark.parametrize("name", ["camera", "brick", "text"])
def test_a_photograph_without_noise_under_motion_blur_gives_a_picture(name, angle):
    psf = deblur.psf.motion(15, angle)
    sharp = deblur.image.as_float(deblur.data.load(name))[:120, :130]
    g = deblur.degrade(sharp, psf, boundary="unknown")
    top, left = (n // 2 for n in psf.shape)
    truth = sharp[top : top + g.shape[0], left : left + g.shape[1]]
    assert psnr(truth, deblur.reconstruct(g, psf, boundary="unknown")) >= psnr(truth, g) + 3


class Stubborn:
    """A factor whose answers converge only at a λ that is large enough."""

    def __init__(self, factor, enough):
        self.factor, self.enough = factor, enough

    def solve(self, g, start=None):
        return replace(self.factor.solve(g, start), converged=self.enough, why="stagnated")


@pytest.mark.parametrize(("method", "solver"), [("pcg", pcg), ("gradient", quadratic)])
def test_a_lambda_of_a_rule_with_which_nothing_solves_is_raised_and_that_is_said(method, solver, monkeypatch):
    psf = deblur.psf.motion(5, 30)
    g, _ = photograph(psf, 0.01, 48)
    plain = deblur.solve(g, psf, method=method, boundary="zero")
    honest = solver.prepare
    monkeypatch.setattr(solver, "prepare", lambda p: Stubborn(honest(p), p.lam > 50 * plain.lam))
    result = deblur.solve(g, psf, method=method, boundary="zero")
    assert result.status.ok
    assert result.lam == pytest.approx(100 * plain.lam)
    assert "raised to" in result.lam_reason
    restore = deblur.Deblurrer(psf, g.shape, method=method, boundary="zero")
    assert restore.solve(g).lam == restore.solve(g).lam == result.lam  # kept for the next image
    for refused in ({"lam": plain.lam}, {"max_iterations": 500}):  # an order is not changed
        with pytest.raises(deblur.ConvergenceError, match="stagnated"):
            deblur.reconstruct(g, psf, method=method, **refused)


def test_a_lambda_of_a_rule_with_which_nothing_can_be_prepared_is_raised(monkeypatch):
    psf = deblur.psf.motion(5, 30)
    g, _ = photograph(psf, 0.01, 48)
    plain = deblur.solve(g, psf, method="cholesky", boundary="zero")
    honest = pipeline.Deblurrer._factored

    def singular(self, problem, choice=None):
        if problem.lam < 5 * plain.lam:
            raise deblur.SingularMatrixError("the matrix is singular: use a larger λ")
        return honest(self, problem, choice)

    monkeypatch.setattr(pipeline.Deblurrer, "_factored", singular)
    result = deblur.solve(g, psf, method="cholesky", boundary="zero")
    assert result.lam == pytest.approx(10 * plain.lam)
    with pytest.raises(deblur.SingularMatrixError, match="larger λ"):
        deblur.reconstruct(g, psf, plain.lam, method="cholesky", boundary="zero")


# -- what images may be -------------------------------------------------------------------------------------------


class Offers:
    """What pandas, xarray and PyTorch have in common."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return np.array(self.a, dtype=dtype)


SMALL = deblur.psf.gaussian(3, 0.8)
IMAGE = np.round(127 * deblur.image.as_float(deblur.data.load("camera64"))[:16, :18])  # whole in every dtype
FORMS = {
    "big-endian": lambda a: (a / 256).astype(">f8"),
    "big-endian float32": lambda a: (a / 256).astype(">f4"),
    "float16": lambda a: (a / 256).astype(np.float16),
    "longdouble": lambda a: (a / 256).astype(np.longdouble),
    "uint8": lambda a: a.astype(np.uint8),
    "big-endian uint16": lambda a: a.astype(">u2"),
    "int32": lambda a: (a * 2**23).astype(np.int32),
    "bool": lambda a: a > 60,
    "read-only": lambda a: np.broadcast_to(a[:, :1] / 256, a.shape),
    "strided": lambda a: np.repeat(a / 256, 2, axis=1)[:, ::2],
    "backwards": lambda a: (a / 256)[::-1, ::-1],
    "offers __array__": lambda a: Offers(a / 256),
    "list": lambda a: (a / 256).tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["auto", "tv"])
def test_an_image_may_have_any_form(form, method):
    given = FORMS[form](IMAGE)
    plain = deblur.image.as_float(np.asarray(given))
    narrow = plain.dtype.itemsize <= 4 or np.asarray(given).dtype.itemsize <= 2  # what 8 and 16 bits hold
    plain = plain.astype(np.float32 if narrow else np.float64)
    expected = deblur.reconstruct(plain, SMALL, 0.01, method=method, boundary="zero")
    found = deblur.solve(given, SMALL, 0.01, method=method, boundary="zero").image
    assert found.dtype == plain.dtype
    assert found.dtype.isnative
    # Levels are divided in float32, as they are computed with: by an ulp another image.
    near = 8 * np.finfo(np.float32).eps if np.asarray(given).dtype.kind in "ub" else 1e-12
    assert np.abs(found - expected).max() <= near
    restore = deblur.Deblurrer(SMALL, plain.shape, 0.01, method=method, dtype=plain.dtype, boundary="zero")
    assert np.abs(restore(given) - expected).max() <= near
    lam = deblur.tuning.choose_lambda(Blur(SMALL, plain.shape), given, "gcv").lam
    assert lam == pytest.approx(
        deblur.tuning.choose_lambda(
            Blur(SMALL, plain.shape), deblur.image.as_float(np.asarray(given)), "gcv"
        ).lam,
        rel=1e-9,
    )


def test_what_a_masked_array_hides_is_hidden():
    hidden = np.zeros(IMAGE.shape, bool)
    hidden[4, 5] = True
    given = np.ma.array(np.where(hidden, np.nan, IMAGE / 256), mask=hidden)
    expected = deblur.reconstruct(IMAGE / 256, SMALL, 0.01, method="tv", mask=hidden, boundary="zero")
    assert np.array_equal(deblur.reconstruct(given, SMALL, 0.01, method="tv", boundary="zero"), expected)
    assert np.array_equal(
        deblur.Deblurrer(SMALL, IMAGE.shape, 0.01, method="tv", boundary="zero")(given), expected
    )
    with pytest.raises((TypeError, ValueError), match="mask"):
        deblur.tuning.choose_lambda(Blur(SMALL, IMAGE.shape), given, "gcv")


@pytest.mark.parametrize("lam", ["auto", 1e-3])
@pytest.mark.parametrize("method", METHODS)
def test_black_stays_black(method, lam):
    boundary = {"fft": "periodic", "dst": "zero"}.get(method, "reflect")
    result = deblur.solve(np.zeros((16, 18)), SMALL, lam, method=method, boundary=boundary)
    assert result.status.ok
    assert not result.image.any()


@pytest.mark.parametrize("dim", [0.1, 0.3])
@pytest.mark.parametrize("top", [0, 120])
def test_richardson_lucy_makes_no_dark_picture_worse(dim, top):
    psf = deblur.psf.motion(15, 30)
    sharp = dim * deblur.image.as_float(deblur.data.load("cat"))[top : top + 80, 60:140]
    g = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", channel_axis=-1, seed=0).clip(0)
    top, left = (n // 2 for n in psf.shape)
    truth = sharp[top : top + g.shape[0], left : left + g.shape[1]]
    result = deblur.solve(g, psf, method="richardson-lucy", boundary="unknown", channel_axis=-1, check=False)
    assert not result.status.ok or psnr(truth, result.image) >= psnr(truth, g)
    short = deblur.solve(
        g, psf, method="richardson-lucy", boundary="unknown", channel_axis=-1, check=False, max_iterations=2
    )
    assert short.status is Status.NOT_CONVERGED  # ran out, and says so
