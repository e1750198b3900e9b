"""Make a blurred, noisy image from a sharp one: g = h * f + n."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .device import Array, as_real, asnumpy, check_finite, get_xp, unwrapped
from .errors import check_choice, check_number, generator
from .frames import Axes
from .image import as_float
from .operators.blur import Blur
from .operators.boundary import get_boundary
from .operators.matrix import SPACES, check_psf

#: The kinds of noise, and the meaning of `level` for each.
NOISES = {
    "gaussian": "standard deviation on the unit scale",
    "salt-pepper": "fraction of the values replaced by 0 or 1",
    "poisson": "photons counted at value 1",
}


def degrade(
    image: Array,
    psf: Array,
    *,
    noise: float | str = 0.0,
    level: float | None = None,
    boundary: str = "zero",
    origin: Sequence[int] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    seed: int | np.random.Generator | None = None,
) -> Array:
    """Blur an image and add noise.

    Parameters
    ----------
    image : (M, N) array, with one dimension more for each of `channel_axis` and `stack_axis`
        The sharp scene, NumPy or CuPy. Integers are scaled to [0, 1] as
        `deblur.image.as_float` does. A 1-D PSF needs a line, a 3-D PSF a volume.
    psf : (m, n) array
        The point spread function, the same for every channel; NumPy or CuPy, independently of `image`.
    noise : float or {"gaussian", "salt-pepper", "poisson"}
        A number is the standard deviation of Gaussian noise on the unit scale; 0 (default) adds none.
        A name needs `level`.
    level : float, optional
        The strength of the named noise. ``"gaussian"``: standard deviation on the
        unit scale. ``"salt-pepper"``: the fraction of values, in [0, 1], that
        become 0 or 1 with equal probability. ``"poisson"``: the mean number of
        photons counted where the blurred image is 1; fewer photons mean more noise.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene continues outside `image` (see `deblur.operators.matrix`).
        ``"unknown"`` assumes nothing: the result is the 'valid' convolution, a
        smaller frame, such as a camera records of a larger scene.
    origin : tuple of int, optional
        Index of the PSF's centre, as for `deblur.Blur`.
    channel_axis : int, optional
        The axis of the colours. Each is blurred separately and gets independent noise. Without it, an image
        (M, N, 3) is colour.
    stack_axis : int, optional
        The axis of the frames, which are treated in the same way.
    seed : int, numpy.random.Generator or None
        The same seed gives the same noise on the CPU and on the GPU, since the
        noise is drawn on the host. None gives different noise at each call.

    Returns
    -------
    array
        Shape of `image`, or (M - m + 1, N - n + 1) for ``"unknown"``; float32
        for a float32 image, else float64. Values are not clipped to [0, 1].

    Raises
    ------
    ValueError
        For NaN or infinity, a wrong number of axes, a PSF larger than the
        image, an unknown noise or boundary, a missing level or one out of its
        range, or Poisson noise on a blurred image with negative values.
    TypeError
        For arrays that do not hold real numbers, and an axis that is not a whole number.

    Notes
    -----
    Noise is added after the blur. Gaussian noise is not clipped, so values below 0
    and above 1 occur; clip them to imitate a file of integers.
    """
    kind, amount = _check_noise(noise, level)
    psf = asnumpy(unwrapped(psf, "psf"))  # Blur keeps it on the host
    image = as_real(as_float(image), "the image")
    axes = Axes(image.shape, channel_axis, stack_axis, check_psf(psf, axes=SPACES).ndim)
    if channel_axis is None and axes.colours == 4:
        raise ValueError("the fourth channel of an image is its opacity: leave it out, or blur it (channel_axis=-1)")
    if image.size == 0:
        raise ValueError(f"the image holds no pixels (shape {image.shape})")
    check_finite(image, "image")
    noisy = with_noise(_blur(axes.split(image), psf, boundary, origin), kind, amount, generator(seed))
    return axes.joined(noisy.astype(image.dtype, copy=False))


def _check_noise(noise: float | str, level: float | None) -> tuple[str, float]:
    """Return the kind of noise and its level, after checking both."""
    kind = noise if isinstance(noise, str) else "gaussian"
    check_choice(kind, NOISES, "noise")
    if isinstance(noise, str) and level is None:
        raise ValueError(f"noise {noise!r} needs level, its {NOISES[kind]}")
    if not isinstance(noise, str) and level is not None:
        raise ValueError(f"level belongs to a noise given by name ({', '.join(NOISES)}), not to noise={noise!r}")
    amount = check_number(noise if level is None else level, f"the level of the noise {kind!r}, its {NOISES[kind]},")
    if kind == "salt-pepper" and amount > 1:
        raise ValueError(f"the {NOISES[kind]} must lie between 0 and 1, not {amount!r}")
    if kind == "poisson" and amount == 0:
        raise ValueError("Poisson noise needs at least some photons; a level of 0 would give a black image")
    return kind, amount


def _blur(scene: Array, psf: Array, boundary: str, origin: Sequence[int] | None) -> Array:
    space = scene.shape[-psf.ndim :]
    edge = get_boundary(boundary)
    shape = tuple(n - edge.extra(m) for n, m in zip(space, psf.shape, strict=True))
    if any(m > n for m, n in zip(psf.shape, shape, strict=True)):
        why = f"the PSF {psf.shape} is larger than the blurred image, {shape} for boundary={boundary!r} of {space}"
        raise ValueError(f"{why}: crop the PSF or use a larger image")
    return Blur(psf, shape, edge, origin=origin).forward(scene)


def with_noise(image: Array, kind: str, amount: float, rng: np.random.Generator) -> Array:
    """Return an image with noise of a kind and a level that are already checked."""
    xp = get_xp(image)
    if kind == "gaussian":
        return image if amount == 0 else image + amount * xp.asarray(rng.standard_normal(image.shape))
    if kind == "salt-pepper":
        draw = xp.asarray(rng.random(image.shape))
        return xp.where(draw < amount / 2, 0.0, xp.where(draw < amount, 1.0, image))
    expected = asnumpy(image)
    # Where the image is black, rounding of the FFT may fall below zero; anything lower is not light.
    if expected.min() < -1e3 * np.finfo(expected.dtype).eps * abs(expected).max():
        raise ValueError(
            f"Poisson noise counts light, and the blurred image falls to {expected.min():.4g}; "
            "use an image and a PSF without negative values"
        )
    if not expected.max() * amount < 2**62:
        raise ValueError(f"{amount:.3g} photons at value 1 are too many to be counted: their noise is below rounding")
    return xp.asarray(rng.poisson(np.maximum(expected.astype(np.float64), 0.0) * amount) / amount)
