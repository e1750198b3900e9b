"""The PSF from the blurred picture alone, and restoring with it."""

import numpy as np
import pytest
from scipy.ndimage import convolve, shift
from scipy.signal import correlate
from skimage.registration import phase_cross_correlation
from test_cli_files import fails, prints

import deblur
from deblur.cli import main
from deblur.operators.torus import wrapped
from deblur.psf import PSFStatus, blurred, from_blurred

SHAKE = deblur.psf.camera_shake(9, 4)


def shaken(rng, psf, rows=(180, 320), cols=(150, 290), noise=0.002):
    """A part of `camera` and what became of it; the scene goes on beyond the frame."""
    blur = deblur.Blur(psf, (rows[1] - rows[0], cols[1] - cols[0]), "unknown")
    high, wide = blur.scene_shape
    scene = deblur.data.load("camera").astype(float)[rows[0] : rows[0] + high, cols[0] : cols[0] + wide]
    g = blur.forward(scene)
    return scene[blur.crop], g + noise * rng.standard_normal(g.shape)


def alike(a, b):
    """The largest correlation of two PSFs over all displacements."""
    return correlate(a, b).max() / np.sqrt((a**2).sum() * (b**2).sum())


def squared_error(truth, image):
    """Of an image registered to the truth: the displacement cannot be known."""
    by = phase_cross_correlation(truth, image, upsample_factor=20)[0]
    return ((shift(image, by, order=3, mode="nearest") - truth)[12:-12, 12:-12] ** 2).mean()


@pytest.mark.parametrize("share", [0, 0.03])  # of dead pixels
def test_the_psf_is_found_and_the_picture_restored_nearly_as_with_the_true_one(share, rng):
    truth, g = shaken(rng, SHAKE, noise=0.01)
    hide, seen = rng.random(g.shape) < share, []
    mask, broken = (hide, np.where(hide, np.nan, g)) if share else (None, g)
    found = deblur.blind(broken, 11, mask=mask, progress=lambda i, n: seen.append((i, n)))
    assert (found.psf.status.ok, found.psf.psf.shape, found.psf.psf.sum()) == (True, (11, 11), pytest.approx(1))
    assert alike(found.psf.psf, SHAKE) > 0.85
    assert seen == [(i, 3) for i in range(1, 4)]
    known = deblur.reconstruct(g, SHAKE, method="tv")
    assert squared_error(truth, found.image) < min(3 * squared_error(truth, known), 0.6 * squared_error(truth, g))


def test_least_squares_find_the_psf_of_the_true_scene_within_the_frame(rng):
    truth, g = shaken(rng, SHAKE, noise=0.002)
    scale = blurred._Scale(g.astype(np.float32), 9, 0.0)
    scene, found = wrapped(truth, scale._torus.lengths).astype(np.float32), np.full((9, 9), 1 / 81, np.float32)
    for _ in range(3):
        found = scale.psf(scene, found)
    assert np.linalg.norm(found - SHAKE) < 0.1 * np.linalg.norm(SHAKE)
    assert found.min() == 0


def test_the_command_restores_without_a_psf_and_writes_none_it_does_not_trust(rng, tmp_path, capsys):
    truth, g = shaken(rng, deblur.psf.motion(7, 40.0), noise=0.005)
    deblur.image.write(tmp_path / "blurred.tif", g)
    deblur.image.write(tmp_path / "noise.tif", rng.random((64, 64)))
    command = ["reconstruct", f"{tmp_path}/blurred.tif", "-o", f"{tmp_path}/out.tif", "--blind", "9", "--lam", "2e-3"]
    said = prints(capsys, command)
    assert squared_error(truth, deblur.image.read(tmp_path / "out.tif")) < 0.6 * squared_error(truth, g)
    assert all(line in said for line in ("status      rough", "method      tv"))
    fails(capsys, [command[0], f"{tmp_path}/noise.tif", *command[2:], "--force"], "another size", code=1)
    fails(capsys, [*command[:3], f"{tmp_path}/out.zarr", *command[4:]], "deblur psf blurred")
    measure = ["psf", "blurred", f"{tmp_path}/noise.tif", "--size", "9", "-o", f"{tmp_path}/psf.npy"]
    assert (main(measure), (tmp_path / "psf.npy").exists()) == (1, False)
    assert (main([*measure, "--anyway"]), deblur.psf.load(tmp_path / "psf.npy").shape) == (0, (9, 9))


