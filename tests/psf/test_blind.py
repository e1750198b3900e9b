"""The PSF from the blurred picture alone, and restoring with it."""

import numpy as np
import pytest
from scipy.fft import next_fast_len
from scipy.ndimage import shift
from skimage.registration import phase_cross_correlation

import deblur
from deblur.cli import main
from deblur.operators.torus import wrapped
from deblur.psf import PSFStatus, blurred, from_blurred


def shaken(rng, psf, rows=(180, 320), cols=(150, 290), noise=0.002):
    """A part of `camera` and what became of it; the scene goes on beyond the frame."""
    blur = deblur.Blur(psf, (rows[1] - rows[0], cols[1] - cols[0]), "unknown")
    high, wide = blur.scene_shape
    scene = deblur.data.load("camera").astype(float)[rows[0] : rows[0] + high, cols[0] : cols[0] + wide]
    g = blur.forward(scene)
    return scene[blur.crop], g + noise * rng.standard_normal(g.shape)


def alike(a, b):
    """The largest correlation of two PSFs over all displacements."""
    room = [m + n for m, n in zip(a.shape, b.shape, strict=True)]
    c = np.fft.irfft2(np.fft.rfft2(a, room).conj() * np.fft.rfft2(b, room), room)
    return c.max() / np.sqrt((a**2).sum() * (b**2).sum())


def squared_error(truth, image):
    """Of an image registered to the truth: the displacement cannot be known."""
    by = phase_cross_correlation(truth, image, upsample_factor=20)[0]
    return ((shift(image, by, order=3, mode="nearest") - truth)[12:-12, 12:-12] ** 2).mean()


def continued(scene, size):
    return wrapped(scene, [next_fast_len(n + 2 * size, real=True) for n in scene.shape])


@pytest.fixture
def few_ways(monkeypatch):
    """Three ways: enough where it is not the PSF that counts."""
    monkeypatch.setattr(blurred, "_WAYS", blurred._WAYS[::3])


def test_the_psf_is_found_and_the_picture_restored_nearly_as_with_the_true_one(rng):
    psf = deblur.psf.camera_shake(9, 4)
    truth, g = shaken(rng, psf, noise=0.01)
    seen = []
    found = deblur.blind(g, 11, progress=lambda i, n: seen.append((i, n)))
    assert found.psf.status.ok
    assert found.psf.psf.shape == (11, 11)
    assert found.psf.psf.sum() == pytest.approx(1)
    assert found.psf.psf.min() >= 0
    assert alike(found.psf.psf, psf) > 0.85
    assert seen == [(i, 9) for i in range(1, 10)]
    assert found.result.method == "tv"
    known = deblur.reconstruct(g, psf, method="tv")
    ratio = squared_error(truth, found.image) / squared_error(truth, known)
    assert ratio < 3
    assert squared_error(truth, found.image) < 0.6 * squared_error(truth, g)


def test_a_faint_path_stays_and_noise_does_not(rng):
    psf = np.zeros((13, 13))
    psf[6, 2:11], psf[5:7, 2] = 0.04, 0.55  # the path has 7 % of the spot, where the hand lingered
    psf /= psf.sum()
    truth, g = shaken(rng, psf, noise=0.005)
    scene = continued(truth - g.mean(), 13)
    scale = blurred._Scale(g - g.mean(), 13, False)
    wide, error = scale.divided_psf(scene, 0)
    found = blurred._cleaned(wide, error=error)
    assert (found > 0).sum(axis=1).max() >= 8
    assert (found > 0).sum() <= 20
    coarse = blurred._cleaned(wide, 0.1)  # as at scales where all of it is still wrong
    assert (coarse > 0).sum(axis=1).max() <= 4


def test_least_squares_find_the_psf_of_the_true_scene_within_the_frame(rng):
    psf = deblur.psf.camera_shake(9, 4)
    truth, g = shaken(rng, psf, noise=0.002)
    scene = continued(truth, 9)
    scale = blurred._Scale(g, 9, False)
    found = np.full((9, 9), 1 / 81)
    for _ in range(3):
        found = scale.nonnegative_psf(scene, found)
    assert np.linalg.norm(found - psf) < 0.1 * np.linalg.norm(psf)
    assert found.min() == 0


