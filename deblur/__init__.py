"""deblur: image deblurring as a linear inverse problem.

A blur is a matrix H, the blurred image g = H f + n, and the restored image
solves (HHᵀ + λI). `reconstruct` is the one call; everything it decides can be
seen (`solve`), asked for beforehand (`choose_method`) and overridden.
"""

from typing import TYPE_CHECKING

from . import terminal  # noqa: F401  first, so that Ctrl-C during the other imports is met

# isort: split
from . import data, image, linalg, metrics, psf, tuning
from .blind import BlindResult, blind
from .degrade import degrade
from .errors import (
    ConvergenceError,
    InsufficientMemoryError,
    MethodError,
    NoGPUError,
    PSFWarning,
    SingularMatrixError,
)
from .image import im2vector, vector2im
from .lazy import names_from
from .methods import METHODS, Choice, choose_method
from .operators.blur import Blur
from .operators.boundary import BOUNDARIES, Boundary
from .operators.matrix import filter2matrix
from .operators.varying import VaryingBlur
from .pipeline import Deblurrer, reconstruct, solve
from .result import Result, Status
from .tuning import LambdaChoice, choose_lambda
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import compare, matlab, plot
    from .posterior import PosteriorStd, posterior_std
    from .tiles import TilePlan, plan_tiles, tiled
    from .updating import QRDeblurrer

__all__ = [
    "BOUNDARIES",
    "METHODS",
    "BlindResult",
    "Blur",
    "Boundary",
    "Choice",
    "ConvergenceError",
    "Deblurrer",
    "InsufficientMemoryError",
    "LambdaChoice",
    "MethodError",
    "NoGPUError",
    "PSFWarning",
    "PosteriorStd",
    "QRDeblurrer",
    "Result",
    "SingularMatrixError",
    "Status",
    "TilePlan",
    "VaryingBlur",
    "blind",
    "choose_lambda",
    "choose_method",
    "compare",
    "data",
    "degrade",
    "filter2matrix",
    "im2vector",
    "image",
    "linalg",
    "matlab",
    "metrics",
    "plan_tiles",
    "plot",
    "posterior_std",
    "psf",
    "reconstruct",
    "solve",
    "tiled",
    "tuning",
    "vector2im",
]

__getattr__ = names_from(
    __name__,
    {
        "compare": (),
        "matlab": (),
        "plot": (),
        "posterior": ("PosteriorStd", "posterior_std"),
        "tiles": ("TilePlan", "plan_tiles", "tiled"),
        "updating": ("QRDeblurrer",),
    },
)


def __dir__() -> list[str]:
    return __all__
