"""The check of a PSF against an image: right ones pass, wrong ones are named, and the command returns a code."""

import warnings

import numpy as np
import pytest
from test_cli_files import fails, prints

import deblur
from deblur import cli, plot, psf
from deblur.psf import checking, shaping

SCENE = deblur.data.load("camera")[60:300, 60:300]
RIGHT = {
    "disk": psf.disk(9),
    "motion": psf.motion(11, 30),
    "shake": psf.camera_shake(15, 3),
    "gaussian": psf.gaussian(11, 1.4),
    "none": psf.delta(3),
}


def picture(h, noise=0.004):
    return deblur.degrade(SCENE, h, noise=noise, boundary="unknown", seed=0)


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_psf_passes(name):
    found = psf.check(picture(RIGHT[name]), RIGHT[name])
    assert found.verdict is (psf.Verdict.FITS if name in ("disk", "motion", "shake") else psf.Verdict.NOTHING_AGAINST)
    assert found.findings == ()


SHAKE = RIGHT["shake"]


@pytest.mark.parametrize(
    ("wrong", "finding"), [(SHAKE[::-1, ::-1], "rotated by 180"), (SHAKE[:, ::-1], "mirror image"), (psf.disk(13), "")]
)
def test_a_wrong_psf_is_named(wrong, finding):
    found = psf.check(picture(SHAKE), wrong)
    assert found.verdict is psf.Verdict.DOES_NOT_FIT
    assert finding in " ".join(found.findings)


def test_a_psf_of_another_size_is_named():
    found = psf.check(picture(psf.disk(9)), psf.resample(psf.disk(9), 1.43))
    assert not found.verdict.ok
    assert found.details["scale"] in (0.6, 0.7, 0.8)
    assert "pixel size" in found.findings[0]


def test_restoring_warns_of_a_rotated_psf_and_of_no_other():
    seen, h = picture(RIGHT["shake"]), RIGHT["shake"]
    with pytest.warns(deblur.PSFWarning, match=r"sparser edges.*psf\[::-1, ::-1\]") as warned:
        deblur.reconstruct(seen, h[::-1, ::-1], 1e-3)
    assert [one.filename for one in warned] == [__file__]  # the line that called
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deblur.reconstruct(seen, h, 1e-3)
        deblur.reconstruct(seen, h[::-1, ::-1], 1e-3, boundary="periodic")  # no photograph
        deblur.reconstruct(seen, h[::-1, ::-1], 1e-1, method="gradient", mask=seen > 2)


def test_a_mismatch_needs_strong_evidence_of_another_size():
    scene = deblur.data.load("camera")
    disk = psf.disk(9)
    seen = deblur.degrade(scene, disk, noise=0.004, boundary="unknown", seed=0)
    assert "at 0.5 times its size" in checking.mismatch(seen, psf.resample(disk, 2))
    for h in (disk, psf.gaussian(15, 3.0), psf.resample(disk, 1.05), -disk, np.ones((1, 1))):
        assert checking.mismatch(seen, h) is None
    assert checking.mismatch(seen[:300], psf.resample(disk, 2)) is None  # too small to tell
    assert checking.mismatch(np.full((400, 400), np.nan), disk) is None


def test_noise_of_the_psf_that_was_cut_off_at_zero_is_removed_with_an_automatic_lambda():
    noisy = np.maximum(np.pad(psf.disk(9), 8) + 1e-3 * np.random.default_rng(0).standard_normal((25, 25)), 0)
    seen = picture(psf.disk(9))
    with pytest.warns(deblur.PSFWarning, match="2.% of the PSF's light is noise"):
        found = deblur.solve(seen, noisy).blur.psf
    np.testing.assert_allclose(found, noisy.sum() * psf.denoise(noisy), rtol=1e-9)
    for given, *lam in ((deblur.Blur(noisy, seen.shape, "unknown"),), (noisy, 0.01)):
        with pytest.warns(deblur.PSFWarning, match="noise that was cut off at zero: try"):
            assert np.array_equal(deblur.solve(seen, given, *lam).blur.psf, noisy)


@pytest.mark.parametrize("values", [np.ones_like, np.sqrt, np.square])
def test_the_light_of_a_psf_without_an_order_is_no_noise(rng, values):
    for _ in range(200):
        coded = values(rng.random(tuple(rng.integers(8, 24, 2))))
        coded *= rng.random(coded.shape) < rng.uniform(0.2, 0.8)
        assert shaping.cut_off_noise(coded) == 0


def test_a_displaced_psf_fits_and_is_reported():
    found = psf.check(picture(RIGHT["disk"]), np.pad(RIGHT["disk"], ((0, 4), (2, 0))))
    assert str(found).startswith("verdict     fits")
    assert "(+2.0, -1.0)" in found.findings[0]
    assert len(plot.psf_check(found).axes) == 3


