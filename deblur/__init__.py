"""deblur: image deblurring as a linear inverse problem.

A blur is a matrix H, the blurred image g = H f + n, and the restored image
solves (HHᵀ + λI). `reconstruct` is the one call; everything it decides can be
seen (`solve`), asked for beforehand (`choose_method`) and overridden.
"""

from typing import TYPE_CHECKING

from . import terminal  # noqa: F401  first, so that Ctrl-C during the other imports is met
from .lazy import names_from

if TYPE_CHECKING:
    from . import compare as compare
    from . import data as data
    from . import image as image
    from . import linalg as linalg
    from . import matlab as matlab
    from . import metrics as metrics
    from . import plot as plot
    from . import psf as psf
    from . import tuning as tuning
    from .blind_restoration import BlindResult as BlindResult
    from .blind_restoration import blind as blind
    from .degradation import degrade as degrade
    from .errors import ConvergenceError as ConvergenceError
    from .errors import InsufficientMemoryError as InsufficientMemoryError
    from .errors import MethodError as MethodError
    from .errors import NoGPUError as NoGPUError
    from .errors import PSFWarning as PSFWarning
    from .errors import SingularMatrixError as SingularMatrixError
    from .image.arrays import im2vector as im2vector
    from .image.arrays import vector2im as vector2im
    from .methods import METHODS as METHODS
    from .methods import Choice as Choice
    from .methods import choose_method as choose_method
    from .operators.blur import Blur as Blur
    from .operators.boundary import BOUNDARIES as BOUNDARIES
    from .operators.boundary import Boundary as Boundary
    from .operators.matrix import filter2matrix as filter2matrix
    from .operators.varying import VaryingBlur as VaryingBlur
    from .pipeline import Deblurrer as Deblurrer
    from .pipeline import reconstruct as reconstruct
    from .pipeline import solve as solve
    from .posterior import PosteriorStd as PosteriorStd
    from .posterior import posterior_std as posterior_std
    from .result import Result as Result
    from .result import Status as Status
    from .tiles import TilePlan as TilePlan
    from .tiles import plan_tiles as plan_tiles
    from .tiles import tiled as tiled
    from .tuning.choice import LambdaChoice as LambdaChoice
    from .tuning.spectral import choose_lambda as choose_lambda
    from .updating import QRDeblurrer as QRDeblurrer
    from .version import __version__ as __version__

_NAMES = {
    "compare": (),
    "data": (),
    "image": (),
    "linalg": (),
    "matlab": (),
    "metrics": (),
    "plot": (),
    "psf": (),
    "tuning": (),
    "blind_restoration": ("BlindResult", "blind"),
    "degradation": ("degrade",),
    "errors": (
        "ConvergenceError",
        "InsufficientMemoryError",
        "MethodError",
        "NoGPUError",
        "PSFWarning",
        "SingularMatrixError",
    ),
    "image.arrays": ("im2vector", "vector2im"),
    "methods": ("METHODS", "Choice", "choose_method"),
    "operators.blur": ("Blur",),
    "operators.boundary": ("BOUNDARIES", "Boundary"),
    "operators.matrix": ("filter2matrix",),
    "operators.varying": ("VaryingBlur",),
    "pipeline": ("Deblurrer", "reconstruct", "solve"),
    "posterior": ("PosteriorStd", "posterior_std"),
    "result": ("Result", "Status"),
    "tiles": ("TilePlan", "plan_tiles", "tiled"),
    "tuning.choice": ("LambdaChoice",),
    "tuning.spectral": ("choose_lambda",),
    "updating": ("QRDeblurrer",),
    "version": ("__version__",),
}

__all__ = sorted(name for module, names in _NAMES.items() for name in names or (module,) if name != "__version__")

__getattr__ = names_from(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
