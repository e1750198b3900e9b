"""Products on a torus and norms by their own kernels, against NumPy in double precision."""

import numpy as np
import pytest

from deblur.device import Device
from deblur.norms import norms, norms_of, residual_norms, total
from deblur.operators import torus_gpu
from deblur.operators.blur import Blur
from deblur.operators.torus import Torus
from deblur.solvers.spectrum import symbol_at

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("lengths", "given", "wanted"),
    [
        *(((30, 45), given, None) for given in [(30, 45), (27, 33), (1, 45), (30, 1)]),
        ((1, 5, 6), (1, 5, 6), (1, 5, 6)),
        ((7, 9, 8), (5, 9, 7), (2, 3, 8)),
        ((105, 6, 9), (35, 6, 9), (105, 6, 9)),
        ((128, 33, 50), (101, 30, 44), (64, 33, 41)),
        ((600, 4, 6), (1, 4, 6), (600, 1, 6)),  # fewer columns a block
        ((22, 10, 7), (20, 8, 7), (3, 10, 7)),  # by transforms along all axes
        ((48, 200, 240), (40, 190, 231), (32, 170, 200)),
    ],
)
@pytest.mark.parametrize("kind", ["complex", "conjugate", "real"])
def test_a_product_is_the_cpus(cupy, rng, dtype, lengths, given, wanted, kind):
    x = rng.standard_normal((2, 3, *given) if len(given) == 2 else (2, *given)).astype(dtype)
    by = np.fft.rfftn(rng.standard_normal(lengths))
    by = abs(by) if kind == "real" else by
    here = Torus(lengths).product(x.astype(np.float64), by, kind == "conjugate", wanted)
    symbol = cupy.asarray(by.astype(np.result_type(dtype, np.complex64) if kind != "real" else dtype))
    there = Torus(lengths, Device(0)).product(cupy.asarray(x), symbol, kind == "conjugate", wanted)
    assert there.dtype == dtype
    assert there.shape == here.shape
    assert np.linalg.norm(there.get() - here) <= 20 * np.finfo(dtype).eps * np.linalg.norm(here)


@pytest.mark.parametrize("lengths", [(30, 45), (27, 33), (1, 45), (30, 1), (16, 16)])
def test_transforms_are_the_cpus(cupy, rng, dtype, lengths):
    x = rng.standard_normal((2, 3, *lengths))[..., : max(lengths[0] - 3, 1), :]
    here, there = Torus(lengths), Torus(lengths, Device(0))
    spectra, eps = here.analyse(x), 20 * np.finfo(dtype).eps
    found = there.analyse(cupy.asarray(x.astype(dtype)))
    assert found.dtype == np.result_type(dtype, np.complex64)
    assert np.linalg.norm(found.get() - spectra) <= eps * np.linalg.norm(spectra)
    kept = found.copy()
    for given, overwrite in ((found, False), (kept[:, ::-1], False), (kept, True)):
        image, known = there.synthesise(given, overwrite), here.synthesise(spectra)
        known = known[:, ::-1] if given.strides[1] < 0 else known
        assert np.linalg.norm(image.get() - known) <= eps * np.linalg.norm(known)
    assert bool((there.analyse(cupy.asarray(x.astype(dtype))) == found).all())  # which was not destroyed
    power = abs(found) ** 2  # real, as that of a covariance is
    known = here.synthesise(power.get())
    assert np.linalg.norm(there.synthesise(power).get() - known) <= eps * np.linalg.norm(known)


def test_a_part_of_larger_images_is_taken_as_it_lies(cupy, rng):
    part = cupy.asarray(rng.standard_normal((3, 40, 50)))[:, 3:33, 5:38]
    by = cupy.asarray(abs(np.fft.rfft2(rng.standard_normal((36, 36)))))
    torus = Torus((36, 36), Device(0))
    assert bool((torus.product(part, by) == torus.product(part.copy(), by)).all())
    assert bool((torus.product(part[..., ::-1], by) == torus.product(part[..., ::-1].copy(), by)).all())


def test_images_may_begin_anywhere_in_memory(cupy, rng, dtype):
    torus = Torus((9, 7), Device(0))
    x = cupy.asarray(rng.standard_normal((2, 9, 7)).astype(dtype))[1:]  # 63 numbers on: cuFFT takes pairs
    by = cupy.asarray(abs(np.fft.rfft2(rng.standard_normal((9, 7)))).astype(dtype))
    assert bool((torus.product(x, by) == torus.product(x.copy(), by)).all())
    assert bool((torus.analyse(x) == torus.analyse(x.copy())).all())


def test_four_threads_on_four_streams_do_not_meet(cupy, rng, on_four_streams):
    torus, by = Torus((64, 60), Device(0)), cupy.asarray(abs(np.fft.rfft2(rng.standard_normal((64, 60)))))
    images = [cupy.asarray(rng.standard_normal((60, 60))) for _ in range(4)]
    alone = [torus.product(image, by) for image in images]
    assert all(on_four_streams(lambda i: bool((torus.product(images[i], by) == alone[i]).all()), 20))


