"""A PSF that is nearly right, corrected by the blurred image, against the PSF that blurred it."""

import numpy as np
import pytest
from PIL import Image
from scipy.signal import convolve2d

import deblur
from deblur import cli, image, psf
from deblur.psf import refining
from deblur.psf.estimate import placed


def blurred(truth, noise, seed=0, side=208):
    scene = deblur.data.load("camera")[100 : 100 + side, 100 : 100 + side]
    return deblur.degrade(scene, truth, noise=noise, boundary="unknown", seed=seed)


def distance(h, truth):
    return np.linalg.norm(placed(h, (41, 41)) - placed(truth, (41, 41)))


def path(angle):
    """A straight path one pixel wide on square pixels: interpolating between them would cost more than the angle."""
    return psf.resample(convolve2d(psf.motion(75, angle), psf.box(5)), 0.2)


MIXED = psf.disk(13, 3.0) * 0.3 + psf.disk(13, 6.0) * 0.7  # below photographed without regard to a tone curve
CASES = {
    "rotation": (path(30), path(32), 0.003, (-2.5, -1.5)),
    "scale": (psf.disk(11, 4.2), psf.disk(11, 4.0), 0.003, (1.01, 1.06)),
    "exponent": (MIXED, MIXED ** (1 / 1.8) / (MIXED ** (1 / 1.8)).sum(), 0.001, (1.6, 2.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_falls_to_two_fifths_and_its_cause_is_named(name):
    truth, given, noise, (low, high) = CASES[name]
    found = psf.refine(blurred(truth, noise), 3 * given)
    assert abs(found.psf.sum() - 3) < 1e-9
    assert found.psf.min() >= 0
    assert distance(found.psf / 3, truth) < 0.4 * distance(given, truth)
    assert name in found.details["changed"]
    assert low < found.details[name] < high
    assert found.error < found.details["error_before"]


def test_edges_agree_with_a_true_change_oppose_its_reverse_and_may_forbid_it(monkeypatch):
    truth, given, noise, _ = CASES["scale"]
    picture, change = blurred(truth, noise), np.array([0, np.log(1.05) / refining.PARAMETERS["scale"], 0])
    agreed, opposed = (refining._Posterior(picture, given)._agreement(0 * change, x) for x in (change, -change))
    assert opposed < -0.4 < 0.4 < agreed
    monkeypatch.setattr(refining._Posterior, "_agreement", lambda *_: -1.0)
    assert psf.refine(picture, given).details["changed"] == "nothing"


def test_the_command_corrects_a_file_as_the_sensor_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exif, given = Image.Exif(), path(32)  # turning it shows
    exif[274] = 6  # held sideways
    Image.fromarray(np.uint8(255 * blurred(path(30), 0.003, side=128).clip(0, 1))).save("photo.tif", exif=exif)
    psf.save("given.npy", given)
    assert cli.main(["psf", "refine", "photo.tif", "--psf", "given.npy", "-o", "better.npy", "--anyway"]) == 0
    expected = psf.refine(image.as_float(image.read("photo.tif")), psf.upright(given, 6)).psf
    np.testing.assert_allclose(psf.upright(np.load("better.npy"), 6), expected, atol=1e-12)


@pytest.mark.parametrize("noise", [0.0005, 0.02])
@pytest.mark.parametrize("coded", [False, True])
def test_an_exact_psf_is_given_back(noise, coded):
    truth = psf.camera_shake(15, 3)
    if coded:  # as by a mask in the aperture: zeros and light take turns along its border, too
        truth = np.random.default_rng(0).integers(0, 2, (15, 15)) / 128
    found = psf.refine(blurred(truth, noise), truth)
    assert np.array_equal(found.psf, truth)
    assert found.details["changed"] == "nothing"
    assert "as it was given" in found.why
