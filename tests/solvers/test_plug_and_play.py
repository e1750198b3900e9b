"""Plug and play: a denoiser for the prior, against minimisers that are known, and what it must keep to."""

import numpy as np
import pytest
from problems import changed, problem_of, solve
from references import PSF, scene_like

import deblur
from deblur.degradation import degrade
from deblur.errors import ConvergenceError
from deblur.metrics import psnr
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.solvers.plug_and_play import refuses


def _smooth(image, sigma):
    """A linear denoiser: the proximal map of σ²/2 ‖∇f‖² with periodic edges, so that the minimiser is known."""
    symbol = sum(
        np.reshape(2 - 2 * np.cos(2 * np.pi * np.arange(n) / n), [-1 if a == axis else 1 for a in range(2)])
        for axis, n in enumerate(image.shape)
    )
    return np.fft.ifft2(np.fft.fft2(image) / (1 + sigma**2 * symbol)).real


def test_a_denoiser_that_is_a_proximal_map_gives_its_minimiser(rng):
    blur = Blur(PSF, (16, 15), "periodic")
    g = blur.forward(scene_like(rng, (16, 15)))[None, None]
    lam = 1e-2
    pnp = solve(problem_of(blur, "denoiser", lam, denoiser=_smooth, rtol=1e-7, max_iterations=500), g)
    direct = solve(problem_of(blur, "gradient", lam, rtol=1e-10), g)
    assert pnp.converged
    assert np.linalg.norm(pnp.scene - direct.scene) <= 1e-5 * np.linalg.norm(direct.scene)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_plug_and_play_beats_the_blurred_image(rng, boundary):
    from scipy.ndimage import median_filter

    sharp = deblur.data.load("camera64")
    psf = deblur.psf.gaussian(5, 1.0)
    g = degrade(sharp, psf, noise=0.01, boundary=boundary, seed=1)
    blur = Blur(psf, g.shape, boundary)
    truth = sharp[2:-2, 2:-2] if boundary == "unknown" else sharp

    def denoiser(image, sigma):
        assert image.shape == blur.scene_shape
        return (image + min(1.0, 10 * sigma) * median_filter(image, 3)) / (1 + min(1.0, 10 * sigma))

    scene = solve(problem_of(blur, "denoiser", 2e-4, denoiser=denoiser, bounds=(0.0, 1.0)), g[None, None]).scene
    assert scene.min() >= 0
    assert scene.max() <= 1
    assert psnr(truth, scene[0, 0][blur.crop]) - psnr(truth, g) >= 1.0


def test_a_denoiser_sees_colour_last_and_must_keep_its_promises(rng):
    blur = Blur(PSF, (9, 8), "reflect")
    g = rng.random((2, 3, 9, 8))
    shapes = []
    problem = problem_of(
        blur, "denoiser", 1e-3, denoiser=lambda image, sigma: shapes.append(image.shape) or image, max_iterations=2
    )
    solve(problem, g)
    assert set(shapes) == {(9, 8, 3)}
    for bad, message in (
        (lambda image, sigma: image[1:], r"returned \(8, 8\)"),
        (lambda image, sigma: image * np.nan, "NaN"),
        (lambda image, sigma: None, "NoneType"),
    ):
        with pytest.raises(ValueError, match=message):
            solve(changed(problem, denoiser=bad), g[:, :1])
    with pytest.raises(ConvergenceError, match="diverged"):
        solve(changed(problem, denoiser=lambda image, sigma: 3 * image + 1, max_iterations=200), g[:, :1])
    assert "denoiser" in refuses(changed(problem, denoiser=None))
    assert "λ" in refuses(changed(problem, lam=0.0))


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("bounds", [None, (0.0, 0.6)])
def test_the_steps_on_a_gpu_are_those_of_the_cpu(cupy, rng, boundary, bounds):
    def denoiser(image, sigma):
        xp = cupy.get_array_module(image)
        symbol = xp.asarray(2 - 2 * np.cos(2 * np.pi * np.arange(image.shape[0]) / image.shape[0]))[:, None]
        return xp.fft.ifft(xp.fft.fft(image, axis=0) / (1 + sigma**2 * symbol), axis=0).real

    blur = Blur(PSF, (16, 15), boundary)
    g = blur.forward(rng.random((2, 1, *blur.scene_shape)))
    problem = problem_of(blur, "denoiser", 1e-2, denoiser=denoiser, bounds=bounds, rtol=1e-12, max_iterations=25)
    wanted, found = solve(problem, g), solve(changed(problem, xp=cupy), cupy.asarray(g))
    np.testing.assert_allclose(found.scene.get(), wanted.scene, atol=1e-9)
    np.testing.assert_allclose(found.history.objective, wanted.history.objective, rtol=1e-6)
    np.testing.assert_allclose(found.history.primal, wanted.history.primal, rtol=1e-5, atol=1e-10)
