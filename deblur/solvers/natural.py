"""What a linear method prepared, for images of another dtype or under the regularizer "natural"."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..device import Array
from ..operators.boundary import Boundary
from ..operators.natural import scenes
from ..problem import Factor, Solution, synchronize


@dataclass(frozen=True)
class Prepared:
    """What a linear method prepared.

    Attributes
    ----------
    inner : Factor
    dtype : dtype
        Of its arrays; images of another dtype get scenes of their own.
    boundary : Boundary or None
        Given, it solves for u under the regularizer "natural", with f = Bu the scene (`deblur.operators.natural`).
    axes : int
        Of space.
    """

    inner: Factor
    dtype: np.dtype
    boundary: Boundary | None
    axes: int = 2

    def synchronize(self) -> None:
        """See `deblur.problem.synchronize`."""
        synchronize(self.inner)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """See `deblur.problem.Factor`."""
        found = self.inner.solve(g.astype(self.dtype, copy=False), start if self.boundary is None else None)
        scene = found.scene if self.boundary is None else scenes(found.scene, self.boundary, self.axes)
        return replace(found, scene=scene.astype(g.dtype, copy=False))
