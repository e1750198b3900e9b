"""Formulas, images and arrays that give no PSF are refused with figures and advice."""

import math

import numpy as np
import pytest

import deblur
from deblur import psf

SCENE = deblur.data.load("camera")[100:260, 100:270]
NOISE, FLAT = np.random.default_rng(0).random(SCENE.shape), np.ones((90, 90))


def microscope(size=(9, 9, 9), voxel=(0.3, 0.1), **options):
    return psf.microscope(size, voxel, **{"wavelength": 0.5, "na": 1.2} | options)


FLAT_ONLY = (psf.disk, psf.moffat, psf.airy, psf.camera_shake)
REFUSED = [
    *(("size must be .* not .3, 3, 3.", lambda f=f: f((3, 3, 3), 2)) for f in FLAT_ONLY),
    ("at least 1 pixel", lambda: psf.motion(0.5)),
    ("angle must be finite", lambda: psf.motion(5, math.nan)),
    *(("beta", lambda beta=beta: psf.moffat(5, 2, beta)) for beta in (1, 0.3, math.nan, math.inf)),
    (r"odd .* not \(8, 9, 9\)", lambda: microscope((8, 9, 9))),
    ("voxel must be a positive finite number, not 0", lambda: microscope(voxel=(0, 0.1))),
    ("voxel must be a positive finite number, not .1, 2.", lambda: microscope(voxel=[[1, 2], [3]])),
    ("wavelengths: use smaller voxels", lambda: microscope(voxel=1e9)),
    ("index must be one number, .* not 'oil'", lambda: microscope(index="oil")),
    ("na = 1e-300", lambda: microscope(na=1e-300)),
    ("saturation must be .* not 'full'", lambda: psf.from_points(SCENE, saturation="full")),
    ("20 x 5 has more parts", lambda: psf.from_blurred(SCENE, grid=(20, 5))),
    (r"shape \(3,\) has no rows", lambda: psf.save("line.npy", np.ones(3))),
    ("region is not an array", lambda: psf.from_edge(SCENE, [[1, 2], [3]])),
    ("not -0.3", lambda: microscope(voxel=(-0.3, 0.1))),
    ("one for each of 2 axes", lambda: microscope(9, (0.3, 0.1, 0.1))),
    ("na = 1.6 must lie below .* 1.515", lambda: microscope(na=1.6)),
    ("1.33 here", lambda: microscope(na=1.35, index=(1.33, 1.4, 2))),
    ("index must be one number", lambda: microscope(index=(1.5, 1.4))),
    ("depth", lambda: microscope(index=(1.5, 1.4, -1))),
    ("micrometres.*520", lambda: microscope(wavelength=520)),
    ("richards-wolf, gibson-lanni, born-wolf", lambda: microscope(model="airy")),
    ("use gibson-lanni", lambda: microscope(model="born-wolf", index=(1.5, 1.3, 1))),
    ("no centre of gravity", lambda: psf.recentre(np.zeros((5, 5)))),
    (r"27 value\(s\) .* \(0, 0, 0\)\); replace .* of neighbours$", lambda: psf.recentre(np.full((3, 3, 3), np.nan))),
    ("set them to 0", lambda: deblur.tuning.psf_error(np.ones((99, 99)), np.full((3, 3), np.nan))),
    ("share of the light", lambda: psf.crop(psf.box(3), 1.5)),
    ("new pixels in one old pixel", lambda: psf.resample(psf.box(3), 0)),
    ("standard deviation", lambda: psf.denoise(psf.gaussian(9, 1), -1)),
    ("sum is zero or less", lambda: psf.prepare(-psf.box(3))),
    (r"must be .* \(planes, rows, columns\)", lambda: psf.prepare(np.zeros((3, 3, 3, 3)))),
    ("too small to check", lambda: psf.check(np.zeros((40, 40)), psf.box(3))),
    ("image is constant", lambda: psf.check(FLAT, psf.box(3))),
    ("image is constant", lambda: psf.refine(FLAT, psf.box(3))),
    ("too small", lambda: psf.refine(np.eye(40), psf.box(3))),
    ("zero or less", lambda: psf.refine(np.eye(80), np.zeros((3, 3)))),
    ("NaN", lambda: psf.refine(np.full((80, 80), np.nan), psf.box(3))),
    ("unknown kind.*moffat", lambda: psf.fit(np.eye(5), "circle")),
    ("image is constant", lambda: psf.fit(FLAT, "disk")),
    ("that is constant or has few pixels", lambda: psf.fit(np.zeros((9, 9)), of="psf")),
    ("from_points, from_edge", lambda: psf.fit(NOISE, "airy")),
    ("unknown of", lambda: psf.fit(NOISE, of="star")),
    ("too small", lambda: psf.fit(NOISE[:20, :20], of="image")),
    ("cut them to the same part", lambda: psf.from_pair(SCENE, SCENE[:-1], 9)),
    ("larger images or a smaller size", lambda: psf.from_pair(SCENE[:40, :40], SCENE[:40, :40], 21)),
    ("sharp image is constant", lambda: psf.from_pair(FLAT, SCENE[:90, :90], 9)),
    ("blurred image is constant", lambda: psf.from_pair(SCENE[:90, :90], FLAT, 9)),
    ("do not register.*tripod", lambda: psf.from_pair(SCENE, SCENE[:, ::-1], 9)),
    ("do not register", lambda: psf.from_pair(SCENE, NOISE, 9)),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_it_is_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()
