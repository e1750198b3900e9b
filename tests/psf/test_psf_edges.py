"""PSFs measured from slanted edges, against edges that were drawn exactly and blurred with a known PSF."""

import math

import numpy as np
import pytest

import deblur
from deblur import psf
from deblur.psf.edges import ideal
from deblur.psf.estimate import placed


def covered(t, normal):
    """The part of a pixel beyond a line, from 200 x 200 points in it: what the exact formula must give."""
    u = (np.arange(200) + 0.5) / 200 - 0.5
    return (t + u[:, None] * normal[0] + u[None, :] * normal[1] > 0).mean()


def edge(degrees, side=100, dark=0.2, bright=0.8, bend=0.0):
    a = math.radians(degrees)
    normal = np.array([math.sin(a), math.cos(a)])
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    t = y * normal[0] + x * normal[1] + 0.13 + bend * (2 * (x * normal[0] - y * normal[1]) / side) ** 2
    # Between one pixel before and after the line, eight by eight points of each pixel.
    u = (np.arange(8) + 0.5) / 8 - 0.5
    within = t[..., None, None] + u[:, None] * normal[0] + u * normal[1]
    return dark + (bright - dark) * np.clip(8 * within + 0.5, 0, 1).mean(axis=(-1, -2))


def photograph(h, degrees=5.0, noise=0.004, seed=0, **how):
    picture = deblur.degrade(edge(degrees, 110, **how), h, noise=noise, boundary="reflect", seed=seed)
    return picture[15:-15, 15:-15]


def relative_error(found, expected):
    shape = (51, 51)
    expected = placed(expected, shape)
    return np.linalg.norm(placed(found, shape) - expected) / np.linalg.norm(expected)


ROUND = {
    "gaussian": (psf.gaussian(21, 1.4), 0.03),
    "narrow": (psf.gaussian(11, 0.7), 0.03),
    "moffat": (psf.moffat(41, 4.0, 2.5), 0.03),
    "disk": (psf.disk(13, 3.3), 0.05),
    "airy": (psf.airy(31, 4.0), 0.1),
}


@pytest.mark.parametrize("name", ROUND)
def test_one_edge_gives_a_round_psf(name):
    h, limit = ROUND[name]
    found = psf.from_edge(photograph(h))
    assert relative_error(found.psf, h) < limit
    assert found.status is psf.PSFStatus.MEASURED
    assert relative_error(found.psf, h) < 2.5 * found.error < 0.25
    assert found.psf.min() >= 0
    assert abs(found.psf.sum() - 1) < 1e-12


@pytest.mark.parametrize("degrees", [-8, 4, 20, 94, 172, 265])
def test_edges_of_any_direction_give_the_same(degrees):
    h = psf.gaussian(21, 1.4)
    found = psf.from_edge(photograph(h, degrees), size=15)
    assert relative_error(found.psf, h) < 0.04
    assert abs(found.details["angle"][0] - min(abs((degrees % 90) - a) for a in (0, 45, 90))) < 0.2


def test_the_mtf_is_that_of_the_psf_and_the_pixel():
    sigma = 1.3
    found = psf.from_edge(photograph(psf.gaussian(21, sigma), 4, noise=0.001))
    f = found.details["frequency"]
    a = math.radians(4)
    pixel = np.sinc(f * math.cos(a)) * np.sinc(f * math.sin(a))
    expected = np.exp(-2 * (math.pi * sigma * f) ** 2) * np.abs(pixel)
    below = f < 0.4
    assert np.abs(found.details["mtf"] - expected)[below].max() < 0.02
    assert abs(np.gradient(found.details["distance"]) @ found.details["line_spread"] - 1) < 1e-9
    assert abs(found.details["mtf50"] - np.interp(0.5, expected[below][::-1], f[below][::-1])) < 0.01


def two_edges(h, noise=0.004):
    scene = np.concatenate([edge(6, 110), edge(97, 110)], axis=1)
    return deblur.degrade(scene, h, noise=noise, boundary="reflect", seed=1)


REGIONS = [(10, 100, 10, 100), (10, 100, 120, 210)]


def test_two_edges_give_an_ellipse_and_one_cannot():
    h = psf.gaussian(25, (1.2, 2.2))
    found = psf.from_edge(two_edges(h), REGIONS)
    assert relative_error(found.psf, h) < 0.06
    assert abs(found.details["stretch"] - 2.2 / 1.2) < 0.1
    assert relative_error(psf.from_edge(two_edges(h), REGIONS[0]).psf, h) > 0.2


