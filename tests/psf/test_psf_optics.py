"""PSFs of microscopes against the integrals that define them, computed by SciPy's quadrature."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special

from deblur import psf

WAVELENGTH, NA, N = 0.5, 1.2, 1.4
SIDES = (0.25, 0.1, 0.1)


def integral(function, end):
    parts = (
        scipy.integrate.quad(lambda t, p=p: getattr(function(t), p), 0, end, limit=300)[0] for p in ("real", "imag")
    )
    return sum(part**2 for part in parts)


def intensity(model, r, z, depth=0.0, inside=N):
    """The intensity at the distance r from the axis when the focus lies z below the point's."""
    k, end = 2 * math.pi / WAVELENGTH, math.asin(NA / N)
    if model == "born-wolf":  # over the radius in the pupil, as in section 8.8 of their book
        return integral(lambda p: np.exp(0.5j * k * z * NA**2 / N * p**2) * scipy.special.j0(k * NA * r * p) * p, 1)

    def wave(t, order):
        s = N * math.sin(t)
        path = depth * math.sqrt(inside**2 - s**2) - (z + depth * N / inside) * math.sqrt(N**2 - s**2)
        return np.exp(1j * k * path) * scipy.special.jv(order, k * r * s) * math.sin(t)

    if model == "gibson-lanni":
        return integral(lambda t: wave(t, 0) * math.cos(t), end)
    parts = {0: lambda t: 1 + math.cos(t), 1: lambda t: math.sqrt(2) * math.sin(t), 2: lambda t: 1 - math.cos(t)}
    return sum(
        integral(lambda t, n=n, share=share: wave(t, n) * share(t) * math.sqrt(math.cos(t)), end)
        for n, share in parts.items()
    )


def in_voxel(value, place, fine=4):
    """The mean of a function of (r, z) over a voxel, by Gauss-Legendre points along each axis."""
    x, w = np.polynomial.legendre.leggauss(fine)
    z, y, x = (s * (i + x / 2) for s, i in zip(SIDES, place, strict=True))
    values = [[[value(math.hypot(b, c), a) for c in x] for b in y] for a in z]
    return np.einsum("abc,a,b,c", values, w, w, w)


@pytest.mark.parametrize("model", ["born-wolf", "gibson-lanni", "richards-wolf"])
def test_each_voxel_holds_the_integral_over_it(model):
    h = psf.microscope((9, 11, 11), SIDES, wavelength=WAVELENGTH, na=NA, index=N, model=model)
    assert abs(h.sum() - 1) < 1e-12
    np.testing.assert_allclose(h, h[::-1, ::-1, ::-1].swapaxes(1, 2), rtol=1e-9)
    peak = in_voxel(lambda r, z: intensity(model, r, z), (0, 0, 0))
    for place in ((0, 2, 1), (-3, 1, -2), (4, 3, 5)):
        expected = in_voxel(lambda r, z: intensity(model, r, z), place) / peak
        assert abs(h[tuple(np.add(place, (4, 5, 5)))] / h[4, 5, 5] - expected) < 2e-5


def test_a_specimen_of_another_index_spreads_the_light_along_z():
    below = {"depth": 5.0, "inside": 1.25}
    options = {"wavelength": WAVELENGTH, "na": NA, "index": (N, 1.25, 5.0), "model": "gibson-lanni"}
    h = psf.microscope((21, 1, 1), (0.3, 0.001), **options)[:, 0, 0]
    expected = [
        scipy.integrate.quad(lambda z: intensity("gibson-lanni", 0.0, z, **below), 0.3 * i - 0.15, 0.3 * i + 0.15)[0]
        for i in range(-10, 11)
    ]
    np.testing.assert_allclose(h, np.divide(expected, sum(expected)), atol=1e-5)
    assert h[:10].sum() < 0.2  # the marginal rays meet deeper than the paraxial ones


def test_a_wide_field_microscope_spreads_the_same_light_over_each_plane():
    h = psf.microscope((15, 101, 101), (0.25, 0.1), wavelength=WAVELENGTH, na=0.8, index=1.0)
    planes = h.sum(axis=(1, 2))
    assert np.ptp(planes) < 0.03 * planes[7]


def test_one_plane_is_that_of_a_thin_stack():
    thin = psf.microscope((3, 9, 9), (1e-3, 0.1), wavelength=WAVELENGTH, na=NA, z=0.4)[1]
    np.testing.assert_allclose(
        psf.microscope(9, 0.1, wavelength=WAVELENGTH, na=NA, z=0.4), thin / thin.sum(), rtol=1e-4
    )


def test_products_of_illumination_and_detection():
    size, voxel, both = (7, 9, 9), (0.02, 0.01), {"na": NA, "index": N}
    excited, detected = (psf.microscope(size, voxel, wavelength=w, **both) for w in (0.4, 0.5))
    waves = {"excitation": 0.4, "emission": 0.5}
    closed = psf.confocal(size, voxel, pinhole=0.0, **waves, **both)
    np.testing.assert_allclose(closed, excited * detected / (excited * detected).sum(), rtol=1e-3)
    np.testing.assert_allclose(psf.confocal(size, voxel, pinhole=2.0, **waves, **both), excited, rtol=0.05)
    # One Airy unit: the detection, blurred by the pinhole's disc in the specimen.
    large = psf.microscope((7, 61, 61), voxel, wavelength=0.5, **both)
    disc, side = psf.disk(53, 0.61 * 0.5 / NA / 0.01), range(9)
    seen = np.array([[[(p[y : y + 53, x : x + 53] * disc).sum() for x in side] for y in side] for p in large])
    np.testing.assert_allclose(
        psf.confocal(size, voxel, **waves, **both), excited * seen / (excited * seen).sum(), rtol=2e-3
    )
    sheet = psf.light_sheet(size, voxel, wavelength=0.5, sheet=0.2, **both)
    profile = np.exp(-2 * (np.arange(-3, 4) * 0.02 / 0.2) ** 2)[:, None, None] * detected
    np.testing.assert_allclose(sheet, profile / profile.sum(), rtol=2e-3)
