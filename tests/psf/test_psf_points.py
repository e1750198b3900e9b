"""PSFs measured from points: against the formula that drew the points, at any fraction of a pixel."""

import numpy as np
import pytest
from refusals import refused
from structured import relative_error

import deblur
from deblur import psf
from deblur.psf.estimate import centre_of_gravity, placed, shift


def blob(y, x, sigma=1.6, tail=0.0):
    """A round bell, and beside it a weaker one: (y, x) from its centre."""
    first = np.exp(-(y**2 + x**2) / (2 * sigma**2))
    return (first + tail * np.exp(-((y - 3) ** 2 + (x - 2) ** 2) / (2 * 2.0**2))) / (2 * np.pi * sigma**2)


def field(places, flux, shape=(160, 150), noise=0.003, profile=blob, background=0.2, seed=0):
    y, x = np.indices(shape)
    picture = background + noise * np.random.default_rng(seed).standard_normal(shape)
    for (r, c), f in zip(places, flux, strict=True):
        near = (slice(max(int(r) - 20, 0), int(r) + 22), slice(max(int(c) - 20, 0), int(c) + 22))
        picture[near] += f * profile(y[near] - r, x[near] - c)
    return picture


def scattered(k, seed=1, shape=(160, 150), apart=24):
    rng, places = np.random.default_rng(seed), []
    while len(places) < k:
        new = rng.uniform(12, np.array(shape) - 13)
        if all(np.abs(new - old).max() > apart for old in places):
            places.append(new)
    return np.array(places), rng.uniform(3, 20, k)


