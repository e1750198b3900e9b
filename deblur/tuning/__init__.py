"""Choice of λ from the image itself.

For the linear formula, a decomposition gives every λ at once (`spectral`); any other problem is solved for several λ
(`sampled`). `choice` has the table of rules. `select` decides for the pipeline: the rule, its fallback, and the
prior. `Deblurrer.tune` chooses λ of any problem without restoring an image.
"""

from ..solvers.noise import NoiseModel, check_noise, estimate_noise, estimate_noise_model, noise_level, psf_error
from ..solvers.start import prior_scene
from .choice import RULES, LambdaChoice, check_rule
from .spectral import choose_lambda

__all__ = [
    "RULES",
    "LambdaChoice",
    "NoiseModel",
    "check_noise",
    "check_rule",
    "choose_lambda",
    "estimate_noise",
    "estimate_noise_model",
    "noise_level",
    "prior_scene",
    "psf_error",
]
