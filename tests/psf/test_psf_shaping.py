"""Preparing PSFs of instruments, against sums, moments and formulas."""

import numpy as np
import pytest

import deblur
from deblur import psf
from deblur.errors import PSFWarning
from deblur.psf.estimate import centre_of_gravity, placed


@pytest.mark.parametrize("shape", [(21, 21), (20, 21), (22, 20), (19, 21, 20)])
def test_recentring_moves_the_centre_of_gravity_and_keeps_the_sum(shape):
    def bell(*away):
        lines = (np.arange(n) - (n - 1) // 2 - a for n, a in zip(shape, away, strict=True))
        return np.exp(-sum(line**2 for line in np.ix_(*lines)) / (2 * 1.5**2))

    h = 3 * bell(*(2.3, -1.6, 0.4)[: len(shape)])
    moved = psf.recentre(h)
    assert np.abs(centre_of_gravity(moved)).max() < 1e-2
    assert moved.min() >= 0
    assert abs(moved.sum() - h.sum()) < 1e-9
    assert np.abs(moved / moved.max() - bell(*[0] * len(shape))).max() < 0.01


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


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.5, 2.0, (1.5, 0.7, 1.0)])
def test_resampling_is_the_formula_on_other_pixels(scale):
    scales = np.ravel(scale) if np.ndim(scale) else np.repeat(scale, 2)
    for sigma, error in ((3.0, 1e-4), (1.0, 0.01), (0.5, 0.1)):  # in old pixels
        new = psf.resample(psf.gaussian((41,) * len(scales), sigma, integrated=True), scale)
        assert all(n % 2 for n in new.shape)
        expected = psf.gaussian(new.shape, tuple(sigma * scales), integrated=True)
        assert np.abs(new - expected).max() < error * expected.max()
    assert np.allclose(new, np.flip(new), atol=1e-12)
    assert abs(new.sum() - 1) < 1e-12


def test_a_psf_is_brought_to_the_voxels_of_the_image():
    h = psf.gaussian((21, 25, 25), (2.0, 3.0, 3.0), integrated=True)
    same = psf.gaussian((31, 19, 19), (3.0, 2.25, 2.25), integrated=True)  # of 0.2 by 0.1333 in place of 0.3 by 0.1
    found = placed(psf.for_voxels(h, (0.3, 0.1), (0.2, 0.4 / 3)), same.shape)
    assert np.abs(found - same).max() < 1e-3 * same.max()
    assert np.array_equal(psf.for_voxels(h, (0.3, 0.1), (0.3, 0.1, 0.1004)), h)
    assert np.array_equal(psf.for_voxels(h, None, None), h)
    with pytest.warns(PSFWarning, match=r"image's voxels along Z, Y, X is not known, the other's is \(0.3, 0.1, 0.1\)"):
        assert np.array_equal(psf.for_voxels(h, (0.3, 0.1), None), h)
    with pytest.warns(PSFWarning, match=r"PSF's voxels along Z is not known, the other's is \(0.2\)"):
        partly = psf.for_voxels(h, (np.nan, 0.1), (0.2, 0.4 / 3))
    assert np.array_equal(partly, psf.resample(h, (1, 0.75, 0.75)))
    with pytest.warns(PSFWarning, match=r"axis 0 .* 1 are larger than the image's of 0.25, and too coarse"):
        psf.for_voxels(psf.gaussian((5, 15, 15), (0.5, 2)), (1.0, 0.1), (0.25, 0.1))
    with pytest.raises(ValueError, match="voxel must be a positive finite number, not -0.3"):
        psf.for_voxels(h, (-0.3, 0.1), (0.3, 0.1))


def test_denoising_subtracts_the_background_and_improves_a_noisy_psf():
    h = psf.moffat(31, 4.0, 3.0)
    noisy = 100 * h / h.max() + 20 + np.random.default_rng(0).standard_normal(h.shape)
    clean = psf.denoise(noisy)
    rough = np.maximum(noisy - 20, 0) / np.maximum(noisy - 20, 0).sum()
    assert np.linalg.norm(clean - h) < 0.5 * np.linalg.norm(rough - h)
    assert clean.min() >= 0
    assert np.linalg.norm(psf.denoise(np.maximum(noisy - 20, 0)) - h) < 0.8 * np.linalg.norm(rough - h)


def test_preparing_reports_its_changes_and_remaining_errors():
    h = psf.moffat((33, 33), 4.0, 2.5)
    found = psf.prepare(np.roll(h, (3, -2), (0, 1)), energy=0.98)
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
    deep = psf.prepare(np.pad(psf.gaussian((11, 13, 13), 1.5), ((6, 0), (0, 0), (0, 0))), size=(9, 11, 11))
    assert np.allclose(deep.details["moved"], (3, 0, 0), atol=1e-9)
    assert np.allclose(deep.psf, psf.gaussian((9, 11, 11), 1.5), atol=2e-5)


EXACT = {f"shake {n}": psf.camera_shake(n, n) for n in (9, 13, 21, 25, 41, 65)}
EXACT |= {"line": psf.motion(9), "part of a pixel": psf.motion(9.5), "slanted": psf.motion(41, 30), "box": psf.box(7)}
EXACT |= {"volume": np.stack([psf.camera_shake(21, seed) for seed in range(4)])}


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_psf_that_fills_its_frame_is_not_called_cut_off(name):
    found = psf.prepare(EXACT[name], centred=False)
    assert found.status is psf.PSFStatus.MEASURED, found.why
    assert not any(found.details[key] for key in ("background", "noise", "energy_outside"))


H, SCENE = psf.gaussian(15, 1.5), deblur.data.load("camera")[100:196, 100:196]
ROWS, COLUMNS = np.mgrid[:96, :96] - 48
STARS, EDGE = np.pad(np.eye(3), 45), np.clip(COLUMNS + 0.1 * ROWS, 0, 1)
BLURRED, STARS, EDGE = (deblur.degrade(a, H, noise=1e-4, boundary="reflect", seed=0) for a in (SCENE, STARS, EDGE))
MEASURED = {
    "edge": lambda unit: psf.from_edge(EDGE * unit),
    "points": lambda unit: psf.from_points(STARS * unit, (46, 46), 9),
    "pair": lambda unit: psf.from_pair(SCENE * unit, BLURRED * unit, 9),
    "fit": lambda unit: psf.fit(BLURRED[:15, :15] * unit, "gaussian", of="psf"),
    "prepare": lambda unit: psf.prepare(H * unit, clean=True, energy=0.99),
    "check": lambda unit: psf.check(BLURRED * unit, H * unit),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_unit_of_the_values_does_not_matter(name):
    def measured(unit):
        found = MEASURED[name](unit)
        numbers = (found.details.get(key, 0) for key in ("gain", "energy_outside", "evidence", "mtf50"))
        return np.array([*found.psf.ravel(), getattr(found, "error", 0), *numbers])

    for unit in (2.0**10, 2.0**1000, 2.0**-1000):
        np.testing.assert_allclose(measured(unit), measured(1.0), rtol=1e-12)
