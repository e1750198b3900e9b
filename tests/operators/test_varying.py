"""A PSF that varies: H against its rows written down one by one, and the methods against dense solutions of it."""

import pickle

import numpy as np
import pytest
from problems import changed, problem_of, solve
from references import check, scene_like
from refusals import refused

import deblur
from deblur import data
from deblur.cli import main
from deblur.device import CPU
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.operators.varying import VaryingBlur
from deblur.solvers.domain import SceneDomain, VaryingDomain
from deblur.solvers.start import prior_scene


def psfs_like(rng, *places, shape=(4, 3)):
    h = rng.random((*places, *shape)) + 0.5 * np.eye(*shape)
    return h / h.sum(axis=(-2, -1), keepdims=True)


def gaussians(sigmas, reach):
    """PSFs of these standard deviations."""
    t = np.arange(-reach, reach + 1)
    h = np.exp(-(t[:, None] ** 2 + t**2) / 2 / sigmas[..., None, None] ** 2)
    return h / h.sum(axis=(-2, -1), keepdims=True)


def bilinear(grid, shape, row, column):
    """The PSF at a pixel, interpolated between the centres of the cells as it is written in textbooks."""
    at = []
    for k, n, x in zip(grid.shape[:2], shape, (row, column), strict=True):
        u = np.clip((x + 0.5) * k / n - 0.5, 0, k - 1)
        i = min(int(u), max(k - 2, 0))
        at.append([(i, 1.0)] if k == 1 else [(i, 1 - (u - i)), (i + 1, u - i)])
    return sum(a * b * grid[i, j] for i, a in at[0] for j, b in at[1])


def to_dense(operator):
    return operator.matmat(np.eye(operator.shape[1]))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_each_pixel_sees_the_scene_through_its_own_psf(rng, boundary):
    shape, grid = (9, 8), psfs_like(rng, 2, 3)
    blur = VaryingBlur(grid, shape, boundary)
    blurs = (Blur(bilinear(grid, shape, i, j), shape, boundary) for i, j in np.ndindex(shape))
    expected = np.array([each.to_dense()[row] for row, each in enumerate(blurs)])  # each row by the PSF at its pixel
    np.testing.assert_allclose(to_dense(blur), expected, atol=1e-14)
    np.testing.assert_allclose(blur.psf_at(3, 5), bilinear(grid, shape, 3, 5), atol=1e-15)
    assert blur.terms == 6
    assert blur.error == 0


@pytest.mark.parametrize("colours", [(), (3,)])
@pytest.mark.parametrize("tolerance", [None, 0.1])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_adjoint_is_the_transpose(rng, boundary, tolerance, colours):
    at = rng.random((7, 2)) * (18, 20)
    blur = VaryingBlur(psfs_like(rng, 7, *colours), (19, 21), boundary, positions=at, tolerance=tolerance)
    f, g = rng.standard_normal((2, *colours, *blur.scene_shape)), rng.standard_normal((2, *colours, 19, 21))
    forth, back = np.vdot(g, blur.forward(f)), np.vdot(blur.adjoint(g), f)
    assert abs(forth - back) <= 1e-14 * np.linalg.norm(f) * np.linalg.norm(g) * blur.norm_bound
    x = rng.standard_normal(blur.shape[1])
    np.testing.assert_allclose(blur.T.T @ x, blur @ x)


@pytest.mark.parametrize("tolerance", [0.3, 0.1, 0.02, 1e-6])
def test_the_error_of_eigen_psfs_is_within_the_tolerance_and_stated(rng, tolerance):
    shape, grid = (12, 11), psfs_like(rng, 3, 3)
    few, every = VaryingBlur(grid, shape, "reflect", tolerance=tolerance), VaryingBlur(grid, shape, "reflect")
    differences = np.abs(to_dense(few) - to_dense(every)).sum(axis=1)
    assert few.error <= tolerance
    assert differences.max() <= few.error + 1e-14  # mirrored parts of a PSF may cancel, never add
    assert few.terms <= every.terms
    f = rng.random(few.scene_shape)
    assert np.abs(few.forward(f) - every.forward(f)).max() <= few.error * f.max() + 1e-14


