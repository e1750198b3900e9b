"""deblur: image deblurring as a linear inverse problem.

A blur is a matrix H, the blurred image g = H f + n, and the restored image
solves (HHᵀ + λI). `reconstruct` is the one call; everything it decides can be
seen (`solve`), asked for beforehand (`choose_method`) and overridden.
"""

from . import terminal  # noqa: F401  first, so that Ctrl-C during the other imports is met

# isort: split
from . import compare, data, image, linalg, matlab, metrics, plot, psf, regularization
from .blur import BOUNDARIES, Blur, filter2matrix
from .degrade import degrade
from .errors import (
    ConvergenceError,
    InsufficientMemoryError,
    MethodError,
    NoGPUError,
    SingularMatrixError,
)
from .image import im2vector, vector2im
from .methods import METHODS, Choice, choose_method
from .pipeline import Deblurrer, Result, Status, reconstruct, solve
from .regularization import LambdaChoice, choose_lambda
from .uncertainty import PosteriorStd, posterior_std
from .updating import QRDeblurrer

__version__ = "0.1.0"

__all__ = [
    "BOUNDARIES",
    "METHODS",
    "Blur",
    "Choice",
    "ConvergenceError",
    "Deblurrer",
    "InsufficientMemoryError",
    "LambdaChoice",
    "MethodError",
    "NoGPUError",
    "PosteriorStd",
    "QRDeblurrer",
    "Result",
    "SingularMatrixError",
    "Status",
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
    "plot",
    "posterior_std",
    "psf",
    "reconstruct",
    "regularization",
    "solve",
    "vector2im",
]
