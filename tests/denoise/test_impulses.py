"""The impulse detector: finds salt and pepper and dead pixels, and keeps its hands off pictures."""

import itertools

import numpy as np
import pytest

import deblur
from deblur.degradation import degrade
from deblur.denoise.impulses import detect
from deblur.device import asnumpy


def blurred(name, psf, noise, seed=0):
    picture = deblur.data.load(name)
    if picture.ndim == 3:
        picture = picture.mean(axis=-1)
    return degrade(picture[:200, :200], psf, noise=noise, boundary="unknown", seed=seed)


def with_impulses(g, rng, share=0.02):
    draw = rng.random(g.shape)
    hit = draw < share
    return np.where(draw < share / 2, 0.0, np.where(hit, 1.0, g)), hit


def as_8_bit(g):
    return np.round(np.clip(g, 0, 1) * 255) / 255


PSFS = {"gaussian": deblur.psf.gaussian(9, 1.5), "disk": deblur.psf.disk(5), "motion": deblur.psf.motion(9, 30.0)}


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("psf", PSFS)
@pytest.mark.parametrize("name", ["camera", "brick", "cat"])
def test_salt_and_pepper_on_blurred_photographs(rng, name, psf, noise):
    g, hit = with_impulses(blurred(name, PSFS[psf], noise), rng)
    for picture, missed_at_most in ((g, 0.05), (as_8_bit(g), 0.08)):
        found = detect(picture)
        assert (found & ~hit).sum() == 0
        assert (hit & ~found).sum() <= missed_at_most * hit.sum()


@pytest.mark.parametrize("name", ["camera", "brick", "cat", "text"])
def test_no_false_alarms_on_pictures_without_impulses(name):
    for (kind, psf), noise in itertools.product(PSFS.items(), (0.0, 0.01)):
        g = blurred(name, psf, noise)
        others = (g.astype(np.float32), np.clip(g, 0.2, 0.8)) if kind == "disk" else ()
        for picture in (g, as_8_bit(g), *others):
            assert detect(picture).sum() == 0, (kind, noise)


def test_true_black_and_white_areas_are_no_impulses(rng):
    picture = np.full((60, 60), 0.5)
    picture[5:30, 5:30] = 0.0
    picture[35:55, 10:50] = 1.0
    picture[40:43, 40:43] = 0.0
    for noise in (0.0, 0.02):
        g = np.clip(degrade(picture, deblur.psf.gaussian(5, 0.8), noise=noise, seed=1), 0, 1)[4:-4, 4:-4]
        assert detect(g).sum() == 0
        assert detect(as_8_bit(g)).sum() == 0


@pytest.mark.parametrize("name", ["camera", "cat"])
def test_clipping_and_noise_together_are_no_impulses(name):
    for low, high in ((0.0, 1.0), (0.2, 0.8), (0.1, 0.6)):
        g = np.clip(blurred(name, PSFS["gaussian"], 0.04), low, high)
        assert detect(g).sum() == 0
        assert detect(as_8_bit(g)).sum() == 0


def test_dead_pixels_of_any_value_and_pairs(rng):
    g = blurred("camera", PSFS["gaussian"], 0.005)
    dead = np.zeros(g.shape, bool)
    dead[[10, 50, 90, 91, 150], [20, 60, 100, 100, 30]] = True
    assert np.array_equal(detect(np.where(dead, g + np.where(g > 0.5, -0.35, 0.35), g)), dead)


def test_set_values_in_a_sharpened_picture(rng):
    """Sharpening overshoots black and white: an impulse there is no extreme, but its value gives it away."""
    alpha = 0.2
    unsharp = np.array([[-alpha, alpha - 1, -alpha], [alpha - 1, alpha + 5, alpha - 1], [-alpha, alpha - 1, -alpha]])
    g = blurred("camera", unsharp / (alpha + 1), 0.02)
    assert g.min() < 0
    assert g.max() > 1
    spoiled, hit = with_impulses(g, rng)
    found = detect(spoiled)
    assert (hit & ~found).sum() <= 0.05 * hit.sum()
    assert (found & ~hit).sum() <= 2