def test_more_tolerance_takes_fewer_terms(rng):
    grid = psfs_like(rng, 3, 3)
    terms = [VaryingBlur(grid, (12, 12), tolerance=t).terms for t in (0.4, 0.2, 0.1, 1e-9)]
    assert terms == sorted(terms)
    assert terms[0] < terms[-1] == 9


@pytest.mark.parametrize("tolerance", [None, 0.2])
def test_a_constant_scene_stays_constant(rng, tolerance):
    at = rng.random((6, 2)) * 15
    blur = VaryingBlur(psfs_like(rng, 6), (16, 16), "reflect", positions=at, tolerance=tolerance)
    np.testing.assert_allclose(blur.forward(np.full((16, 16), 3.0)), 3.0, rtol=1e-12)
    assert blur.dc_gain == pytest.approx(1)


def test_scattered_psfs_hold_where_they_were_measured():
    at = np.array([[0.0, 0], [0, 32], [32, 0], [32, 32], [16, 16], [16, 8]])
    psfs = np.array([[[1.0, 2 + i, 1]] / np.array(4.0 + i) for i in range(6)])
    blur = VaryingBlur(psfs, (33, 33), positions=at)
    for where, h in zip(at, psfs, strict=True):  # they lie on nodes of the lattice
        np.testing.assert_allclose(blur.psf_at(*where), h, atol=1e-12)


@pytest.mark.parametrize("at", [[[3.0, 4.0], [9.0, 8.0]], [[2.0, 2.0], [4.0, 4.0], [8.0, 8.0]]])
def test_places_on_one_line_are_served(rng, at):
    assert np.isfinite(to_dense(VaryingBlur(psfs_like(rng, len(at)), (12, 12), positions=at))).all()


def test_one_psf_everywhere_is_a_blur(rng):
    h = psfs_like(rng)
    blur = VaryingBlur(np.broadcast_to(h, (2, 2, *h.shape)), (9, 9), "unknown")
    assert blur.shift_invariant == Blur(h, (9, 9), "unknown")
    f = rng.random(blur.scene_shape)
    np.testing.assert_allclose(blur.forward(f), blur.shift_invariant.forward(f), atol=1e-15)
    assert VaryingBlur(psfs_like(rng, 2, 2), (9, 9)).shift_invariant is None


@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect", "unknown"])
def test_the_gain_bounds_the_norm(rng, boundary):
    blur = VaryingBlur(psfs_like(rng, 3, 2), (10, 9), boundary)
    assert np.linalg.norm(to_dense(blur), 2) <= blur.norm_bound * (1 + 1e-12) * (2 if blur.boundary.continued else 1)


def test_colours_have_their_own_psfs(rng):
    grid = psfs_like(rng, 2, 2, 3)
    blur = VaryingBlur(grid, (9, 10), "unknown")
    f = rng.random((2, 3, *blur.scene_shape))
    for c in range(3):
        alone = VaryingBlur(grid[:, :, c], (9, 10), "unknown")
        np.testing.assert_allclose(blur.forward(f)[:, c], alone.forward(f[:, c]), atol=1e-14)
    assert blur.psf_at(0, 0).shape == (3, 4, 3)
    refused(ValueError, "3 channels", blur.forward, rng.random(blur.scene_shape))


