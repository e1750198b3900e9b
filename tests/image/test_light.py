"""Linear light: the curve of sRGB, restorations behind it, and pixels that a sensor clipped."""

import io

import numpy as np
import pytest
import scipy
import tifffile
from PIL import Image
from refusals import refused
from skimage.color.colorconv import rgb2xyz, xyz_from_rgb

import deblur
from deblur import image, metrics
from deblur.cli import main
from deblur.data_checks import as_light, is_clipped
from deblur.device import asnumpy
from deblur.frames import Frames
from deblur.masks import saturated
from deblur.pipeline import Deblurrer
from deblur.request import check_request
from deblur.solvers.noise import psf_noise

PSF, LENS = deblur.psf.disk(5), deblur.psf.disk(7)
SIZE = 48


def lamps(brightness, rng):
    """A dark scene with five lamps, in light, as large as the frame and what is smeared into it."""
    rows, cols = (SIZE + n - 1 for n in PSF.shape)
    scene = 0.1 * image.linear_light(deblur.data.load("camera")[200 : 200 + rows, 200 : 200 + cols])
    y, x = np.mgrid[:rows, :cols]
    for row, col in rng.uniform(0, SIZE, (5, 2)):
        scene[(y - row) ** 2 + (x - col) ** 2 < 7] = brightness
    return scene


def taken(scene, noise=0.002):
    """(the camera's picture of 8 bits, the sharp one it would have been)."""
    light = deblur.degrade(scene, PSF, boundary="unknown", noise=noise, seed=0)
    sharp = scene[deblur.Blur(PSF, light.shape, "unknown").crop]
    return tuple(np.rint(255 * image.srgb(np.clip(a, 0, 1))).astype(np.uint8) for a in (light, sharp))


# -- the curve ---------------------------------------------------------------------------------


def test_the_curve_is_that_of_scikit_image(rng):
    colours = rng.random((9, 11, 3))
    np.testing.assert_allclose(image.linear_light(colours) @ xyz_from_rgb.T, rgb2xyz(colours), atol=1e-14)


def test_the_way_back_brings_every_level_back(xp):
    for dtype in (np.uint8, np.uint16):
        levels = xp.arange(np.iinfo(dtype).max + 1).astype(dtype)
        found = image.srgb(image.linear_light(levels)) * np.iinfo(dtype).max
        np.testing.assert_array_equal(asnumpy(xp.rint(found)), asnumpy(levels))
    beyond = xp.linspace(-1, 2, 1001)
    light = image.linear_light(beyond)
    np.testing.assert_allclose(asnumpy(image.srgb(light)), asnumpy(beyond), atol=1e-14)
    assert bool((light[1:] > light[:-1]).all())
    assert image.srgb(image.linear_light(beyond.astype(np.float32))).dtype == np.float32


# -- restorations ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"method": "tv", "max_iterations": 5}, {"mask": np.eye(12, 14) > 0}])
def test_gamma_is_decoding_restoring_and_encoding(rng, dtype, options):
    levels = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    g = (rng.random((2, 12, 14, 3)) * levels).astype(dtype)
    axes = {"channel_axis": -1, "stack_axis": 0, "boundary": "unknown", "check": False}
    psf = deblur.psf.gaussian(3, 0.7)
    # Pictures of 8 and 16 bits are computed in float32 by themselves, where two pipelines differ by rounding.
    options = options | {"dtype": np.float64 if levels > 1 else dtype}
    plain = deblur.solve(image.linear_light(g), psf, 1e-2, **axes, **options)
    found = deblur.solve(g, psf, 1e-2, **axes, **options, gamma="srgb")
    tolerance = 1e-5 if found.image.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(found.image, image.srgb(plain.image), atol=tolerance)
    np.testing.assert_allclose(found.residual_image, plain.residual_image, atol=tolerance)
    assert (found.gamma, plain.gamma) == ("srgb", None)
    assert "linear light" in str(found)
    kept = deblur.Deblurrer(psf, (12, 14), 1e-2, boundary="unknown", gamma="srgb", **options)
    again = kept.solve(g, channel_axis=-1, stack_axis=0, check=False)
    np.testing.assert_allclose(again.image, found.image, atol=tolerance)