def test_the_unit_of_the_image_does_not_matter(few_ways, rng):
    psf = deblur.psf.motion(7, 40.0)
    _, g = shaken(rng, psf, (100, 160), (200, 260))
    one, other = from_blurred(g, 9), from_blurred(1000 * g - 300, 9)
    np.testing.assert_allclose(one.psf, other.psf, atol=1e-6)


def test_sizes_that_are_even_or_not_square_are_kept(few_ways, rng):
    _, g = shaken(rng, deblur.psf.motion(5, 0.0), (100, 148), (200, 260))
    found = from_blurred(g, (4, 9))
    assert found.psf.shape == (4, 9)
    assert found.psf.sum() == pytest.approx(1)


def test_noise_alone_gives_no_psf(few_ways, rng):
    found = from_blurred(rng.standard_normal((64, 64)), 9)
    assert found.status is PSFStatus.DOUBTFUL
    assert "no blur" in found.why


def test_a_wall_of_bricks_is_not_trusted(few_ways):
    wall = deblur.data.load("brick")[:136, :136].astype(float)
    found = from_blurred(deblur.degrade(wall, deblur.psf.camera_shake(17, 2), noise=0.01, seed=0), 23)
    assert found.status is PSFStatus.DOUBTFUL
    assert "alike" in found.why


def test_the_command_restores_without_a_psf_and_writes_none_it_does_not_trust(
    few_ways, rng, tmp_path, capsys
):
    truth, g = shaken(rng, deblur.psf.motion(7, 40.0), (180, 300), (150, 270), 0.005)
    deblur.image.write(tmp_path / "blurred.tif", g)
    deblur.image.write(tmp_path / "noise.tif", rng.random((64, 64)))
    out = tmp_path / "out.tif"
    command = ["reconstruct", f"{tmp_path}/blurred.tif", "-o", f"{out}", "--blind", "9", "--lam", "2e-3"]
    assert main(command) == 0
    assert squared_error(truth, deblur.image.read(out)) < 0.6 * squared_error(truth, g)
    said = capsys.readouterr().out
    assert "status      rough" in said
    assert "method      tv" in said
    assert main([command[0], f"{tmp_path}/noise.tif", *command[2:], "--force"]) == 1
    said = capsys.readouterr()
    assert "not to be trusted" in said.err
    assert "another size" in said.err
    assert main([*command[:3], f"{tmp_path}/out.zarr", *command[4:]]) == 2
    assert "deblur psf blurred" in capsys.readouterr().err
    measure = ["psf", "blurred", f"{tmp_path}/noise.tif", "--size", "9", "-o", f"{tmp_path}/psf.npy"]
    assert main(measure) == 1
    assert not (tmp_path / "psf.npy").exists()
    assert main([*measure, "--anyway"]) == 0
    assert deblur.psf.load(tmp_path / "psf.npy").shape == (9, 9)


@pytest.mark.filterwarnings("ignore:the PSF is")  # so small a picture tells little
def test_colours_share_their_psf(few_ways, rng):
    _, g = shaken(rng, deblur.psf.motion(7, 40.0), (100, 150), (200, 250))
    colour = np.stack([g, 0.5 * g, 0.2 + 0.3 * g], axis=-1)
    options = {"lam": 1e-3, "method": "identity", "boundary": "reflect"}
    found = deblur.blind(colour, 9, **options)
    assert found.image.shape == colour.shape
    np.testing.assert_allclose(found.psf.psf, from_blurred(g, 9).psf, atol=1e-6)
    text = str(found)
    assert "PSF" in text
    assert "lambda" in text


@pytest.mark.parametrize(
    ("image", "size", "says"),
    [
        (np.ones((64, 64)), 9, "constant"),
        (np.eye(20), 9, "4 times as many"),
        (np.eye(64), 2, "3 pixels or more"),
        (np.full((64, 64), np.nan), 9, "finite"),
    ],
)
def test_images_without_information_are_refused(image, size, says):
    with pytest.raises(ValueError, match=says):
        from_blurred(image, size)