def truth(shape, profile=blob):
    y, x = (np.arange(n) - (n - 1) // 2 for n in shape)
    h = profile(y[:, None], x[None, :])
    return h / h.sum()


@pytest.mark.parametrize("size", [None, 15, (14, 17)])
def test_finds_and_averages_stars_at_fractions_of_a_pixel(size):
    places, flux = scattered(16)
    found = psf.from_points(field(places, flux), size=size)
    assert size is None or found.psf.shape == (size if isinstance(size, tuple) else (size, size))
    assert found.details["points"] == 16
    assert relative_error(placed(found.psf, (25, 25)), truth((25, 25))) < 0.02
    assert found.status is psf.PSFStatus.MEASURED
    assert found.psf.min() >= 0
    assert abs(found.psf.sum() - 1) < 1e-12
    assert np.abs(centre_of_gravity(found.psf)).max() < 0.03
    away = np.abs(found.details["positions"][:, None] - places[None]).max(axis=2)
    assert away.min(axis=0).max() < 0.06  # each is where it was put
    assert np.allclose(found.details["flux"], flux[away.argmin(axis=1)], rtol=0.02)


@pytest.mark.parametrize("noise", [0.003, 0.02, 0.06])
def test_the_estimated_error_is_of_the_right_size(noise):
    found = psf.from_points(field(*scattered(12, seed=3), noise=noise, seed=4), size=15)
    assert 0.2 * found.error < relative_error(found.psf, truth((15, 15))) < 2 * found.error


@pytest.mark.parametrize(
    ("profile", "size", "limit"),
    [
        (lambda y, x: blob(y, x, 1.5, 0.3), 19, 0.03),
        (lambda y, x: blob(y, x, 0.7), 9, 0.04),  # Fourier shifts alone leave 0.06
        (lambda y, x: (1 + (y**2 + x**2) / 2.5**2) ** -2.5, 9, 0.012),  # 0.02 without the fitted pedestal
        (lambda y, x: (1 + (y**2 + x**2) / 2.5**2) ** -2.5, 15, 0.012),
    ],
)
def test_an_asymmetric_a_narrow_and_a_wide_psf_keep_their_shape(profile, size, limit):
    found = psf.from_points(field(*scattered(16), profile=profile), size=size)
    away = centre_of_gravity(truth((41, 41), profile))
    expected = truth((size, size), lambda y, x: profile(y + away[0], x + away[1]))
    assert relative_error(found.psf, expected) < limit


def test_neighbours_wide_blobs_and_hot_pixels_do_not_enter():
    places, flux = scattered(14, seed=6)
    rng = np.random.default_rng(7)
    turn = rng.uniform(0, 2 * np.pi, 14)
    beside = places + 7 * np.stack([np.sin(turn), np.cos(turn)], axis=1)
    picture = field(places, flux) + field(beside, 0.1 * flux, noise=0, background=0)  # each has a companion
    picture[rng.integers(0, 160, 8), rng.integers(0, 150, 8)] += 4  # hot pixels
    picture += field([(80.3, 75.2)], [60], noise=0, background=0, profile=lambda y, x: blob(y, x, 4.0))
    found = psf.from_points(picture, size=15)
    assert relative_error(found.psf, truth((15, 15))) < 0.04
    assert "of another shape" in found.details["left_out"]


@pytest.mark.parametrize("kind", ["clipped", "integers", "given"])
def test_saturated_stars_are_left_out(kind):
    places, flux = scattered(10, seed=8)
    flux[:4] = 40
    picture = field(places, flux)
    if kind == "clipped":
        picture = np.minimum(picture, 1)
    elif kind == "integers":
        picture = (np.clip(picture, 0, 1) * 255).round().astype(np.uint8)
    found = psf.from_points(picture, size=13, saturation=0.9 if kind == "given" else None)
    level = 0.9 if kind == "given" else picture.max()
    saturated = sum((picture[int(r) - 1 : int(r) + 3, int(c) - 1 : int(c) + 3] >= level).any() for r, c in places)
    assert 3 < saturated < 9
    assert f"{saturated} saturated" in found.details["left_out"]
    assert relative_error(found.psf, truth((13, 13))) < 0.06


def test_beads_of_a_volume_are_aligned_and_averaged():
    def bead(z, y, x):
        return blob(y, x) * (np.exp(-(z**2) / 11) + 0.3 * np.exp(-((z - 3) ** 2) / 9))

    rng, shape = np.random.default_rng(0), (35, 110, 100)
    places = np.concatenate([rng.uniform(15, 19, (9, 1)), scattered(9, shape=shape[1:])[0]], axis=1)
    volume = 0.2 + 0.01 * rng.standard_normal(shape)
    for z, y, x in places:
        volume += rng.uniform(20, 80) * bead(*np.ix_(np.arange(35) - z, np.arange(110) - y, np.arange(100) - x))
    volume[rng.integers(0, 35, 3), rng.integers(0, 110, 3), rng.integers(0, 100, 3)] = 3  # hot voxels
    expected = psf.recentre(bead(*np.ix_(*[np.arange(-20, 21)] * 3)))
    for options in ({}, {"size": (19, 15, 15)}, {"positions": np.rint(places[:6]) + 1}):
        found = psf.from_points(volume, **options)
        same = placed(expected, found.psf.shape)
        assert relative_error(found.psf, same / same.sum()) < min(0.05, 2 * found.error)
        assert found.status.ok
        assert np.abs(centre_of_gravity(found.psf)).max() < 0.1
        away = np.abs(found.details["positions"][:, None] - places)
        assert away[:, :, 1:].max(axis=2).min(axis=1).max() < 0.1
    for options, words in (
        ({"grid": (2, 2)}, "grid=.2, 2. is for images"),
        ({"size": (37, 15, 15)}, r"\(37, 15, 15\) is more .* 35 x 110 x 100 .* planes"),
        ({"positions": [(3, 4)]}, r"\(k, 3\) finite numbers, plane, row, column"),
    ):
        refused(ValueError, words, psf.from_points, volume, **options)


@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_noise_finer_than_the_step_of_the_numbers_makes_no_points(noise):
    found = psf.from_points(np.rint(100 * field(*scattered(16), noise=noise / 100)), size=15)
    assert found.details["points"] == 16
    assert relative_error(found.psf, truth((15, 15))) < 0.02


@pytest.mark.parametrize(("background", "status"), [(0.0, "MEASURED"), (-0.01, "ROUGH")])
def test_noise_that_was_cut_off_at_black_makes_no_points(background, status):
    found = psf.from_points(np.maximum(field(*scattered(16), noise=0.02, background=background), 0), size=15)
    assert (found.details["points"], found.status.name) == (16, status)
    assert relative_error(found.psf, truth((15, 15))) < 0.07  # some of the faint wings was cut off, too


def test_only_given_positions_are_used():
    places, flux = scattered(9, seed=9)
    found = psf.from_points(field(places, flux), positions=np.rint(places[:5]) + 1, size=13)
    assert found.details["points"] == 5
    assert relative_error(found.psf, truth((13, 13))) < 0.03


def test_the_map_follows_a_varying_psf_and_is_constant_otherwise():
    rng = np.random.default_rng(10)
    shape = (300, 300)
    places = np.array([(r, c) for r in range(20, 300, 37) for c in range(20, 300, 37)]) + rng.uniform(-1, 1, (64, 2))
    y, x = np.indices(shape)

    picture = 0.003 * rng.standard_normal(shape)
    for r, c in places:
        picture += 10 * blob(y - r, x - c, 1.2 + 0.8 * c / 299)
    found = psf.from_points(picture, size=15, grid=(2, 3))
    assert found.details["variation"] > 0.1
    assert found.status is psf.PSFStatus.ROUGH
    assert found.map.psfs.shape == (2, 3, 15, 15)
    for at, h in zip(found.map.positions.reshape(-1, 2), found.map.psfs.reshape(-1, 15, 15), strict=True):
        expected = truth((15, 15), lambda y, x, sigma=1.2 + 0.8 * at[1] / 299: blob(y, x, sigma))
        assert relative_error(h, expected) < 0.06, at
    deblur.VaryingBlur(found.map.psfs, shape)
    still = psf.from_points(field(*scattered(16)), size=15, grid=(2, 2))
    assert still.details["variation"] < 0.02
    assert relative_error(still.map.psfs[0, 1], truth((15, 15))) < 0.05


def test_every_star_is_centred_by_the_psf_of_its_place():
    """A comet whose tail grows with the distance from the middle: no polynomial, and the mean PSF centres no star."""
    shape, rng = (320, 320), np.random.default_rng(12)
    places = np.array([(r, c) for r in range(18, 310, 32) for c in range(18, 310, 32)]) + rng.uniform(-6, 6, (100, 2))

    def comet(y, x, row, column):
        away = np.array([row, column]) / 319 - 0.5
        tail = sum(np.exp(-((y - t * away[0]) ** 2 + (x - t * away[1]) ** 2) / 3.4) for t in (3, 5))
        sigma = 1.1 + np.hypot(*away)
        return np.exp(-(y**2 + x**2) / (2 * sigma**2)) + 0.3 * tail

    picture = np.zeros(shape)
    for r, c in places:
        picture += field([(r, c)], [rng.uniform(2, 8)], shape, 0, lambda y, x, at=(r, c): comet(y, x, *at), 0)
    picture += 0.003 * rng.standard_normal(shape)
    found = psf.from_points(picture, size=21, grid=(4, 4))
    for at, h in zip(found.map.positions.reshape(-1, 2), found.map.psfs.reshape(-1, 21, 21), strict=True):
        expected = truth((41, 41), lambda y, x, at=at: comet(y, x, *at))
        assert np.abs(centre_of_gravity(h)).max() < 1e-3
        assert relative_error(h, placed(psf.recentre(expected), (21, 21))) < 0.05


def test_an_estimate_restores_an_image_and_warns_if_doubtful():
    places, flux = scattered(12)
    found = psf.from_points(field(places, flux), size=13)
    blurred = deblur.degrade(deblur.data.load("camera64"), truth((13, 13)), noise=0.002, seed=0)
    restored = deblur.reconstruct(blurred, found, 1e-3, boundary="zero")
    assert np.array_equal(restored, deblur.reconstruct(blurred, found.psf, 1e-3, boundary="zero"))
    one = psf.from_points(field(places[:1], [0.25], noise=0.004), size=21)
    assert not one.status.ok
    with pytest.warns(UserWarning, match="this PSF is unreliable"):
        deblur.reconstruct(blurred, one, 1e-3, boundary="zero")
    assert "doubtful" in str(one)


@pytest.mark.parametrize(
    ("picture", "options", "message"),
    [
        (np.random.default_rng(0).standard_normal((64, 64)), {}, "no point rises"),
        (np.ones((60, 60)), {}, "no point rises"),
        (np.zeros((21, 60, 60)), {}, "no point rises"),
        (np.zeros((5, 5)), {}, "no room"),
        (np.zeros((64, 64, 3)), {}, "take one channel"),
        (np.full((64, 64), np.nan), {}, "NaN"),
        (field([(40, 40)], [5]), {"positions": [(40, 400)]}, r"outside .* \(row, column\)"),
        (field([(40, 40)], [5]), {"positions": [1, 2, 3]}, "positions must be"),
        (field([(40, 40)], [5]), {"size": 99}, "more than half"),
        (field([(4, 40)], [5]), {"size": 15}, "1 too near the edge.*further inside"),
        (np.minimum(field([(40, 40), (90, 90)], [50, 50]), 1), {}, "2 saturated.*expose shorter"),
        (np.zeros((80, 80)), {"grid": (0, 2)}, "grid must be"),
        (deblur.data.load("camera64"), {}, "no common shape.*stars, beads"),
    ],
)
def test_unusable_input_is_refused_with_advice(picture, options, message):
    refused(ValueError, message, psf.from_points, picture, **options)


def test_the_size_is_limited_in_an_image_without_points():
    found = psf.from_points(deblur.data.load("camera").astype(float)[:256, :256])
    assert found.status.name == "DOUBTFUL"
    assert found.details["energy_outside"] > 0.5
    assert psf.from_points(field(*scattered(16)), size=3).details["energy_outside"] > 0.3
    assert max(found.psf.shape) < 64  # a quarter of the picture


def test_shifts_go_back_and_forth_and_agree_with_the_formula():
    h = truth((21, 20))
    moved = shift(h, (0.4, -0.7))
    assert np.allclose(moved, truth((21, 20), lambda y, x: blob(y - 0.4, x + 0.7)), atol=1e-7)
    assert np.allclose(shift(shift(truth((21, 21)), (0.3, 0.2)), (-0.3, -0.2)), truth((21, 21)), atol=1e-15)
    assert np.allclose(shift(h, (1, 2)), np.roll(h, (1, 2), (0, 1)), atol=1e-15)
    for slope, step in zip(shift(h, (0.4, -0.7), slopes=True)[1:], 1e-4 * np.eye(2), strict=True):
        assert np.allclose(slope, (shift(moved, step) - shift(moved, -step)) / 2e-4, atol=1e-9)


@pytest.mark.parametrize("small", [(5, 5), (4, 5), (6, 3)])
@pytest.mark.parametrize("large", [(9, 9), (8, 7), (3, 3)])
def test_placing_keeps_the_centre_on_the_centre(small, large):
    assert np.array_equal(placed(psf.delta(small), large), psf.delta(large))
