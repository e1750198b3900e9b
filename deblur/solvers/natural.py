"""The regularizer "natural": the linear formula for u, with f = Bu the scene (`deblur.operators.natural`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..device import Array
from ..operators.boundary import Boundary
from ..operators.natural import scenes
from ..problem import Factor, Solution, synchronize


@dataclass(frozen=True)
class Natural:
    """What a linear method prepared for u."""

    inner: Factor
    boundary: Boundary

    def synchronize(self) -> None:
        """See `deblur.problem.confirm`."""
        synchronize(self.inner)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """See `deblur.problem.Factor`."""
        found = self.inner.solve(g)  # a linear method begins anew
        return replace(found, scene=scenes(found.scene, self.boundary))