def test_a_rule_chooses_lambda_in_light(rng):
    g, _ = taken(lamps(0.95, rng))
    choice = deblur.solve(g, PSF, boundary="unknown", gamma="srgb", dtype=np.float64).lambda_choice
    assert choice.lam == deblur.solve(image.linear_light(g), PSF, boundary="unknown").lam


def night(*colours, power=3.0):
    """(a picture of lamps that a camera took, what its numbers would be had a lens blurred numbers, the sharp one)."""
    light = image.linear_light(deblur.data.load("camera")[200:302, 180:282])
    light[30:34, 40:44] = light[80:83, 70:73] = power
    light = np.multiply.outer(light, colours) if colours else light
    lens = LENS.reshape(7, 7, *[1] * (light.ndim - 2))
    sharp = image.srgb(light.clip(0, 1))
    smeared, numbers = (scipy.signal.oaconvolve(x, lens, "valid", (0, 1)) for x in (light, sharp))
    picture = np.rint(255 * image.srgb(smeared).clip(0, 1)).astype(np.uint8)
    return picture, numbers, sharp[3:-3, 3:-3]


@pytest.mark.parametrize("colours", [(), (1.0, 0.8, 0.6)])
def test_numbers_of_blurred_light_become_those_that_a_blur_makes_of_numbers(colours):
    g, numbers, _ = night(*colours)
    frames, blurred = (Frames(x) for x in (g, numbers.clip(0, 1)))

    def changed(frames, lam="auto", limit=g.size, **options):
        found, _ = as_light(frames, check_request(LENS, frames.space, lam, options, frames.device), limit)
        assert bool(found.note) == (found is not frames or limit < g.size)
        assert ("too large" in found.note) == (limit < g.size)
        return found.restore(found.data)

    far, near = (np.linalg.norm(x - numbers) for x in (g / 255, changed(frames)))
    assert near < 0.2 * far
    kept = [{"gamma": "linear"}, {"noise": 0.1}, {"lam": 0.1}, {"method": "richardson-lucy"}, {"limit": g.size - 1}]
    for options in kept:
        np.testing.assert_array_equal(changed(frames, **options), frames.restore(frames.data))
    np.testing.assert_array_equal(changed(blurred), blurred.restore(blurred.data))


def test_an_image_gets_the_same_answer_in_every_call(tmp_path):
    g = night(power=2.0)[0]
    Image.fromarray(g).save(tmp_path / "in.png")
    run = ["reconstruct", str(tmp_path / "in.png"), "-o", str(tmp_path / "out.tif"), "--psf", "disk:7", "--bits", "32"]
    assert main(run) == 0
    one, restore = deblur.solve(g, LENS), deblur.Deblurrer(LENS, g.shape)
    np.testing.assert_allclose(tifffile.imread(tmp_path / "out.tif"), one.image, rtol=1e-5, atol=1e-6)
    for found in (restore.solve(g), restore.solve(g), deblur.solve(np.stack([g, g]), LENS, stack_axis=0)):
        assert "gamma='linear'" in found.checks
        np.testing.assert_allclose(found.image, np.broadcast_to(one.image, found.image.shape), atol=1e-5)
    for other in (g.astype(np.float32), 0 * g):  # up to 255 times white, and black
        assert "gamma='linear'" not in restore.solve(other).checks
    tiles, numbers = (deblur.tiles.Tiling(g, LENS, gamma=gamma) for gamma in (None, "linear"))
    assert tiles.lam == numbers.lam


@pytest.mark.parametrize("method", ["auto", "tv"])
def test_the_error_of_the_psf_is_read_once(monkeypatch, method):
    found = []
    for module in ("data_checks", "solvers.noise"):
        monkeypatch.setattr(f"deblur.{module}.psf_noise", lambda *args: found.append(psf_noise(*args)) or found[-1])
    noise = deblur.solve(night()[1].clip(0, 1), LENS, method=method).problem.noise
    assert [read[2:] for read in found] == [noise[2:]]


@pytest.mark.parametrize("method", ["auto", "tv"])
def test_lamps_ring_less_where_light_is_restored(method):
    g, _, sharp = night()
    found = {gamma: deblur.solve(g, LENS, method=method, gamma=gamma) for gamma in (None, "srgb", "linear")}
    assert [gamma for gamma, result in found.items() if "gamma='linear'" in str(result)] == [None]
    itself, light, numbers = (metrics.psnr(sharp, result.image.clip(0, 1)) for result in found.values())
    assert itself > numbers + 3
    assert light > numbers + 3 or method == "auto"