def test_frames_dtypes_and_degenerate_images(xp, rng):
    g, _ = with_impulses(blurred("camera", PSFS["disk"], 0.01), rng)
    alone = detect(g)
    stack = detect(xp.asarray(np.stack([g, g[::-1]])[:, None]))
    assert stack.dtype == bool
    assert stack.shape == (2, 1, *g.shape)
    stack = stack.get() if hasattr(stack, "get") else stack
    assert np.array_equal(stack[0, 0], alone)
    assert np.array_equal(stack[1, 0], alone[::-1])
    bytes_ = np.round(np.clip(g, 0, 1) * 255).astype(np.uint8)
    assert np.array_equal(detect(xp.asarray(bytes_)), detect(xp.asarray(bytes_.astype(float))))
    for shape in ((1, 1), (2, 7), (3, 3), (40, 40)):
        assert not bool(detect(xp.full(shape, 0.5)).any())
    with pytest.raises(ValueError, match="NaN"):
        detect(xp.asarray([[np.nan, 1.0], [0.0, 1.0]]))


def test_impulses_that_touch(rng):
    g = blurred("camera", PSFS["gaussian"], 0.005)
    hit = np.zeros(g.shape, bool)
    hit[20:180:16, 20:180:16] = True  # lone ones, so that the value is seen to be set
    for rows, cols in (([40, 40, 41], [45, 46, 45]), ([60, 61, 62], [77, 77, 77]), ([90, 91], [93, 94])):
        hit[rows, cols] = True
    for value in (0.0, 1.0):
        for picture in (np.where(hit, value, g), as_8_bit(np.where(hit, value, g))):
            found = detect(picture)
            assert not (hit & (abs(picture - g) > 0.1) & ~found).any()
            assert not (found & ~hit).any()


@pytest.mark.parametrize("turn", range(4))
def test_impulses_near_the_edge_are_not_met_twice(rng, turn):
    """Three within a window at the edge: with their mirror images they would pass for a blot."""
    g = degrade(deblur.data.load("camera")[:90, :90], deblur.psf.gaussian(9, 2.0), noise=0.005, seed=0)
    hit = np.zeros(g.shape, bool)
    hit[[0, 1, 2, 60, 70], [40, 40, 38, 20, 50]] = True
    hit = np.rot90(hit, turn)
    g = np.clip(g, 0.05, 0.9)
    g[hit] = 1.0
    assert (detect(g) == hit).all()


def test_faint_impulses_are_found_where_others_are(rng):
    g = as_8_bit(blurred("camera", PSFS["disk"], 0.04))
    struck, hit = with_impulses(g, rng)
    found = detect(struck)
    seen = hit & (abs(struck - g) > 0.16)  # four standard deviations of the noise
    assert (seen & ~found).sum() <= 0.06 * seen.sum()
    assert (found & ~hit).sum() <= 1
    assert detect(g).sum() == 0


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_dead_rows_and_columns_are_found_whole(xp, value):
    g = blurred("camera", PSFS["gaussian"], 0.01)
    g[40] = g[90] = value
    g[:, 17] = value
    g[60, 70] = 3.0
    expected = np.zeros(g.shape, bool)
    expected[[40, 90]] = expected[:, 17] = expected[60, 70] = True
    np.testing.assert_array_equal(asnumpy(detect(xp.asarray(g))), expected)


@pytest.mark.parametrize("name", ["camera", "brick", "cat", "text"])
def test_pictures_have_no_dead_rows(name):
    for psf in PSFS.values():
        found = detect(blurred(name, psf, 0.0))
        assert not found.all(axis=0).any()
        assert not found.all(axis=1).any()