def test_three_edges_find_a_tilted_ellipse():
    y, x = np.mgrid[-12:13, -12:13]
    u, v = (y + x) / 2**0.5, (y - x) / 2**0.5
    h = np.exp(-(u**2) / (2 * 2.2**2) - v**2 / (2 * 1.2**2))
    h /= h.sum()
    scene = np.concatenate([edge(6, 80), edge(97, 80), edge(36, 80)], axis=1)
    picture = deblur.degrade(scene, h, noise=0.003, boundary="reflect", seed=1)
    regions = [(5, 75, 5 + 80 * i, 75 + 80 * i) for i in range(3)]
    assert relative_error(psf.from_edge(picture, regions, size=21).psf, h) < 0.1
    assert relative_error(psf.from_edge(picture, regions[:2], size=21).psf, h) > 0.2  # two do not show the tilt


def test_the_edge_is_found_in_a_larger_picture():
    scene = np.full((260, 300), 0.2)
    scene[60:170, 120:230] = edge(6, 110)
    scene[:, 230:] = scene[:, 229:230]
    scene[200:, :100] = deblur.data.load("camera")[:60, :100]
    h = psf.gaussian(17, 1.5)
    found = psf.from_edge(deblur.degrade(scene, h, noise=0.003, boundary="reflect", seed=2))
    top, bottom, left, right = found.details["regions"][0]
    assert 40 <= top < bottom <= 190
    assert 100 <= left < right <= 250
    assert relative_error(found.psf, h) < 0.05


def test_a_sharpened_or_saturated_edge_is_doubtful():
    h = psf.gaussian(17, 1.2)
    picture = photograph(h)
    sharpened = 2 * picture - deblur.degrade(picture, psf.gaussian(17, 2), boundary="reflect")
    found = psf.from_edge(sharpened)
    assert not found.status.ok
    assert "sharpened" in found.why
    clipped = psf.from_edge(np.minimum(photograph(h, bright=1.2), 1.0))
    assert not clipped.status.ok
    assert "saturated" in clipped.why


def test_uneven_light_is_allowed_for():
    h = psf.gaussian(17, 1.5)
    picture = photograph(h) + 0.05 * np.linspace(0, 1, 80)
    assert relative_error(psf.from_edge(picture, size=15).psf, h) < 0.05


WHOLE, GOOD = (0, 80, 0, 80), {"h": psf.gaussian(9, 1)}


@pytest.mark.parametrize(
    ("image", "region", "message"),
    [
        (GOOD | {"degrees": 0.0}, WHOLE, "not slanted.*3 to 10 degrees"),
        (GOOD | {"degrees": 45.0}, WHOLE, "not slanted"),
        (GOOD | {"bend": 6}, WHOLE, "not straight: it bends by"),
        (GOOD | {"noise": 0.1}, WHOLE, "too faint"),
        (np.full((80, 80), 0.3), WHOLE, "no edge"),
        (np.full((80, 80), 0.3), None, "no straight, slanted edge.*region="),
        (np.random.default_rng(0).random((80, 80)), WHOLE, "no straight edge|too faint|no edge"),
        (GOOD, (0, 80, 50, 90), "is not inside an image"),
        (GOOD, (0, 10, 0, 80), "too small"),
        (GOOD, (0, 10), "four whole numbers"),
        (GOOD, [(0, 40, 0, 80), (40, 80, 0, 80)], "same direction"),
        (np.zeros((80, 80, 3)), None, "take one channel"),
    ],
)
def test_an_image_without_a_slanted_edge_is_refused_with_advice(image, region, message):
    with pytest.raises(ValueError, match=message):
        psf.from_edge(photograph(**image) if isinstance(image, dict) else image, region)


@pytest.mark.parametrize("degrees", [0, 5, 30, 45, 90, 200])
@pytest.mark.parametrize("t", [-0.8, -0.3, 0.0, 0.2, 0.6])
def test_an_ideal_edge_covers_the_area_of_points_in_the_pixel(degrees, t):
    normal = np.array([math.sin(math.radians(degrees)), math.cos(math.radians(degrees))])
    assert abs(ideal(np.array([t]), normal)[0] - covered(t, normal)) < 6e-3
