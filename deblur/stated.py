"""One image on the road: its frames near one, and what is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .combined import combined
from .device import Array
from .frames import ALL, Frames, Part
from .operators.operator import Operator
from .options import Request
from .problem import Problem
from .solvers.scaling import Scale, shifted
from .solvers.start import prior_scene


@dataclass(frozen=True)
class Stated:
    """Frames near one: as they are, what is solved for, and what the scene is drawn towards."""

    g: Array
    data: Array
    prior: Array | None

    @classmethod
    def of(cls, operator: Operator, g: Array, prior: str) -> Stated:
        if prior == "zero":
            return cls(g, g, None)
        scene = prior_scene(operator, g)  # its deviation from this is what is solved for
        return cls(g, combined(g, operator.forward(scene), b=-1), scene)


@dataclass(frozen=True)
class StatedImage:
    """One image on the road, near one: its frames, what is asked, the mask, and the parts that are solved for one after
    the other, so that not all of it need be in memory at once."""

    frames: Frames
    scale: Scale
    request: Request
    problem: Problem
    mask: Array | None
    start: float
    parts: list[Part]
    whole: Stated | None  # where there is one part
    loading: float  # seconds foretold of importing what nobody has used yet

    def stated(self, at: Part) -> Stated:
        """A part of the frames."""
        if self.whole is not None:
            return self.whole
        g = shifted(self.frames.part(at), -self.scale.image).astype(self.problem.dtype, copy=False)
        return Stated.of(self.problem.operator, g, self.request.prior)

    def drawn(self, penalty: str) -> StatedImage:
        """The image for a penalty: what is "natural" is drawn towards the smoothed image."""
        if penalty != "natural" or self.request.prior != "zero":
            return self
        image = replace(self, request=replace(self.request, prior="smooth"), whole=None)
        return image if self.whole is None else replace(image, whole=image.stated(ALL))

    def all_data(self) -> Array:
        """What is solved for, of all frames."""
        if self.whole is not None:
            return self.whole.data
        return self.stated(ALL).data

    def left(self) -> Iterator[Array]:
        """What is solved for, (M, N), one frame after the other."""
        for at in self.parts:
            data = self.stated(at).data
            yield from data.reshape(-1, *data.shape[2:])