def test_it_is_a_value_that_travels(rng):
    grid = psfs_like(rng, 2, 2)
    blur = VaryingBlur(grid, (9, 9), "reflect", tolerance=0.05)
    f = rng.random((9, 9))
    seen = blur.forward(f)
    again = pickle.loads(pickle.dumps(blur))
    assert again == blur == VaryingBlur(grid, (9, 9), "reflect", tolerance=0.05)
    assert hash(again) == hash(blur)
    assert blur != VaryingBlur(grid, (9, 9), "zero", tolerance=0.05)
    np.testing.assert_array_equal(again.forward(f), seen)
    assert blur.forward(f.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "boundary", "tolerance"),
    [
        ({}, "zero", 0.05),
        ({}, "reflect", None),
        ({"data": "poisson", "bounds": (0.0, 2.0), "background": 0.1}, "unknown", 0.05),
    ],
)
def test_total_variation_reaches_the_least_objective(rng, options, boundary, tolerance):
    operator = VaryingBlur(psfs_like(rng, 2, 2), (8, 7), boundary, tolerance=tolerance)
    operator.to_dense = lambda: to_dense(operator)
    g = operator.forward(scene_like(rng, operator.scene_shape)).clip(0) + 0.02 * rng.random((8, 7))
    check(problem_of(operator, "tv", 5e-3, **options), g)


@pytest.mark.parametrize("boundary", ["zero", "periodic", "unknown"])
@pytest.mark.parametrize("colours", [(), (3,)])
@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_admm_sees_the_parts_that_the_blur_is_mixed_of(rng, boundary, colours, tolerance):
    blur = VaryingBlur(psfs_like(rng, 3, 2, *colours), (12, 11), boundary, tolerance=tolerance)
    assert 1 + len(blur.components[-1]) <= blur.terms
    operator = blur.scaled(3)
    domain = VaryingDomain(operator, np.dtype(float), CPU)
    f = rng.random((2, *(colours or (1,)), *operator.scene_shape))
    x = np.zeros((*f.shape[:2], *domain.shape))
    x[(..., *domain.scene)] = f
    seen = sum(w * v for w, v in zip(domain.mixed, domain.blurred(x), strict=True))
    np.testing.assert_allclose(seen[(..., *domain.frame)], operator.forward(f), atol=1e-13)
    t, right = rng.random((domain.parts, *x.shape)), rng.random(x.shape)
    step = domain.stepper(0.5, 0.1 + 0 * domain.power, 0, lambda work, n: [work(i, slice(n)) for i in (0, 1)])
    found, kx = step(list(t), right.copy(), x)
    for a, b in zip(kx, domain.blurred(found), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    # The normal equations of the step, by inner products with the pictures of one scene more.
    other = rng.random(x.shape)
    left = 0.5 * sum(np.vdot(a, b) for a, b in zip(kx, domain.blurred(other), strict=True))
    asked = 0.5 * sum(np.vdot(a, b) for a, b in zip(t, domain.blurred(other), strict=True))
    assert left + 0.1 * np.vdot(found, other) == pytest.approx(asked + np.vdot(right, other), rel=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("colours", [(), (3,)])
def test_a_gpu_finds_what_the_processor_finds(rng, cupy, colours):
    operator = VaryingBlur(psfs_like(rng, 3, 2, *colours), (25, 22), "unknown")
    g = rng.random((1, *(colours or (1,)), 25, 22))
    problem = problem_of(operator, "tv", 5e-3, rtol=1e-14, max_iterations=40)
    expected = solve(problem, g).scene
    found = solve(changed(problem, xp=cupy), cupy.asarray(g)).scene
    np.testing.assert_allclose(found.get(), expected, atol=1e-9)


def test_an_admm_step_goes_on_from_the_blurred_scene_it_gave(rng, monkeypatch):
    operator = VaryingBlur(psfs_like(rng, 2, 2), (12, 11), "reflect")
    step = SceneDomain(operator, np.dtype(float), CPU).stepper(0.5, 0.1, 1e-12, None)
    t, right, x = rng.random((3, 1, 1, 12, 11))
    x, _ = step([t], right, x)
    t, right = rng.random((2, 1, 1, 12, 11))
    calls = []
    for name in ("forward", "adjoint"):
        product = getattr(operator, name)
        monkeypatch.setattr(operator, name, lambda f, p=product, n=name: calls.append(n) or p(f))
    monkeypatch.setattr(SceneDomain, "_STEPS", 0)
    same, _ = step([t], right, x)
    np.testing.assert_array_equal(same, x)
    assert calls == ["adjoint"]
    monkeypatch.setattr(SceneDomain, "_STEPS", 100)
    found, [seen] = step([t], right, same)
    h = to_dense(operator)
    expected = np.linalg.solve(0.5 * h.T @ h + 0.1 * np.eye(12 * 11), right.ravel() + 0.5 * h.T @ t.ravel())
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-9)
    np.testing.assert_allclose(seen.ravel(), h @ expected, rtol=1e-9)


def test_a_preconditioner_of_all_psfs_saves_iterations(monkeypatch):
    h = gaussians(np.linspace(0.8, 1.6, 9).reshape(3, 3), 4)
    scene = data.load("camera")[:72, :72].astype(float)

    def iterations(psfs):
        blur = VaryingBlur(psfs, (64, 64), "unknown")
        return solve(problem_of(blur, "identity", 1e-2, rtol=1e-6), blur.forward(scene)[None, None]).iterations

    varying, constant = iterations(h), iterations(np.broadcast_to(h.mean(axis=(0, 1)), h.shape))
    assert varying <= 1.5 * constant
    # The solver takes 20 λ next to this power: 20 times the power gives the preconditioner of the mean PSF and λ.
    monkeypatch.setattr(VaryingBlur, "power", lambda self, torus: 20 * self.mean_blur.power(torus))
    assert varying < 0.7 * iterations(h)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda h: VaryingBlur(h[0], (9, 9)), "with their positions"),
        (lambda h: VaryingBlur(h[0], (9, 9), positions=[[0, 0]]), r"\(2, 2\)"),
        (lambda h: VaryingBlur(h[0], (9, 9), positions=[[0, 0], [0, 40]]), "position 1.*outside"),
        (lambda h: VaryingBlur(h[0], (9, 9), positions=[[1, 1], [1, 1]]), "average them"),
        (lambda h: VaryingBlur(h[0], (9, 9), positions=[[1, 1], [1, np.nan]]), "positions"),
        (lambda h: VaryingBlur([h[0, 0], h[0, 0, 1:]], (9, 9), positions=[[1, 1], [5, 5]]), "3 x 3 and 4 x 3.*prepare"),
        (lambda h: VaryingBlur([[h[0, 0], np.ones((2, 2)) / 4]], (9, 9)), "several sizes, 2 x 2 and 4 x 3"),
        (lambda h: VaryingBlur(h, (9, 9), tolerance=2), "between 0 and 1"),
        (lambda h: VaryingBlur(h, (3, 2)), "larger than the image"),
        (lambda h: VaryingBlur(h * 0, (9, 9)), "zero everywhere"),
    ],
)
def test_what_makes_no_sense_is_refused(rng, make, says):
    refused(ValueError, says, make, psfs_like(rng, 2, 2))