def test_of_a_volume_the_sums_over_the_planes_are_compared():
    deep = psf.gaussian((7, 1, 1), 1.5)
    light = np.exp(-(((np.arange(30) - 15) / 6) ** 2))[:, None, None]
    seen = deblur.degrade(SCENE * light, deep * SHAKE, noise=0.004, boundary="zero", seed=0)[:, 10:-10, 10:-10]
    assert psf.check(seen, deep * SHAKE).verdict is psf.Verdict.FITS
    turned = psf.check(seen, np.pad(deep * SHAKE[::-1, ::-1], ((0, 4), (0, 0), (0, 0))))
    assert "rotated by 180" in turned.findings[0]
    assert "(+2.0, " in turned.findings[1]
    assert "planes, rows and columns" in turned.findings[1]
    options = {"method": "tv", "boundary": "unknown", "max_iterations": 2, "check": False}
    volume, narrow = seen[:, :24, :24], deep * psf.gaussian(5, 1)
    assert "off centre" not in deblur.solve(volume, narrow, 0.01, **options).checks
    with pytest.warns(deblur.errors.PSFWarning, match=r"the volume by \(-1.0, .* planes, rows and .*recentre"):
        found = deblur.solve(volume, np.pad(narrow, ((2, 0), (0, 0), (0, 0))), 0.01, **options)
    assert "off centre" in found.checks
    with pytest.warns(deblur.errors.PSFWarning, match=r"this PSF sums to less than zero, .* negate it"):
        deblur.solve(volume[0], -psf.gaussian(5, 1), 0.01)
    with pytest.raises(ValueError, match=r"\(31, 9, 9\) is larger than the image of shape \(30, 220, 220\)"):
        psf.check(seen, psf.box((31, 9, 9)))


def test_the_sparsity_gain_of_a_rotation_changes_sign_with_it():
    right, turned = (psf.check(picture(SHAKE), k).details["rotation"] for k in (SHAKE, SHAKE[::-1, ::-1]))
    assert right > 0.02
    assert turned == pytest.approx(-right, rel=0.2)


def test_a_jpeg_is_reported_and_not_used_against_the_psf():
    import io

    from PIL import Image

    clipped = (np.clip(picture(RIGHT["shake"]), 0, 1) * 255).round().astype(np.uint8)
    jpeg = {}
    for quality in (75, 90):
        held = io.BytesIO()
        Image.fromarray(clipped).save(held, "JPEG", quality=quality)
        jpeg[quality] = np.asarray(Image.open(held)) / 255
        found = psf.check(jpeg[quality], RIGHT["shake"])
        assert found.verdict.ok
        assert "JPEG" in " ".join(found.findings)
    assert not psf.check(clipped / 255, RIGHT["shake"]).details["compressed"]
    assert not psf.check(jpeg[90], RIGHT["shake"][::-1, ::-1]).verdict.ok  # a turn is seen all the same


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    deblur.image.write(tmp_path / "b.tif", picture(RIGHT["disk"]), bits=32)
    psf.save(tmp_path / "disk.npy", RIGHT["disk"])
    return tmp_path


def test_the_command_checks_and_draws(files, capsys):
    drawn = files / "c.png"
    run = ["psf", "check", f"{files}/b.tif", "--psf"]
    assert "fits" in prints(capsys, [*run, f"{files}/disk.npy", "--picture", drawn])
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert cli.main([*run, "disk:15"]) == 1
    assert "does not fit" in capsys.readouterr().out


def test_the_command_fits_converts_and_writes_nothing_doubtful(files, capsys):
    out = files / "f.npy"
    assert cli.main(["psf", "fit", f"{files}/b.tif", "--kind", "disk", "-o", str(out)]) == 0
    assert abs(psf.load(out).shape[0] - 11) <= 2
    assert cli.main(["psf", "convert", f"{files}/disk.npy", "-o", f"{files}/g.txt", "--scale", "2", "-q"]) == 0
    assert psf.load(files / "g.txt").shape == (19, 19)
    deblur.image.write(files / "s.tif", SCENE, bits=32)
    assert cli.main(["psf", "fit", f"{files}/s.tif", "--kind", "disk", "-o", f"{files}/no.npy"]) == 1
    assert not (files / "no.npy").exists()
    assert "--anyway" in capsys.readouterr().out
    fails(capsys, ["psf", "fit", f"{files}/b.tif", "--kind", "disk", "-o", out], "is there already")


def test_the_command_measures_stars_an_edge_and_a_pair(files, capsys):
    rng = np.random.default_rng(0)
    sky = np.zeros((120, 130))
    sky[rng.integers(15, 105, 9), rng.integers(15, 115, 9)] = rng.uniform(20, 60, 9)
    h = psf.gaussian(13, 1.5)
    deblur.image.write(files / "sky.tif", deblur.degrade(sky, h, noise=0.003, seed=0), bits=32)
    points = ["psf", "points", f"{files}/sky.tif", "--grid", "2x2", "-o"]
    assert cli.main([*points, f"{files}/p.npz", "--size", "13"]) == 0
    assert np.load(files / "p.npz")["psfs"].shape == (2, 2, 13, 13)
    assert np.abs(psf.load(files / "p.npz") - h).max() < 0.05 * h.max()
    assert cli.main([*points, f"{files}/p.npy"]) == 2
    y, x = np.mgrid[:90, :90]
    edge = deblur.degrade(np.clip(x - 45 + 0.1 * (y - 45), 0, 1), h, noise=0.002, boundary="reflect", seed=0)
    deblur.image.write(files / "e.tif", edge, bits=32)
    prints(capsys, ["psf", "edge", f"{files}/e.tif", "--region", "5,85,5,85", "-o", f"{files}/e.npy", "-q"])
    deblur.image.write(files / "sharp.tif", SCENE[5:-5, 5:-5][:100, :100], bits=32)
    deblur.image.write(files / "blur.tif", deblur.degrade(SCENE, h, boundary="unknown")[:99, :100], bits=32)
    fails(capsys, ["psf", "pair", f"{files}/sharp.tif", f"{files}/blur.tif", "--size", "13"], "same part")
