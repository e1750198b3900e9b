"""The PSF between two pictures, against the one that made the second, and against dense least squares."""

import re

import numpy as np
import pytest
from test_psf_edges import relative_error

import deblur
from deblur import psf
from deblur.psf.estimate import shift
from deblur.psf.pairs import _System

SCENE = deblur.data.load("camera")[100:230, 100:240]
KERNELS = {
    "gaussian": psf.gaussian(9, 1.3),
    "shake": psf.camera_shake((9, 11), 4),
    "disk": psf.disk(7),
    "motion": psf.motion(7, 30),
}


def pair(h, noise=0.002, moved=(0, 0), gain=1.0, offset=0.0):
    """A sharp picture and a blurred one, without the frame's border."""
    scene = shift(np.pad(SCENE, 16, mode="reflect"), moved)[16:-16, 16:-16] if any(moved) else SCENE
    blurred = gain * deblur.degrade(scene, h, boundary="reflect") + offset
    blurred += noise * np.random.default_rng(0).standard_normal(blurred.shape)
    return SCENE[16:-16, 16:-16], blurred[16:-16, 16:-16]


@pytest.mark.parametrize("name", KERNELS)
def test_any_psf_is_found_and_its_error_estimated(name):
    h = KERNELS[name]
    found = psf.from_pair(*pair(h), (13, 14))
    error = relative_error(found.psf, h)
    assert found.psf.shape == (13, 14)
    assert error < 0.06
    assert 0.3 * found.error < error < 2.5 * found.error
    assert found.status is psf.PSFStatus.MEASURED
    assert found.details["explained"] > 0.99
    assert found.details["residual"] < 1.5


def test_displacement_gain_and_offset_are_found():
    h = KERNELS["shake"]
    found = psf.from_pair(*pair(h, moved=(5.3, -3.6), gain=0.7, offset=0.1), 13)
    assert np.abs(np.array(found.details["shift"]) - (5.3, -3.6)).max() < 0.05
    assert abs(found.details["gain"] - 0.7) < 0.01
    assert abs(found.details["offset"] - 0.1) < 0.01
    assert relative_error(found.psf, h) < 0.08


def test_more_noise_gives_a_larger_error():
    h = KERNELS["gaussian"]
    clean, noisy = (psf.from_pair(*pair(h, noise), 11) for noise in (0.001, 0.02))
    assert clean.error < 0.5 * noisy.error
    assert relative_error(noisy.psf, h) < 2 * noisy.error


def test_products_are_those_of_scipy_and_the_transpose_is_exact():
    from scipy.signal import convolve2d

    rng = np.random.default_rng(0)
    s, b, h = rng.random((30, 33)), rng.random((30, 33)), rng.random((5, 4))
    system = _System(s, b, h.shape)
    assert np.allclose(system.forward(h), convolve2d(s - s.mean(), h, "valid"), atol=1e-12)
    r = rng.random(system.b.shape)
    assert abs((system.forward(h) * r).sum() - (h * system.adjoint(r)).sum()) < 1e-10


def test_without_negative_pixels_it_is_dense_least_squares():
    rng = np.random.default_rng(1)
    s, h = rng.random((32, 30)), psf.box(3)
    b = deblur.degrade(s, h, boundary="reflect") + 1e-3 * rng.standard_normal(s.shape)
    system, lam = _System(s, b, (3, 3)), 1e-3
    columns = np.stack([system.forward(np.eye(9)[i].reshape(3, 3)).ravel() for i in range(9)], axis=1)
    columns -= columns.mean(axis=0)
    gram = columns.T @ columns
    flat = np.arange(9).reshape(3, 3)
    rough = 4 * np.eye(9)
    for a, c in [*zip(flat[1:].ravel(), flat[:-1].ravel()), *zip(flat[:, 1:].ravel(), flat[:, :-1].ravel())]:
        rough[a, c] = rough[c, a] = -1
    gram += lam * system.power * system.b.size * rough
    expected = np.linalg.solve(gram, columns.T @ (system.b - system.b.mean()).ravel())
    assert np.abs(system.solved(lam).ravel() - expected).max() < 1e-5


def test_rotation_and_too_small_a_size_lower_the_status():
    from scipy.ndimage import rotate

    sharp, blurred = pair(KERNELS["gaussian"], noise=0.001)
    turned = rotate(sharp, 1.5, reshape=False, mode="reflect")
    assert psf.from_pair(turned, blurred, 13).status is not psf.PSFStatus.MEASURED
    small = psf.from_pair(*pair(KERNELS["disk"]), 5)
    assert small.status is not psf.PSFStatus.MEASURED
    assert "larger size" in small.why
    sky = deblur.data.load("camera").astype(float)
    far = psf.from_pair(sky[:200, :200], rotate(sky, 10, reshape=False)[:200, :200], 9)
    assert far.status is psf.PSFStatus.DOUBTFUL
    assert max(int(share) for share in re.findall(r"(\d+) %", far.why)) <= 100
