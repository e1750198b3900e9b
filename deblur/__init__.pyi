"""The names of the package, each imported at its first use."""

from . import (
    compare as compare,
    data as data,
    image as image,
    linalg as linalg,
    matlab as matlab,
    metrics as metrics,
    plot as plot,
    psf as psf,
    tuning as tuning,
)
from .blind_restoration import BlindResult as BlindResult, blind as blind
from .degradation import degrade as degrade
from .errors import (
    ConvergenceError as ConvergenceError,
    InsufficientMemoryError as InsufficientMemoryError,
    MethodError as MethodError,
    NoGPUError as NoGPUError,
    PSFWarning as PSFWarning,
    SingularMatrixError as SingularMatrixError,
)
from .image.arrays import im2vector as im2vector, vector2im as vector2im
from .methods import METHODS as METHODS, Choice as Choice, choose_method as choose_method
from .operators.blur import Blur as Blur
from .operators.boundary import BOUNDARIES as BOUNDARIES, Boundary as Boundary
from .operators.matrix import filter2matrix as filter2matrix
from .operators.varying import VaryingBlur as VaryingBlur
from .pipeline import Deblurrer as Deblurrer, reconstruct as reconstruct, solve as solve
from .posterior import PosteriorStd as PosteriorStd, posterior_std as posterior_std
from .result import Result as Result, Status as Status
from .tiles import TilePlan as TilePlan, plan_tiles as plan_tiles, tiled as tiled
from .tuning.choice import LambdaChoice as LambdaChoice
from .tuning.spectral import choose_lambda as choose_lambda
from .updating import QRDeblurrer as QRDeblurrer
from .version import __version__ as __version__