# -- on the road ----------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", ["zero", "reflect", "unknown"])
def test_reconstruct_takes_psfs_that_vary(rng, boundary):
    grid, g, lam = psfs_like(rng, 2, 2), rng.random((11, 12)), 0.05
    result = deblur.solve(g, psfs=grid, lam=lam, boundary=boundary, prior="zero", rtol=1e-10)
    blur = VaryingBlur(grid, g.shape, boundary, tolerance=0.01)
    h = to_dense(blur)
    scene = np.linalg.solve(h.T @ h + lam * np.eye(len(h.T)), h.T @ g.ravel()).reshape(blur.scene_shape)
    np.testing.assert_allclose(result.image, scene[blur.crop], atol=1e-7)
    assert result.status.ok
    assert deblur.METHODS[result.method].linear or result.method == "identity"


@pytest.mark.parametrize("rule", ["auto", "gcv", "upre"])
def test_a_rule_finds_lambda_for_colours_with_psfs_of_their_own(rule):
    psf = deblur.psf.disk(5)
    g = deblur.degrade(deblur.data.load("cat")[60:120, 90:160], psf, noise=0.01, boundary="unknown", seed=0)
    same = deblur.solve(g, psf, rule, noise=0.01, prior="smooth", boundary="unknown")
    own = deblur.solve(g, np.stack([psf] * 3), rule, noise=0.01, prior="smooth", boundary="unknown")
    assert own.lam == pytest.approx(same.lam, rel=0.2)
    assert np.abs(own.image - same.image).max() <= 0.05


