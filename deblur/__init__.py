"""deblur: image deblurring as a linear inverse problem.

A blur is a matrix H, and the blurred image is g = H f + n. `reconstruct` estimates f, by default with the linear
formula Hᵀ(HHᵀ + λI)⁻¹ g. `solve` also returns every decision that was made, `choose_method` predicts the choice of the
method, and each decision can be overridden.
"""

from importlib import import_module
from importlib.util import find_spec

import lazy_loader

from . import terminal  # noqa: F401  first, so that Ctrl-C during the other imports is handled

_named, _, _names = lazy_loader.attach_stub(__name__, __file__)

__all__ = [name for name in _names if name != "__version__"]


def __getattr__(name: str) -> object:
    if name in _names:
        return _named(name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