@pytest.mark.filterwarnings("ignore:the PSF is")  # so small a picture tells little
def test_colours_share_their_psf_whatever_their_units(rng):
    _, g = shaken(rng, deblur.psf.motion(7, 40.0), (100, 150), (200, 250))
    colour = np.stack([g, 0.5 * g, 900 * g - 300], axis=-1)
    found = deblur.blind(colour, 9, lam=1e-3, method="identity", boundary="reflect")
    assert found.image.shape == colour.shape
    np.testing.assert_allclose(found.psf.psf, from_blurred(g, 9).psf, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the PSF is")
def test_a_psf_with_which_the_restoration_does_not_converge_is_not_trusted(rng):
    g = shaken(rng, SHAKE)[1]
    found = deblur.blind(g, 11, max_iterations=1)
    assert (found.psf.status, found.image.shape) == (PSFStatus.DOUBTFUL, g.shape)
    assert all(said in found.psf.why for said in ("tv with λ = ", "did not converge"))


@pytest.mark.parametrize(
    ("image", "size", "says"),
    [
        (np.ones((64, 64)), 9, "constant"),
        (np.eye(17), 9, "twice as many"),
        (np.eye(64), 2, "3 pixels or more"),
        (np.full((64, 64), np.nan), 9, "finite"),
        (np.eye(64)[None].repeat(2, 0), 9, "one by one"),
    ],
)
def test_images_without_information_are_refused(image, size, says):
    with pytest.raises(ValueError, match=says):
        deblur.blind(image, size, stack_axis=0 if image.ndim == 3 else None)


def test_the_size_may_be_left_out_or_twice_too_large_in_any_shape(rng):
    g = shaken(rng, SHAKE)[1]
    for size in (None, (18, 15)):
        found = from_blurred(g, size)
        assert max(found.psf.shape) <= 25 if size is None else found.psf.shape == size
        assert alike(found.psf, SHAKE) > 0.85


def test_what_does_not_show_the_psf_is_not_trusted_and_says_why(rng):
    wall = deblur.data.load("brick")[:136, :136].astype(float)
    wall = deblur.degrade(wall, deblur.psf.camera_shake(17, 2), noise=0.01, seed=0)
    noise, sharp = rng.random((64, 64)), shaken(rng, deblur.psf.delta(1))[0]
    for image, size, says in ((noise, 9, "noise"), (wall, 23, "differ"), (sharp, 9, "is not blurred")):
        found = from_blurred(image, size)
        assert (found.status, says in found.why) == (PSFStatus.DOUBTFUL, True), found.why


def test_psfs_differ_in_what_they_leave_of_a_picture_and_not_in_where_their_centres_are():
    squares = np.where(k := np.add.outer(*[np.fft.fftfreq(128) ** 2] * 2), k, np.inf)
    psf, moved, wide = np.pad(SHAKE, 4), np.pad(SHAKE, ((1, 7), (6, 2))), convolve(SHAKE, np.ones((3, 3)) / 9)
    one, two = (abs(np.fft.fft2(h, squares.shape)) / np.sqrt(squares) for h in (psf, wide))
    assert blurred._difference(psf, wide) == pytest.approx(np.linalg.norm(one - two) / np.linalg.norm(one))
    assert blurred._difference(psf, moved) < 1e-6


def test_a_psf_whose_centre_of_gravity_is_far_from_its_middle_is_found_whole(rng):
    psf = np.zeros((13, 13))
    psf[1:12, 6], psf[1:3, 5:8] = 0.05, 0.12
    found = from_blurred(shaken(rng, psf / psf.sum())[1], 11).psf  # its length
    assert alike(found, psf) > 0.88
    assert np.ptp(np.nonzero(found.sum(axis=1) > 0.02)[0]) >= 9


def test_a_psf_without_the_end_of_the_path_needs_more_edges_than_the_whole(rng):
    psf = np.zeros((17, 17))
    psf[8, 2:15], psf[8, 2] = 0.03, 0.64
    scale = blurred._Scale(shaken(rng, psf)[1].astype(np.float32), 17, 0.0)
    assert 1.02 * scale.edges(psf) < scale.edges(np.where(psf > 0.1, 1.0, 0.0))


def test_iterations_come_nearer_to_the_psf_than_the_two_steps_alone(rng):
    scale = blurred._Scale(shaken(rng, SHAKE)[1].astype(np.float32), 9, 0.0)
    begun = one = other = convolve(SHAKE, np.full((3, 3), 1 / 9)).astype(np.float32)
    for _ in range(6):
        one = scale.iterated(one, 1e-4, 0.02)
        other = blurred._cleaned(scale.psf(scale.scene(other, 1e-4), other), 0.02)
    assert 1 - alike(one, SHAKE) < 0.7 * (1 - alike(other, SHAKE)) < 0.7 * (1 - alike(begun, SHAKE))


def test_iterations_keep_a_psf_that_noise_draws_towards_one_pixel(rng):
    psf = deblur.psf.camera_shake(17, 4)
    scale = blurred._Scale(shaken(rng, psf, (40, 240), (40, 240), 0.04)[1].astype(np.float32), 17, 0.04)
    begun = h = convolve(psf, np.full((3, 3), 1 / 9)).astype(np.float32)
    for _ in range(16):
        h = scale.iterated(h, scale.lam, 0.02)
    assert alike(h, psf) > 0.9 * alike(begun, psf)


def test_predicted_borders_bring_the_scene_nearer_to_the_truth(rng):
    truth, g = shaken(rng, SHAKE, noise=0.0)
    scale = blurred._Scale(g.astype(np.float32), 9, 0.0)
    scenes = [scale.scene(SHAKE, 1e-4)[:140, :140] for _ in range(6)]
    assert ((scenes[-1] - truth) ** 2).mean() < 0.75 * ((scenes[0] - truth) ** 2).mean()
    begun = blurred._Scale(g.astype(np.float32), 9, 0.0)._grown
    np.testing.assert_array_equal(scale._grown[:140, :140], begun[:140, :140])


def test_psfs_of_a_grid_are_alike_where_the_blur_is_the_same_everywhere(rng):
    found = from_blurred(shaken(rng, SHAKE)[1], 5, grid=(2, 1))  # which cuts some light off
    np.testing.assert_allclose(found.map.psfs.sum(axis=(2, 3)), 1)
    assert min(alike(h, found.psf) for h in found.map.psfs[:, 0]) > 0.9