@pytest.mark.parametrize(("noise", "colours"), [(0.003, 1), (0.02, 2)])
def test_lambda_for_psfs_that_vary_is_read_off_the_spectra_of_parts(rng, noise, colours):
    h = gaussians(np.linspace(0.7, 1.4, 4 * colours).reshape(2, 2, colours), 3).squeeze()
    blur = VaryingBlur(h, (136, 150), "unknown", tolerance=0.05)
    sharp = data.load("camera")[60 : 60 + blur.scene_shape[0], 100 : 100 + blur.scene_shape[1]].astype(float)
    sharp = np.stack([sharp] * colours)[0 if colours == 1 else slice(None)]
    g = blur.forward(sharp)
    g += noise * rng.standard_normal(g.shape)
    left = g - blur.forward(prior_scene(blur, g))
    quick, whole = (deblur.choose_lambda(blur, left, rule) for rule in ("auto", "gcv"))
    assert "4 parts" in quick.decomposition
    assert "steps" in whole.decomposition

    def quality(lam):
        problem = problem_of(blur, "identity", lam)
        found = prior_scene(blur, g) + solve(problem, left.reshape(1, colours, *left.shape[-2:])).scene[0]
        return deblur.metrics.psnr(sharp[(..., *blur.crop)], found.reshape(sharp.shape)[(..., *blur.crop)])

    assert quality(quick.lam) > quality(whole.lam) - 0.15


def test_a_picture_too_small_for_parts_takes_few_steps_and_says_so(rng):
    blur = VaryingBlur(psfs_like(rng, 2, 2, shape=(9, 9)), (70, 72), "unknown")
    stars = np.zeros(blur.scene_shape)
    stars[tuple(rng.integers(5, 70, (2, 12)))] = 100
    g = blur.forward(stars) + 1e-3 * rng.standard_normal((70, 72))
    choice = deblur.choose_lambda(blur, g - blur.forward(prior_scene(blur, g)), "auto")
    assert "150 steps" in choice.reason
    assert "still moving" in choice.reason


def test_each_colour_may_have_its_own_psf(rng):
    psf, g = psfs_like(rng, 3), rng.random((12, 13, 3))
    together = deblur.reconstruct(g, psf, 0.05, boundary="zero", rtol=1e-10)
    for c in range(3):
        alone = deblur.reconstruct(g[..., c], psf[c], 0.05, boundary="zero")
        np.testing.assert_allclose(together[..., c], alone, atol=1e-7)
    stack = deblur.reconstruct(
        np.stack([g, 2 * g]), psf, 0.05, boundary="zero", rtol=1e-10, stack_axis=0, channel_axis=3
    )
    np.testing.assert_allclose(stack, [together, 2 * together], atol=1e-7)
    refused(ValueError, "3 channels", deblur.reconstruct, g[..., 0], psf, 0.05, boundary="zero")


def test_everything_is_chosen_for_a_psf_that_varies(rng):
    scene = data.load("camera")[100:172, 180:252].astype(float)
    h = gaussians(np.linspace(0.7, 1.5, 4).reshape(2, 2), 4)
    blur = VaryingBlur(h, (64, 64), "unknown")
    sharp = scene[: blur.scene_shape[0], : blur.scene_shape[1]]
    g = blur.forward(sharp) + 0.003 * rng.standard_normal((64, 64))
    result = deblur.solve(g, psfs=h)
    truth = sharp[blur.crop]
    best = max(deblur.metrics.psnr(truth, deblur.reconstruct(g, psf, boundary="unknown")) for psf in h.reshape(4, 9, 9))
    assert str(result.boundary) == "unknown"
    assert deblur.metrics.psnr(truth, result.image) > max(best, deblur.metrics.psnr(truth, g) + 1)


