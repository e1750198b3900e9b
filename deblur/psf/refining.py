"""Improve a nearly correct PSF by means of the blurred image: semi-blind estimation of a few parameters.

First, noise along the border of the given PSF is removed (`denoise`). Then the true PSF is assumed to be the given one
raised to a power (an ignored tone curve), enlarged and rotated. The three parameters have normal priors around "no
change". Their likelihood is that of the image's power spectrum (`spectra`), whose scene and noise are fitted again for
each PSF. A blur differs from every scene by the positions at which its spectrum is near zero, and these depend on the
parameters. A simplex search [1]_ maximises the posterior.

Before it is rotated or enlarged, a PSF is decomposed into points of light, 5 x 5 per pixel, each spread over the four
nearest pixels. This uses the iteration of Richardson [2]_ and Lucy [3]_. Interpolation between the pixels would smooth
a thin path, and the image would contradict the right rotation.

Parameters are added one by one, each time the one with the largest gain, as long as the gain is clear. A scene whose
spectrum is not smooth, such as text, or the noise of a measured PSF may change parameters that are correct. Therefore
the edges are used as well, which the power does not contain: a step of blind estimation (`blurred`) yields the change
of the PSF that they demand. The gain of the log-likelihood is multiplied by (1 + c)², where c is the correlation of
both changes.

A change that resembles a smooth change of the scene's spectrum cannot be found. Examples are the integration over a
pixel, and a slightly wider Gaussian. Single pixels cannot be corrected either.

References
----------
.. [1] J. A. Nelder, R. Mead, "A simplex method for function minimization", The Computer Journal 7 (1965) 308.
.. [2] W. H. Richardson, "Bayesian-based iterative method of image restoration", JOSA 62 (1972) 55.
.. [3] L. B. Lucy, "An iterative technique for the rectification of observed distributions", AJ 79 (1974) 745.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from ..operators.adapted import AdaptedOperator
from ..problem import Problem, Stop
from ..solvers.noise import psf_error
from ..solvers.richardson_lucy import RichardsonLucy
from ..terms import DataFidelity
from .blurred import finest_scale
from .checking import checked_picture
from .estimate import PSFEstimate, graded, grey, percent, placed
from .models import centre, coordinates, spread, unit_sum
from .shaping import crop, cut_off_noise, denoise
from .spectra import PictureSpectrum, compressed

#: The parameters and the standard deviations of their priors: degrees, logarithms of size and exponent.
PARAMETERS = {"rotation": 1.5, "scale": 0.04, "exponent": 0.25}


def refine(image: Any, psf: Any) -> PSFEstimate:
    """Correct the noise, angle, size and tone curve of a PSF by means of the blurred image.

    Parameters
    ----------
    image : (M, N) array
        The blurred grey image, at least 64 pixels a side, not compressed. Volumes are refused.
    psf : (m, n) array
        A nearly correct PSF: measured at another time, or with another setting of the lens, or stored with noise or a
        tone curve.

    Returns
    -------
    PSFEstimate
        ``psf`` has the sum of the given PSF. It is the given PSF unless the image clearly shows that another is better.
        ``details`` has ``changed``, the names of the changed parameters, and "noise"; ``rotation`` in degrees
        counter-clockwise; ``scale``, the relative size; ``exponent`` of the pixel values; ``evidence``, the
        log-likelihood ratio to the given PSF; and ``error_before``, the estimated error of the given PSF.

    Raises
    ------
    ValueError
        If the image is too small or constant, or the array is not a PSF.

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
    h, lossy = unit_sum(given), compressed(picture)
    noisy = cut_off_noise(h, least=0) > 0
    posterior = _Posterior(picture, denoise(h) if noisy else h)
    best = np.zeros(len(PARAMETERS)) if lossy else posterior.best()
    changed = ["noise"] * noisy + [name for name, value in zip(PARAMETERS, best, strict=True) if value]
    psfs = (before := placed(h, posterior.shape)), posterior.psf(best) if changed else before
    evidence = posterior.likelihood(psfs[0]) - posterior.likelihood(psfs[1])
    size, change = (float(np.linalg.norm(p)) for p in (psfs[1], psfs[1] - psfs[0]))
    errors = [max(psf_error(picture, p)[0] / size, 0.02) for p in psfs]
    error_before, error = math.hypot(errors[0], change / size), math.hypot(errors[1], 0.4 * change / size)  # simulated
    reason = "the PSF is as it was given: "
    if changed:
        reason = f"changed by its {', '.join(changed)}; the error was {percent(error_before)}"
    elif lossy:
        reason += "the image was compressed (JPEG), which hides the zeros of a blur; use the raw image"
    else:
        reason += f"no change of {', '.join(PARAMETERS)} explains the image clearly better"
    rotation, scale, exponent = best * [*PARAMETERS.values()]
    details = {"changed": ", ".join(changed) or "nothing", "rotation": float(rotation), "scale": math.exp(scale)}
    details |= {"exponent": math.exp(exponent), "evidence": evidence, "error_before": error_before}
    refined = crop(psfs[1], 1 - 1e-9) * given.sum() if changed else given
    return graded(refined * unit, error, details, {reason: True}, {"": True})