def test_masked_pixels_may_hold_anything_with_a_curve(rng):
    g = rng.random((12, 14))
    mask = np.zeros(g.shape, bool)
    mask[3, 4] = True
    other = np.where(mask, np.nan, g)
    options = {"boundary": "unknown", "gamma": "srgb", "mask": mask}
    expected = deblur.reconstruct(g, np.ones((3, 3)) / 9, 1e-2, **options)
    np.testing.assert_array_equal(deblur.reconstruct(other, np.ones((3, 3)) / 9, 1e-2, **options), expected)


@pytest.mark.parametrize(
    ("g", "gamma", "error", "words"),
    [
        (np.full((8, 8), 100.0), "srgb", ValueError, "from 100 to 100; divide"),
        (np.full((8, 8), -1.5), "srgb", ValueError, "from -1.5 to"),
        (np.full((8, 8), 100, np.int16), "srgb", TypeError, "not for int16"),
        (np.full((8, 8), 0.5), "rec709", ValueError, "unknown gamma 'rec709'; choose one of srgb"),
        (np.full((8, 8), 0.5), 2.2, ValueError, "unknown gamma 2.2"),
    ],
)
def test_data_without_a_curve_are_refused(g, gamma, error, words):
    for call in (deblur.reconstruct, lambda g, psf, **o: deblur.Deblurrer(psf, g.shape, **o)(g)):
        refused(error, words, call, g, np.ones((3, 3)) / 9, gamma=gamma)


# -- clipped pixels ----------------------------------------------------------------------------


def test_what_a_sensor_clipped_is_found_and_nothing_else(rng, xp):
    light = deblur.degrade(lamps(9, rng), PSF, boundary="unknown", noise=0.002, seed=0)
    levels = np.rint(255 * np.clip(light, 0, 1)).astype(np.uint8)
    for g in (np.clip(light, 0, 1), levels, np.clip(light, 0, 0.7)):
        found = asnumpy(saturated(xp.asarray(g)))
        clipped = g == g.max()
        assert found[clipped].mean() > 0.99
        assert clipped[found].mean() > 0.5  # the rest is the rim, one pixel wide
        stack = np.stack([g, g[::-1]])[:, None]
        np.testing.assert_array_equal(asnumpy(saturated(xp.asarray(stack)))[1, 0], found[::-1])


@pytest.mark.parametrize("quality", [95, 98])
def test_clipped_pixels_are_found_in_a_jpeg(rng, quality):
    light = deblur.degrade(lamps(9, rng), PSF, boundary="unknown", noise=0.002, seed=0)
    colours = np.stack([light, 0.8 * light, 0.6 * light], axis=-1)
    buffer = io.BytesIO()
    g = np.rint(255 * image.srgb(np.clip(colours, 0, 1))).astype(np.uint8)
    Image.fromarray(g).save(buffer, "JPEG", quality=quality, subsampling=0)
    stored = np.asarray(Image.open(buffer))
    for numbers in (stored, image.linear_light(stored)):
        found = saturated(np.moveaxis(numbers, -1, 0))
        for channel, mask in enumerate(found):
            clipped = colours[..., channel] > 1
            assert mask[clipped].mean() > 0.95
            assert mask.mean() < 2.5 * clipped.mean()


def test_a_picture_that_was_not_clipped_has_no_clipped_pixels(rng):
    y, x = np.mgrid[:50, :50] / 25 - 1
    hill = np.rint(255 * np.exp(-(x**2) - y**2)).astype(np.uint8)  # whose top is flat only by rounding
    assert (hill == 255).sum() > 4
    sky = np.rint(np.where(x > 0, 240 + 3 * rng.standard_normal(x.shape), 100)).astype(np.uint8)
    camera = deblur.degrade(deblur.data.load("camera"), PSF, boundary="unknown")
    for g in (hill, np.zeros((5, 6)), np.full((5, 6), 255), rng.random((20, 20)), sky, camera):
        assert not saturated(g).any()
    refused(ValueError, "NaN", saturated, np.full((4, 4), np.nan))