@pytest.mark.parametrize("psf", [(1, 1), (5, 4), (9, 1), (1, 12), (9, 12), (1, 1, 1), (4, 5, 3), (7, 9, 12), (7, 1, 2)])
def test_a_mirrored_scene_is_blurred_as_on_the_cpu_and_back(cupy, rng, dtype, psf):
    x = rng.standard_normal((2, 3, *(7, 9, 12)[-len(psf) :]))
    blur = Blur(rng.random(psf), x.shape[2:], "reflect", origin=(psf[0] // 3, *(m - 1 for m in psf[1:])))
    for product in (blur.forward, blur.adjoint):
        here, there = product(x), product(cupy.asarray(x.astype(dtype)))
        assert there.dtype == dtype
        assert np.linalg.norm(there.get() - here) <= 20 * np.finfo(dtype).eps * np.linalg.norm(here)
    part = cupy.asarray(x)[..., ::2, ::-1]  # not as it lies in memory
    small = Blur(np.ones((3, 2, 2)[-len(psf) :]), part.shape[2:], "reflect")
    assert bool((small.forward(part) == small.forward(part.copy())).all())


@pytest.mark.parametrize("shape", [(1, 5), (3, 7001), (2, 3, 33, 500), (200, 40, 41), (1, 1, 700, 700)])
def test_norms_are_numpys_in_double_precision(cupy, rng, dtype, shape):
    x = (1e18 * rng.standard_normal(shape)).astype(dtype)
    np.testing.assert_allclose(norms(cupy.asarray(x)), norms(x), rtol=1e-13)
    views = x[..., : shape[-1] // 2], x[..., ::2]
    np.testing.assert_allclose(
        norms_of(*(cupy.asarray(x)[..., s] for s in (slice(shape[-1] // 2), slice(None, None, 2)))),
        norms_of(*views),
        rtol=1e-13,
    )


@pytest.mark.parametrize(
    ("size", "lengths", "origin"),
    [((3, 5), (16, 9), (1, 2)), ((1, 1), (1, 1), (0, 0)), ((40, 7), (61, 600), (39, 0)), ((9, 33), (33, 34), (4, 5))],
)
def test_a_psfs_spectrum_is_that_of_a_transform(cupy, rng, dtype, size, lengths, origin):
    psf = rng.standard_normal(size)
    assert torus_gpu.serves_psf(psf, lengths)
    wanted, found = (Torus(lengths, Device(gpu)) for gpu in (None, 0))
    eps = np.finfo(dtype).eps
    spectra = found.spectrum(psf, origin, dtype).get(), wanted.spectrum(psf, origin)
    assert spectra[0].dtype == np.result_type(dtype, np.complex64)
    assert abs(spectra[0] - spectra[1]).max() <= max(eps, 1e-14) * abs(psf).sum()
    powers = found.power(psf).get(), wanted.power(psf)
    assert powers[0].dtype == np.float64
    assert abs(powers[0] - powers[1]).max() <= 1e-14 * abs(psf).sum() ** 2


def test_a_part_of_a_symmetric_psfs_spectrum_is_its_sum_of_cosines(cupy, rng, dtype):
    blur = Blur(np.pad(rng.standard_normal((3, 2)), ((2, 0), (1, 0)), mode="reflect"), (30, 41), "reflect")
    for first in (0, 1):
        lengths = [2 * (n + first) for n in blur.image_shape]
        wanted, found = (symbol_at(blur, lengths, first, dtype, Device(gpu)) for gpu in (None, 0))
        assert found.dtype == dtype
        assert abs(found.get() - wanted).max() <= max(np.finfo(dtype).eps, 1e-14) * abs(blur.psf).sum()


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 33, 50), (1, 1, 700, 701), (1, 1, 7, 33, 50)])
def test_residual_norms_are_numpys_of_arrays_as_they_lie(cupy, rng, dtype, shape):
    lead, image = shape[:2], shape[2:]
    scene = tuple(n + more for n, more in zip(image, (6, 2, 3)[-len(image) :], strict=True))
    whole = [rng.standard_normal((*lead, *(m + 5 for m in n))).astype(dtype) for n in (*3 * [scene], image, image)]
    whole[4] *= dtype(1e15)
    parts = [(..., *map(slice, n[:-1]), slice(1, 1 + n[-1])) for n in (*3 * [scene], image, image)]
    b, a, f, g, d = (x[part] for x, part in zip(whole, parts, strict=True))
    there = [cupy.asarray(x)[part] for x, part in zip(whole, parts, strict=True)]
    wanted = [np.linalg.norm(x.astype(float)) for x in (b, a - dtype(0.3) * f, g, d)]
    found = residual_norms(*there[:3], 0.3, *there[3:])
    np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(dtype).eps)
    assert found == residual_norms(*there[:3], 0.3, *there[3:])


@pytest.mark.parametrize("shape", [(1, 1, 16, 9), (2, 3, 12, 20)])
def test_verification_in_frequency_is_that_by_products(cupy, rng, dtype, shape):
    blur, lam = Blur(rng.random((4, 3)), shape[2:], "periodic"), 0.3
    g, scene = rng.standard_normal((2, *shape)).astype(dtype)
    h = blur.transfer(dtype, Device(0))
    seen, sums = torus_gpu.residual_norms(cupy.asarray(g), cupy.asarray(scene), h, lam)
    wanted = blur.forward(scene.astype(float))
    left = blur.adjoint(g - wanted) - lam * scene
    tolerance = 30 * np.finfo(dtype).eps
    assert np.linalg.norm(seen.get() - wanted) <= tolerance * np.linalg.norm(wanted)
    np.testing.assert_allclose(sums.get(), [(left**2).sum(), (blur.adjoint(g) ** 2).sum()], rtol=tolerance)
    again = torus_gpu.residual_norms(cupy.asarray(g), cupy.asarray(scene), h, lam)[1]
    np.testing.assert_array_equal(sums.get(), again.get())


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 300, 301)])
def test_a_sum_is_added_up_in_double_precision(cupy, rng, dtype, shape):
    x = (rng.random(shape) + 1e3).astype(dtype)
    found = total(cupy.asarray(x))
    assert found.shape == ()
    assert found.dtype == np.float64
    np.testing.assert_allclose(float(found), x.astype(np.float64).sum(), rtol=1e-14)