class _Posterior:
    """The posterior of the parameters for an image; each parameter is divided by the standard deviation of
    its prior.
    """

    def __init__(self, picture: np.ndarray, h: np.ndarray) -> None:
        self._spectrum = PictureSpectrum(picture)
        # Leave room for a PSF that is a tenth larger.
        self.shape = tuple(n + 2 * math.ceil(0.05 * n + 1) for n in h.shape)
        self._given = np.maximum(placed(h, self.shape) / h.max(), 0).ravel()
        points = np.stack(np.broadcast_arrays(*coordinates(tuple(5 * n for n in self.shape)))).reshape(2, -1) / 5
        self._points = points[:, self._spread(points).T @ self._given > 1e-5]
        self._light: tuple[float, np.ndarray] = math.nan, np.zeros(0)
        self._scale = finest_scale(picture, max(self.shape) | 1)

    def psf(self, parameters: np.ndarray) -> np.ndarray:
        """Return the changed PSF, with sum one."""
        rotation, scale, exponent = parameters * [*PARAMETERS.values()]
        h = self._given ** math.exp(exponent)
        if rotation or scale:
            if self._light[0] != exponent:
                self._light = exponent, _points_of(h.reshape(self.shape), self._spread(self._points))
            c, s = (f(math.radians(rotation)) * math.exp(scale) for f in (math.cos, math.sin))
            h = self._spread(np.array([[c, -s], [s, c]]) @ self._points) @ self._light[1]
        return unit_sum(h.reshape(self.shape))

    def _spread(self, points: np.ndarray) -> scipy.sparse.csr_array:
        """Return the matrix that spreads the light of points, given relative to the centre, over pixels."""
        return spread(points + np.reshape(centre(self.shape), (2, 1)), self.shape)

    def likelihood(self, h: np.ndarray) -> float:
        """Return the negative log-likelihood of a PSF."""
        return self._spectrum.against(1.0, self._spectrum.fit(self._spectrum.transfer(h))[0])

    def _cost(self, parameters: np.ndarray) -> float:
        # An exponent far below one amplifies the remaining noise around the PSF to a wide base.
        if parameters[-1] < -1.6 or abs(parameters).max() > 4:
            return math.inf
        return self.likelihood(self.psf(parameters)) + 0.5 * float((parameters**2).sum())

    def _agreement(self, before: np.ndarray, after: np.ndarray) -> float:
        """Return the correlation, from -1 to 1, of a change with the change that the edges of the image demand."""
        size = max(self.shape) | 1
        h, new = (placed(self.psf(parameters), (size, size)).astype(np.float32) for parameters in (before, after))
        demanded = self._scale.psf(self._scale.scene(h, self._scale.lam), h) - h
        return float(np.corrcoef((new - h).ravel(), demanded.ravel())[0, 1])

    def best(self) -> np.ndarray:
        """Return the most probable parameters, most of which are 0."""
        trials = (-1, 1), (-0.8, 0.8), (-1.4, 1.4, 2.8)
        best, units, free = np.zeros(len(PARAMETERS)), np.eye(len(PARAMETERS)), list[int]()
        # The least gain allows for chance, and for a scene whose spectrum is not smooth.
        least, cost = 0.011 * len(self._spectrum.power), self._cost(best)
        while len(free) < len(best):
            others = [i for i in range(len(best)) if i not in free]
            starts = [(best + value * units[i], i) for i in others for value in trials[i]]
            start, new = min(starts, key=lambda trial: self._cost(trial[0]))
            axes = units[[*free, new]]
            simplex = axes @ start + 0.3 * np.vstack([np.zeros(len(axes)), np.eye(len(axes))])
            options = {"initial_simplex": simplex, "xatol": 0.03, "fatol": 0.3, "maxfev": 18 * len(axes)}
            found = scipy.optimize.minimize(
                lambda x, a=axes: self._cost(x @ a), simplex[0], method="Nelder-Mead", options=options
            )
            gain = cost - found.fun
            if gain < least / 4 or gain * (1 + self._agreement(best, found.x @ axes)) ** 2 < least:
                break
            best, cost, free = found.x @ axes, found.fun, [*free, new]
        return best


def _points_of(h: np.ndarray, spread: scipy.sparse.csr_array) -> np.ndarray:
    """Return the light (k,) of points whose sum is the pixels h (m, n) [2]_ [3]_."""
    of_points = scipy.sparse.linalg.aslinearoperator(spread)
    of_points.dims = 1, spread.shape[1]
    operator: Any = AdaptedOperator(of_points, h.shape)
    problem = Problem(operator, 0.0, fidelity=DataFidelity("poisson"), stop=Stop(0.0, 24))
    return RichardsonLucy(problem).solve(h[None, None]).scene.ravel()