@pytest.mark.parametrize("method", ["auto", "tv"])
def test_clipped_pixels_are_hidden_by_default_which_removes_their_errors(rng, method):
    g, sharp = taken(lamps(9, rng))
    options = {"boundary": "unknown", "gamma": "srgb"}
    none = np.zeros(g.shape, bool)
    plain = deblur.reconstruct(g, PSF, method=method, psf_error=0, mask=none, **options)  # else they count as noise
    result = deblur.solve(g, PSF, method=method, **options)
    assert "clipped are hidden" in str(result)
    np.testing.assert_array_equal(result.mask, saturated(image.linear_light(g)))
    before, after = (metrics.psnr(sharp / 255, np.clip(a, 0, 1)) for a in (plain, result.image))
    assert after > before + 3
    own = np.ma.masked_array(g, mask=np.eye(*g.shape, dtype=bool))
    both = deblur.solve(own, PSF, 1e-2, mask="saturated", **options)
    clipped = saturated(image.linear_light(np.where(own.mask, 0, g)))
    np.testing.assert_array_equal(both.mask, clipped | own.mask)


def test_what_is_white_or_overexposed_and_blurred_exactly_is_not_hidden(rng, xp):
    scene = lamps(0.5, rng)
    scene[20:44, 30:60] = scene[70:90, 10:40] = 1.0
    g = np.rint(255 * deblur.degrade(scene, PSF, boundary="unknown").clip(0, 1)).astype(np.uint8)
    assert saturated(g / 255).any()
    result, other = (deblur.solve(xp.asarray(g), PSF, method=method) for method in ("auto", "tv"))
    assert result.mask is other.mask is None
    assert ("may have clipped" in result.checks) == (xp is np)
    for psf in (PSF, np.ones((1, 1))):
        bright = deblur.degrade(1.3 * deblur.data.load("camera")[100:200, 100:200], psf, boundary="unknown").clip(0, 1)
        assert saturated(bright).any()
        assert deblur.solve(xp.asarray(bright), psf, method="tv").mask is None  # an overexposed photograph


@pytest.mark.parametrize("power", [9, 0.5])
def test_a_large_picture_is_tried_where_most_of_its_clipped_pixels_are(rng, power):
    scene, tried, part = np.full((1100, 1040), 0.1), [], lamps(power, rng)
    part[20:44, 30:60] = part[70:90, 10:40] = max(power, 1)
    scene[600 : 600 + len(part), 640 : 640 + part.shape[1]] = part
    large = np.rint(255 * deblur.degrade(scene, PSF, boundary="unknown").clip(0, 1)).astype(np.uint8)

    def solve(request, frames):
        tried.append(frames)
        return Deblurrer._of(request)._solve(frames, False)

    frames = Frames(large)
    assert is_clipped(frames, check_request(PSF, large.shape, "auto", {}, frames.device), solve) == (power > 1)
    assert tried[0].space == (512, 512)
    assert saturated(tried[0].data).sum() == saturated(large).sum() > 100


def test_an_unknown_mask_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="mask must be 'auto' or 'saturated', or an array.*not 'dead'"):
        deblur.reconstruct(np.ones((8, 8)), np.ones((3, 3)) / 9, mask="dead")


# -- the command line --------------------------------------------------------------------------


def test_the_command_line_hints_at_light_and_clipping(tmp_path, rng, capsys):
    exif = Image.Exif()
    exif[271] = "Maker"
    dark, lit = (Image.fromarray(np.stack([taken(lamps(power, rng))[0]] * 3, -1)) for power in (0.5, 9))
    dark.save(tmp_path / "dark.png")
    lit.save(tmp_path / "lit.png", exif=exif)

    def hints(name, *more):
        run = ["reconstruct", tmp_path / name, "-o", tmp_path / "out.png", "--psf", "disk:5", "--force"]
        assert main([str(a) for a in [*run, "--clip", "--lam", "0.01", *more]]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("hint", "checks"))]

    assert hints("dark.png") == []
    clipped, camera = sorted(hints("lit.png"))
    assert "Maker" in camera
    assert "--gamma srgb" in camera
    assert "not hidden: see mask='saturated'" in clipped
    assert hints("lit.png", "-q") == []
