"""Improve a PSF that is nearly right from the blurred image: semi-blind estimation of a few parameters.

The true PSF is taken to be the given one without its background, raised to a power (a tone curve that was ignored),
enlarged and rotated. The four parameters have normal priors around "no change". Their likelihood is that of the
image's power spectrum (`spectra`), whose scene and noise are fitted anew for each PSF: a blur differs from everything
that a scene may do by the places where its spectrum is near zero, and those move with the parameters. A simplex
search [1]_ maximises the posterior.

Each half of the windows tests the parameters that the other half found. Only if both find an improvement is the PSF
changed, and then only by those parameters that the likelihood needs. Changes that a smooth change of the scene's
spectrum imitates, such as a little more width of a Gaussian, cannot be found, nor can single pixels be corrected.

References
----------
.. [1] J. A. Nelder, R. Mead, "A simplex method for function minimization", The Computer Journal 7 (1965) 308.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .checking import checked_picture
from .estimate import PSFEstimate, centre, graded, grey, percent, placed
from .models import unit_sum
from .shaping import crop
from .spectra import PictureSpectrum, compressed

#: The parameters and their priors' deviations: a share of the largest pixel, degrees, logarithms of size and exponent.
PARAMETERS = {"background": 0.05, "rotation": 1.5, "scale": 0.04, "exponent": 0.25}


def refine(image: Any, psf: Any) -> PSFEstimate:
    """Correct the angle, size, tone and background of a PSF by the blurred image.

    Parameters
    ----------
    image : (M, N) array
        The blurred grey image, at least 64 pixels a side, not compressed.
    psf : (m, n) array
        Nearly the PSF: measured at another time, by another lens setting, or stored with noise or a tone curve.

    Returns
    -------
    PSFEstimate
        ``psf`` has the sum of the given one, and is the given one where the image does not show clearly that another
        is better. ``details``: ``changed``, the names of the parameters; ``rotation`` in degrees counter-clockwise;
        ``scale``; ``exponent`` of the pixels' values; ``background``, the share of the largest pixel below which
        nothing is left; ``evidence``, the log-likelihood ratio against the given PSF of windows that did not take part
        in the fit; ``error_before``, the error of the given PSF, estimated alike.

    Raises
    ------
    ValueError
        If the image is too small or of one brightness, or the array is no PSF.

    Examples
    --------
    >>> import deblur
    >>> scene, truth = deblur.data.load("camera")[100:356, 100:356], deblur.psf.disk(11, 4.2)
    >>> picture = deblur.degrade(scene, truth, noise=0.003, boundary="unknown", seed=0)
    >>> found = deblur.psf.refine(picture, deblur.psf.disk(11, 4.0))
    >>> 1 < found.details["scale"] < 1.05, found.error < 0.5 * found.details["error_before"]
    (True, True)
    """
    picture, (given, unit) = checked_picture(image), grey(psf, "the PSF")
    h = unit_sum(given)
    posterior = _Posterior(PictureSpectrum(picture), h)
    best = none = np.zeros(len(PARAMETERS))
    evidence, lossy = 0.0, compressed(picture)
    if not lossy:
        a, b = (_Posterior(PictureSpectrum(picture, half), h) for half in (0, 1))
        evidence = sum(test.likelihood(none) - test.likelihood(fit.best()) for fit, test in ((a, b), (b, a)))
    if evidence > 20:  # the largest that exact PSFs reach, but for one in ten
        best = posterior.best()
        for i in np.argsort(abs(best)):
            without = np.where(np.arange(len(best)) == i, 0, best)
            if posterior.likelihood(without) - posterior.likelihood(best) < 3:
                best = without
    psfs = posterior.psf(none), posterior.psf(best)
    change = float(np.linalg.norm(psfs[1] - psfs[0]) / np.linalg.norm(psfs[1]))
    before = math.hypot(posterior.error(none), change)
    error = math.hypot(posterior.error(best), 0.4 * change)  # 0.4: what simulations leave of it
    changed = [name for name, value in zip(PARAMETERS, best, strict=True) if value]
    reason = "the PSF is as it was given: "
    if changed:
        reason = f"changed by its {', '.join(changed)}; the error was {percent(before)}"
    elif lossy:
        reason += "the image was compressed (JPEG), which hides the zeros of a blur; use the raw image"
    else:
        reason += f"no change of {', '.join(PARAMETERS)} explains the image clearly better"
    background, rotation, scale, exponent = best * [*PARAMETERS.values()]
    status, why = graded(error, reason, {}, {"": True})
    details = {"changed": ", ".join(changed) or "nothing", "rotation": float(rotation)}
    details |= {"scale": math.exp(scale), "exponent": math.exp(exponent), "background": float(background)}
    details |= {"evidence": evidence, "error_before": before}
    refined = crop(psfs[1], 1 - 1e-9) * given.sum() if changed else given
    return PSFEstimate(refined * unit, error, status, why, details)


class _Posterior:
    """The posterior of the parameters, each over the deviation of its prior, for an image's spectrum."""

    def __init__(self, spectrum: PictureSpectrum, h: np.ndarray) -> None:
        self._spectrum = spectrum
        # Room for a PSF that is a tenth larger.
        self._given = placed(h, tuple(n + 2 * math.ceil(0.05 * n + 1) for n in h.shape))

    def psf(self, parameters: np.ndarray) -> np.ndarray:
        """The changed PSF, of unit sum."""
        from scipy.ndimage import affine_transform

        background, rotation, scale, exponent = parameters * [*PARAMETERS.values()]
        h = np.maximum(self._given / self._given.max(), 0)
        if background > 0:
            h = h * np.clip(h / background - 1, 0, 1)  # all of it from twice the background on
        if exponent:
            h = h ** math.exp(exponent)
        if rotation or scale:
            turn, middle = math.radians(rotation), np.array(centre(h.shape))
            c, s = (f(turn) * math.exp(-scale) for f in (math.cos, math.sin))
            back = np.array([[c, s], [-s, c]])
            h = np.maximum(affine_transform(h, back, middle - back @ middle), 0)
        return unit_sum(h)

    def likelihood(self, parameters: np.ndarray, error: float = 0.0) -> float:
        """Minus the log-likelihood, where the PSF may have a relative error that is the same at all frequencies."""
        h = self.psf(parameters)
        transfer = self._spectrum.transfer(h) + error**2 * float((h**2).sum())
        return self._spectrum.against(1.0, self._spectrum.fit(transfer)[0])

    def _cost(self, parameters: np.ndarray) -> float:
        # An exponent far below one lifts what noise is left around the PSF to a wide base.
        if parameters[0] < 0 or parameters[-1] < -1.6 or abs(parameters).max() > 4:
            return math.inf
        return self.likelihood(parameters) + 0.5 * float((parameters**2).sum())

    def best(self) -> np.ndarray:
        """The most probable parameters."""
        from scipy.optimize import minimize

        start = np.zeros(len(PARAMETERS))
        trials = ((0, 0.4, 1), (0, -1, 1), (0, -0.8, 0.8), (0, -1.4, 1.4, 2.8))
        for unit, values in zip(np.eye(len(start)), trials, strict=True):
            start = min((start + value * unit for value in values), key=self._cost)
        simplex = np.vstack([start, start + 0.3 * np.eye(len(start))])
        options = {"initial_simplex": simplex, "xatol": 0.03, "fatol": 0.3, "maxfev": 100}
        return minimize(self._cost, start, method="Nelder-Mead", options=options).x

    def error(self, parameters: np.ndarray) -> float:
        """The likeliest relative error of a PSF, from 2 % on."""
        levels = np.geomspace(0.02, 1, 18).tolist()
        return min(levels, key=lambda level: self.likelihood(parameters, level))
