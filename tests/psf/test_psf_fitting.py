"""Formulas fitted to PSFs and to blurred pictures, against the parameters that made them."""

import numpy as np
import pytest

import deblur
from deblur import psf
from deblur.psf.estimate import shift
from deblur.psf.spectra import PictureSpectrum

CASES = {
    "gaussian": (psf.gaussian(21, (1.3, 2.1)), {"sigma_rows": 1.3, "sigma_columns": 2.1}),
    "moffat": (psf.moffat(27, 4.0, 2.7), {"fwhm": 4.0, "beta": 2.7}),
    "disk": (psf.disk(13, 4.3), {"radius": 4.3}),
    "airy": (psf.airy(23, 3.3), {"radius": 3.3}),
    "motion": (np.pad(psf.motion(11.5, 33), 2), {"length": 11.5, "angle": 33.0}),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_parameters_of_a_psf_come_back(kind):
    h, truth = CASES[kind]
    found = psf.fit(h, kind)
    for name, value in truth.items():
        assert abs(found.details[name] - value) < 1e-4
    assert found.details["data_residual"] < 1e-5
    assert found.status is psf.PSFStatus.MEASURED
    assert psf.fit(h).details["kind"] == kind


@pytest.mark.parametrize("kind", CASES)
def test_intervals_hold_the_truth_of_noisy_displaced_counts(kind):
    h, truth = CASES[kind]
    rng, inside = np.random.default_rng(0), []
    for _ in range(6):
        moved = shift(h, (0.3, -0.4)) if kind in ("gaussian", "moffat", "airy") else h
        picture = 500 * moved / h.max() + 20 + 4 * rng.standard_normal(h.shape)
        found = psf.fit(picture, kind, of="psf")
        for name, value in truth.items():
            low, high = found.details[f"{name}_interval"]
            inside.append(low <= value <= high)
            assert high - low < 0.2 * value
        if kind in ("gaussian", "airy"):
            middle = (np.array(h.shape) - 1) // 2
            assert np.abs(np.array(found.details["place"]) - middle - (0.3, -0.4)).max() < 0.1
    assert np.mean(inside) > 0.7


def test_a_round_gaussian_is_no_moffat_and_a_moffat_no_gaussian(rng):
    """Both have two parameters, and one of a round Gaussian is left to follow the noise, as is beta of the Moffat."""
    for h, kind in ((psf.gaussian(17, 2.0), "gaussian"), (psf.moffat(17, 4.5, 5.0), "moffat")):
        noisy = h / h.max() + 0.01 * rng.standard_normal((16, *h.shape))
        assert [psf.fit(a, of="psf").details["kind"] for a in noisy] == [kind] * 16


def test_a_wrong_kind_is_reported():
    found = psf.fit(psf.disk(15, 5.0), "gaussian")
    assert found.details["data_residual"] > 0.1
    assert found.status is not psf.PSFStatus.MEASURED
    assert "another kind" in found.why


def blurred(h, noise=0.005, part=np.s_[100:360, 100:360]):
    return deblur.degrade(deblur.data.load("camera")[part], h, noise=noise, boundary="unknown", seed=0)


def test_defocus_is_found_in_an_image_alone():
    found = psf.fit(blurred(psf.disk(11, 4.3)), "disk")
    low, high = found.details["radius_interval"]
    assert low <= 4.3 <= high < low + 0.4
    assert found.status is psf.PSFStatus.ROUGH  # never more, without a picture of a point
    wrong = psf.disk(found.psf.shape, 4.3)
    assert np.linalg.norm(found.psf - wrong) / np.linalg.norm(wrong) < 2 * found.error


def test_motion_is_found_in_an_image_alone_and_not_taken_for_defocus():
    found = psf.fit(blurred(psf.motion(13, 25)))
    assert found.details["kind"] == "motion"
    assert abs(found.details["length"] - 13) < 0.3
    assert abs(found.details["angle"] - 25) < 1.0
    assert found.details["length_interval"][0] <= 13 <= found.details["length_interval"][1]
    assert found.status is psf.PSFStatus.ROUGH
    line = psf.fit(psf.motion(13, 0)).details  # one row
    assert (line["kind"], round(line["length"], 3), np.round(line["place"], 3).tolist()) == ("motion", 13, [0, 6])


STARS = deblur.degrade(np.random.default_rng(4).random((64, 64)) < 0.01, psf.gaussian(7, 1.3), noise=0.002, seed=4)


@pytest.mark.parametrize("picture", [*map(blurred, [psf.delta(3), psf.gaussian(11, 1.5)]), STARS])
def test_a_spectrum_without_zeros_gives_no_trusted_blur(picture):
    found = psf.fit(picture, "disk", of="image")
    assert not found.status.ok
    assert "no clear zeros" in found.why


def test_the_spectrum_of_noise_is_flat_and_that_of_a_blur_is_followed():
    rng = np.random.default_rng(0)
    scene = rng.standard_normal((256, 256))
    h = psf.disk(9, 3.2)
    picture = deblur.degrade(scene, h, boundary="periodic") + 0.02 * rng.standard_normal(scene.shape)
    spectrum = PictureSpectrum(picture)
    right, model = spectrum.fit(spectrum.transfer(h))
    bright = spectrum.transfer(h) > 0.1
    assert np.mean((spectrum.power / model)[bright]) == pytest.approx(1, abs=0.15)
    wrong, _ = spectrum.fit(spectrum.transfer(psf.disk(9, 2.7)))
    assert right < 0.7 * min(spectrum.without_blur[0], wrong)
    _, depth = spectrum.matched(np.stack([spectrum.transfer(h), spectrum.transfer(psf.disk(9, 2.0))]))
    assert abs(depth[0] - 1) < 0.3
    assert depth[1] < 0.5


def test_a_bad_fit_is_reported_in_plain_numbers():
    told = str(psf.fit(psf.camera_shake(13, 11)))
    assert "error       1" in told
    assert "e+" not in told
