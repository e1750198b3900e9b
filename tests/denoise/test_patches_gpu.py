"""Groups of similar patches on the GPU against the CPU's, which are held to a search by brute force."""

import numpy as np
import pytest

import deblur.data
from deblur.denoise import denoisers, patches
from deblur.denoise.patches import Groups

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize("shape", [(256, 261), (8, 30), (37, 9), (40, 45), (200, 133)])
def test_the_groups_are_the_cpus_bit_for_bit(cupy, side, shape):
    # Of eight bits: many patches are as good as each other.
    image = deblur.data.load("camera")[: shape[0], 100 : 100 + shape[1]]
    wanted = Groups(image, side=side, step=side // 2)
    found = Groups(cupy.asarray(image), side=side, step=side // 2)
    assert found._places is not None
    np.testing.assert_array_equal(found.first.get(), wanted.first)


def _filtered(kind, side, image, noisy, pilot, variances, level):
    groups = Groups(image, side=side)
    if kind == "wiener":
        return groups.wiener(noisy, pilot, variances, level)
    return groups.threshold(noisy, variances, level)


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize("kind", ["threshold", "wiener"])
@pytest.mark.parametrize("varying", [False, True])
def test_the_filters_find_what_the_cpus_find(cupy, rng, side, kind, varying):
    image = deblur.data.load("camera")[150:231, 100:161]
    for scale in (1.0, 1e-12, 3e7):
        noisy = scale * (image + 0.05 * rng.standard_normal(image.shape))
        variances = (scale * 0.05) ** 2 * np.linspace(0.5, 2, side**2)
        level = 0.5 + rng.random(image.shape) if varying else None
        found, wanted = (
            _filtered(
                kind, side, *(None if a is None else take(a) for a in (image, noisy, scale * image, variances, level))
            )
            for take in (cupy.asarray, np.asarray)
        )
        difference = abs(found.get() - wanted) / scale
        # Single precision; a coefficient on the threshold may fall either way, and is small beside the noise.
        assert np.median(difference) <= 1e-7
        assert difference.max() <= (1e-5 if kind == "wiener" else 1e-3)


def test_it_is_the_same_each_time_and_on_every_stream(cupy, rng):
    noisy = cupy.asarray(rng.random((150, 170), dtype=np.float32))
    wanted = denoisers.collaborative(noisy, 0.1).get()
    cupy.cuda.Device().synchronize()
    for _ in range(10):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            found = denoisers.collaborative(noisy, 0.1)
        stream.synchronize()
        np.testing.assert_array_equal(found.get(), wanted)


def test_what_is_not_finite_is_not_hidden_and_black_stays_black(cupy):
    image = cupy.asarray(deblur.data.load("camera")[:64, :70])
    assert float(abs(Groups(image).threshold(cupy.zeros_like(image), cupy.full(64, 0.01))).max()) == 0
    for value in (np.nan, np.inf):
        bad = image.copy()
        bad[30, 30] = value
        assert not bool(cupy.isfinite(Groups(image).threshold(bad, cupy.full(64, 0.01))).all())


def test_other_patches_and_wide_searches_are_arrays_work(cupy, rng):
    image = rng.random((40, 45))
    for options in ({"side": 6}, {"radius": 100, "side": 4}):
        wanted, found = Groups(image, **options), Groups(cupy.asarray(image), **options)
        assert found._places is None or options.get("radius")
        np.testing.assert_array_equal(found.first.get(), wanted.first)


def test_colours_are_denoised_as_on_the_cpu(cupy, rng):
    image = np.stack([deblur.data.load("camera")[100:180, 80:170]] * 3, axis=-1) * [1.0, 0.8, 0.6]
    noisy = image + 0.05 * rng.standard_normal(image.shape)
    found = denoisers.collaborative(cupy.asarray(noisy), 0.05).get()
    assert abs(found - denoisers.collaborative(noisy, 0.05)).max() <= 5e-3
    assert patches.opponent(3).shape == (3, 3)
