"""Preparing PSFs of instruments, against sums, moments and formulas; and PSFs of other packages."""

import numpy as np
import pytest

from deblur import psf
from deblur.psf.estimate import centre_of_gravity


@pytest.mark.parametrize("shape", [(21, 21), (20, 21), (22, 20)])
def test_recentring_moves_the_centre_of_gravity_and_keeps_the_sum(shape):
    y, x = (np.arange(n) - (n - 1) // 2 for n in shape)
    h = 3 * np.exp(-((y[:, None] - 2.3) ** 2 + (x[None, :] + 1.6) ** 2) / (2 * 1.5**2))
    moved = psf.recentre(h)
    assert np.abs(centre_of_gravity(moved)).max() < 1e-2
    assert moved.min() >= 0
    assert abs(moved.sum() - h.sum()) < 1e-9
    expected = np.exp(-(y[:, None] ** 2 + x[None, :] ** 2) / (2 * 1.5**2))
    assert np.abs(moved / moved.max() - expected).max() < 0.01


@pytest.mark.parametrize("energy", [0.5, 0.9, 0.999])
def test_cropping_keeps_the_energy_in_the_smallest_size(energy):
    h = psf.gaussian((41, 40), 3.0)
    small = psf.crop(h, energy)
    r, c = (20, 19)
    reach = small.shape[0] // 2
    kept = h[r - reach : r + reach + 1, c - reach : c + reach + 1]
    assert small.shape[0] % 2 == 1
    assert kept.sum() >= energy
    assert h[r - reach + 1 : r + reach, c - reach + 1 : c + reach].sum() < energy
    assert np.allclose(small, kept / kept.sum())
    assert np.array_equal(psf.crop(h, 1), h / h.sum())


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.5, 2.0])
def test_resampling_is_the_formula_on_other_pixels(scale):
    new = psf.resample(psf.gaussian(41, 3.0), scale)
    assert all(n % 2 for n in new.shape)
    sigma = np.hypot(3.0 * scale, (1 / 12) ** 0.5)  # the mean over a new pixel widens it
    expected = psf.gaussian(new.shape, sigma)
    assert np.abs(new - expected).max() < 0.01 * expected.max()
    assert np.allclose(new, new[::-1, ::-1], atol=1e-12)
    assert abs(new.sum() - 1) < 1e-12


def test_denoising_subtracts_the_background_and_improves_a_noisy_psf():
    h = psf.moffat(31, 4.0, 3.0)
    noisy = 100 * h / h.max() + 20 + np.random.default_rng(0).standard_normal(h.shape)
    clean = psf.denoise(noisy)
    rough = np.maximum(noisy - 20, 0) / np.maximum(noisy - 20, 0).sum()
    assert np.linalg.norm(clean - h) < 0.5 * np.linalg.norm(rough - h)
    assert clean.min() >= 0


def test_preparing_reports_its_changes_and_remaining_errors():
    h = psf.moffat((33, 33), 4.0, 2.5)
    off = np.roll(h, (3, -2), (0, 1))
    found = psf.prepare(off, energy=0.98)
    assert np.abs(np.array(found.details["moved"]) - (3, -2)).max() < 0.3
    assert 0 < found.details["energy_cut"] < 0.025
    assert 0.002 < found.details["energy_outside"] < 0.05
    tight = psf.prepare(psf.disk(9))
    assert tight.status is psf.PSFStatus.MEASURED
    assert np.allclose(tight.psf, psf.disk(9))
    dirty = psf.prepare(h + 0.2 * h.max())
    assert not dirty.status.ok
    assert "clean=True" in dirty.why
    assert psf.prepare(h + 0.2 * h.max(), clean=True).status.ok
    assert psf.prepare(h, size=(9, 8)).psf.shape == (9, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: psf.recentre(np.zeros((5, 5))), "no centre of gravity"),
        (lambda: psf.crop(psf.box(3), 1.5), "share of the light"),
        (lambda: psf.resample(psf.box(3), 0), "new pixels in one old pixel"),
        (lambda: psf.denoise(psf.gaussian(9, 1), -1), "standard deviation"),
        (lambda: psf.prepare(-psf.box(3)), "sums to zero or less"),
        (lambda: psf.prepare(np.zeros((3, 3, 3))), "must be"),
    ],
)
def test_bad_input_is_refused_with_advice(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_other_packages_psfs_are_centred_and_their_own():
    made = pytest.importorskip("psfmodels").make_psf([0.0], nx=15, dxy=0.1, wvl=0.52, NA=1.2)[0]
    ours = psf.microscope(15, 0.1, wavelength=0.52, na=1.2)
    assert np.allclose(ours, made / made.sum())
    assert np.unravel_index(ours.argmax(), ours.shape) == (7, 7)
    with pytest.raises(ValueError, match="one odd number"):
        psf.microscope(14, 0.1, wavelength=0.52, na=1.2)


def test_gohlkes_confocal_psf_is_mirrored_to_the_whole():
    if not hasattr(pytest.importorskip("psf"), "PSF"):  # this folder is a namespace package of the same name
        pytest.skip("the package psf is not installed")
    h = psf.confocal(21, 0.05, ex_wavelen=488.0, em_wavelen=520.0, pinhole_radius=0.55)
    assert h.shape == (21, 21)
    assert np.unravel_index(h.argmax(), h.shape) == (10, 10)
    assert np.allclose(h, h.T, atol=1e-12)
    assert np.allclose(h, h[::-1], atol=1e-15)
    with pytest.raises(ValueError, match="kind must be"):
        psf.confocal(21, 0.05, kind="x")


def test_a_photutils_model_is_sampled_at_its_own_place():
    models = pytest.importorskip("photutils.psf")
    h = psf.from_photutils(models.CircularGaussianSigmaPRF(x_0=100.0, y_0=50.0, sigma=1.5), (15, 13))
    assert h.shape == (15, 13)
    assert np.abs(centre_of_gravity(h)).max() < 1e-3
    assert abs(psf.fit(h, "gaussian").details["sigma_rows"] - np.hypot(1.5, (1 / 12) ** 0.5)) < 0.01
    with pytest.raises(TypeError, match="model of photutils"):
        psf.from_photutils(3, 9)
    with pytest.raises(ImportError, match="pip install"):
        psf.packages._package("no_such_package_of_psfs")
