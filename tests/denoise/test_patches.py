"""Groups of similar patches against a search by brute force, and the transform against statistics."""

import numpy as np
import pytest
import scipy.signal

import deblur.data
from deblur.denoise import patches
from deblur.denoise.patches import Groups, opponent
from deblur.device import asnumpy


@pytest.mark.parametrize(("shape", "radius"), [((17, 19), 4), ((23, 11), 30), ((9, 40), 6)])
def test_the_groups_are_those_of_a_search_by_brute_force(xp, shape, radius, rng):
    image = rng.random(shape)
    side, count = 6, 16
    first = asnumpy(Groups(xp.asarray(image), side=side, step=3, radius=radius).first)
    places = [(r, c) for r in range(shape[0] - side + 1) for c in range(shape[1] - side + 1)]

    def patch(r, c):
        return image[r : r + side, c : c + side]

    for group in first:
        r, c = divmod(int(group[0]), shape[1])
        near = [
            ((patch(r, c) - patch(*p)) ** 2).sum()
            for p in places
            if abs(p[0] - r) <= radius and abs(p[1] - c) <= radius
        ]
        found = [((patch(r, c) - patch(*divmod(int(i), shape[1]))) ** 2).sum() for i in group]
        # Places nearby may be fewer than a group: the reference patch then stands in.
        wanted = sorted(near)[:count]
        wanted = [0.0] * (count - len(wanted)) + wanted
        np.testing.assert_allclose(sorted(found), wanted, atol=1e-4)
    covered = np.zeros(shape, int)
    for i in first[:, 0]:
        r, c = divmod(int(i), shape[1])
        covered[r : r + side, c : c + side] += 1
    assert covered.min() >= 1


def with_and_without_numba(answer, monkeypatch):
    """`answer()` by the compiled loops and by arrays."""
    pytest.importorskip("numba")
    compiled = answer()
    monkeypatch.setattr(patches, "_compiled", lambda: None)
    return compiled, answer()


@pytest.mark.parametrize("shape", [(256, 61), (8, 30), (40, 45)])
def test_compiled_or_not_the_groups_are_the_same(shape, monkeypatch):
    # Of eight bits: many patches are as good as each other.
    image = deblur.data.load("camera")[: shape[0], 100 : 100 + shape[1]]
    compiled, plain = with_and_without_numba(lambda: Groups(image), monkeypatch)
    assert compiled._jit is not None
    assert plain._jit is None
    np.testing.assert_array_equal(compiled.first, plain.first)


@pytest.mark.parametrize("kind", ["threshold", "wiener"])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("side", [4, 8])
def test_compiled_or_not_the_filters_find_the_same(side, kind, varying, monkeypatch, rng):
    image = deblur.data.load("camera")[150:231, 100:161]
    noisy = image + 0.05 * rng.standard_normal(image.shape)
    variances = 0.05**2 * np.linspace(0.5, 2, side**2)
    level = 0.5 + rng.random(image.shape) if varying else None

    def answer():
        groups = Groups(image, side=side, step=side // 2)
        if kind == "wiener":
            return groups.wiener(noisy, image, variances, level)
        return groups.threshold(noisy, variances, level)

    compiled, plain = with_and_without_numba(answer, monkeypatch)
    # Single precision; a coefficient on the threshold may fall either way, and is small beside the noise.
    assert np.median(abs(compiled - plain)) <= 1e-7
    assert abs(compiled - plain).max() <= (1e-5 if kind == "wiener" else 1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_strips_and_threads_change_nothing(compiled, monkeypatch, rng):
    if not compiled:
        monkeypatch.setattr(patches, "_compiled", lambda: None)
    image = rng.random((61, 47))
    variances = np.full(64, 0.01)

    def answer(threads):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        groups = Groups(image)
        return groups.first, groups.threshold(image, variances)

    whole = answer("1")
    monkeypatch.setattr(patches, "_STRIP", 30)
    alone, together = answer("1"), answer("4")
    np.testing.assert_array_equal(alone[0], whole[0])
    np.testing.assert_allclose(alone[1], whole[1], atol=1e-6)  # sums in another order
    np.testing.assert_equal(together, alone)


def test_of_patches_as_good_as_each_other_the_nearest_are_taken(xp):
    groups = Groups(xp.zeros((40, 40)))
    row, col = np.divmod(asnumpy(groups.first)[len(groups.first) // 2], 40)
    distance = (row - row[0]) ** 2 + (col - col[0]) ** 2
    assert sorted(distance) == [0, *[1] * 4, *[2] * 4, *[4] * 4, *[5] * 3]


def test_without_numba_arrays_do_it(monkeypatch):
    monkeypatch.setattr(patches, "import_module", lambda *_: (_ for _ in ()).throw(ImportError))
    patches._compiled.cache_clear()
    try:
        assert Groups(np.zeros((20, 20)))._jit is None
    finally:
        patches._compiled.cache_clear()


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (17, 19), (40, 64)])
def test_without_noise_nothing_changes(xp, shape, rng):
    image = xp.asarray(rng.random(shape) + 3)
    groups = Groups(image)
    nothing = xp.zeros(groups.side**2)
    for found in (groups.threshold(image, nothing), groups.wiener(image, image, nothing)):
        assert found.dtype == image.dtype
        assert float(abs(found - image).max()) <= 1e-5  # single precision of numbers about 3


def test_a_constant_plane_stays_itself():
    zero = np.zeros((20, 20))
    np.testing.assert_array_equal(Groups(zero).wiener(zero, zero, np.full(64, 0.1)), zero)


def test_the_variances_of_coloured_noise_are_those_that_it_has(rng):
    kernel = np.array([[0.1, 0.3, 0.0], [0.2, -0.5, 0.4]])
    noise = scipy.signal.convolve2d(rng.standard_normal((700, 700)), kernel, mode="valid")
    spectrum = abs(np.fft.fft2(kernel, s=(64, 64))) ** 2
    expected = Groups(np.zeros((8, 8))).variances(np.fft.ifft2(spectrum).real)
    rows, cols = (n // 8 * 8 for n in noise.shape)
    cut = noise[:rows, :cols].reshape(rows // 8, 8, cols // 8, 8).swapaxes(1, 2).reshape(-1, 64)
    measured = ((cut @ patches._cosines(8).T) ** 2).mean(axis=0)
    # 7500 patches: a variance is known to √(2/7500) = 1.6 %.
    np.testing.assert_allclose(measured, expected, rtol=0.08)


def test_more_noise_is_filtered_more(rng):
    image = np.outer(np.sin(np.arange(48) / 3), np.cos(np.arange(48) / 5))
    noisy = image + 0.2 * rng.standard_normal(image.shape)
    groups = Groups(image)
    level = np.ones(image.shape)
    level[:, 24:] = 100.0
    moved = (groups.threshold(noisy, np.full(64, 1e-4), level) - noisy) ** 2
    assert moved[:, 32:].mean() > 4 * moved[:, :16].mean()


@pytest.mark.parametrize("c", [1, 3, 4])
def test_colours_are_taken_apart_by_an_orthonormal_matrix(c):
    matrix = opponent(c)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(c), atol=1e-14)
    np.testing.assert_allclose(matrix[0], 1 / np.sqrt(c), atol=1e-14)
