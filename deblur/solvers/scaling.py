"""Problems of any size brought near one, where squares neither overflow nor vanish.

With H = s H', λ = s² λ' and g = t g' both linear formulas are f = (t/s) f', f' that of H', λ' and g'. Powers of two
change no digit, and what is near one is left as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..device import Array, get_xp
from ..operators.blur import Blur
from ..problem import Factor, Problem, Solution

_NEAR = 20  # powers of two: the fourth power of a number so near one is far from the ends of float32


def scaled(problem: Problem) -> tuple[Problem, int]:
    """The problem near one, and the power of two that its operator was divided by.

    Of an operator that is no blur by one PSF nothing can be divided: it is left as it is.
    """
    blur = problem.operator.stationary
    if blur is None:
        return problem, 0
    exponent = math.frexp(max(blur.gain, math.sqrt(problem.lam)))[1]
    if abs(exponent) <= _NEAR:
        return problem, 0
    psf, s = np.ldexp(blur.psf, -exponent), math.ldexp(1.0, exponent)
    lam = max(problem.lam / s / s, np.finfo(np.float64).tiny) if problem.lam else 0.0
    near = Blur(psf, blur.image_shape, blur.boundary, origin=blur.origin)
    return replace(problem, operator=near, lam=lam), exponent


class Scaled:
    """A factor of `scaled`'s problem, for images of the problem itself."""

    def __init__(self, factor: Factor, exponent: int) -> None:
        self._factor, self._exponent = factor, exponent

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """See `deblur.problem.Factor`."""
        image = 0
        if g.dtype == np.float32:  # float64 has room for the squares of any image
            image = math.frexp(float(abs(g).max()))[1]
            image = image if abs(image) > _NEAR else 0
        if not (image or self._exponent):
            return self._factor.solve(g, start)
        xp = get_xp(g)
        solution = self._factor.solve(xp.ldexp(g, -image), start if not image else None)
        return replace(solution, scene=xp.ldexp(solution.scene, image - self._exponent))