def test_what_needs_one_psf_says_so(rng):
    grid, g = psfs_like(rng, 2, 2), rng.random((11, 12))
    with pytest.raises(deblur.MethodError, match="one PSF for the whole picture"):
        deblur.reconstruct(g, psfs=grid, lam=0.1, boundary="zero", method="pcg")
    refused(TypeError, "both given", deblur.reconstruct, g, grid[0, 0], 0.1, psfs=grid)
    refused(TypeError, "give the PSF", deblur.reconstruct, g)


def test_a_folder_of_psfs_is_read_row_by_row(rng, tmp_path):
    grid = psfs_like(rng, 2, 3)
    for i in range(6):
        np.save(tmp_path / f"{i}.npy", grid[i // 3, i % 3])
    np.testing.assert_allclose(deblur.psf.load_grid(tmp_path, (2, 3)), grid, atol=1e-15)
    refused(ValueError, "6 files.* 2 x 2 has 4", deblur.psf.load_grid, tmp_path, (2, 2))
    np.save(tmp_path / "5.npy", np.ones((9, 9)))
    refused(ValueError, r"5\.npy is 9 x 9", deblur.psf.load_grid, tmp_path, (2, 3))


def test_a_grid_of_psfs_is_read_as_it_was_saved(rng, tmp_path):
    grid = psfs_like(rng, 2, 3)
    held = deblur.psf.PSFEstimate(
        grid[0, 0], 0.01, deblur.psf.PSFStatus.MEASURED, "", map=deblur.psf.PSFMap(np.zeros((2, 3, 2)), grid)
    )
    deblur.psf.save(tmp_path / "psfs.npz", held)
    np.testing.assert_array_equal(deblur.psf.load_grid(tmp_path / "psfs.npz"), grid)
    np.save(tmp_path / "psfs.npy", grid)
    np.testing.assert_array_equal(deblur.psf.load_grid(tmp_path / "psfs.npy", (2, 3)), grid)
    refused(ValueError, r"shape \(2, 3, .* is \(3, 2, m, n\)", deblur.psf.load_grid, tmp_path / "psfs.npy", (3, 2))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "psfs.npy").read_bytes()[:-200])
    refused(ValueError, "cut short", deblur.psf.load_grid, tmp_path / "cut.npy")


def test_the_command_restores_from_a_picture_of_stars(rng, tmp_path, capsys):
    widths = np.linspace(1.0, 1.8, 4).reshape(2, 2)
    psfs = np.array([[deblur.psf.gaussian(13, s) for s in row] for row in widths])
    sky = np.zeros((160, 160))
    sky[tuple((8 + 144 * rng.random((2, 60))).astype(int))] = 20 + 20 * rng.random(60)
    sharp = data.load("camera")[:160, :160].astype(float)
    blur = VaryingBlur(psfs, (160, 160), "reflect")
    for name, scene in (("stars", sky), ("blurred", sharp)):
        deblur.image.write(tmp_path / f"{name}.tif", blur.forward(scene) + 1e-3 * rng.standard_normal((160, 160)))
    command = ["reconstruct", f"{tmp_path}/blurred.tif", "-o", f"{tmp_path}/out.tif", "--lam", "1e-3"]
    assert main([*command, "--psf-grid", f"{tmp_path}/stars.tif", "--grid", "2x2", "--boundary", "reflect"]) == 0
    restored, blurred = (deblur.image.read(tmp_path / f"{name}.tif") for name in ("out", "blurred"))
    gains = [
        deblur.metrics.psnr(sharp, f) - deblur.metrics.psnr(sharp, blurred)
        for f in (restored, deblur.reconstruct(blurred, psfs=psfs, lam=1e-3, boundary="reflect"))
    ]
    assert gains[0] > 0.9 * gains[1] > 1
    assert main([*command[:3], f"{tmp_path}/other.tif", "--psf", "delta:3", "--grid", "2x2"]) == 2
    assert "--grid belongs to --psf-grid" in capsys.readouterr().err
