"""The record types that one call of `deblur.reconstruct` meets: dataclasses and named tuples, by their instances.

    python tools/call_records.py        shows them for each kind of call; exit code 1 if one meets more than `MOST`

A reader who follows a call has to know each of them. Those that are made when the package is imported do not count.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial, wraps
from typing import Any

import numpy as np

import deblur

MOST = 12
#: Modules that import what is not always installed, or run something.
SKIPPED = ("_gpu", "_jit", "__main__", "compare", "plot")


def record_types() -> list[type]:
    """Every dataclass and named tuple of the package."""
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(deblur.__path__, "deblur."):
        if not any(part in module.name for part in SKIPPED):
            members = vars(importlib.import_module(module.name)).values()
            found |= dict.fromkeys(m for m in members if isinstance(m, type) and m.__module__.startswith("deblur"))
    return [kind for kind in found if "__dataclass_fields__" in vars(kind) or hasattr(kind, "_fields")]


@contextmanager
def counted(kinds: list[type]) -> Iterator[dict[str, int]]:
    """How many instances of each are made inside, by its name."""
    made: dict[str, int] = {}

    def counting(kind: type, function: Callable[..., Any]) -> Any:
        @wraps(function)
        def count(*args: Any, **options: Any) -> Any:
            made[kind.__name__] = made.get(kind.__name__, 0) + 1
            return function(*args, **options)

        return count

    before = [(kind, "__init__" if is_dataclass(kind) else "__new__") for kind in kinds]
    functions = [getattr(kind, name) for kind, name in before]
    try:
        for (kind, name), function in zip(before, functions, strict=True):
            setattr(kind, name, counting(kind, function))
        yield made
    finally:
        for (kind, name), function in zip(before, functions, strict=True):
            setattr(kind, name, function)


def calls() -> dict[str, Callable[[], Any]]:
    """The kinds of calls."""
    psf, cube = deblur.psf.gaussian(7, 1.2), np.ones((3, 3, 3)) / 27
    g = deblur.degrade(deblur.data.load("camera")[:96, :96], psf, noise=0.01, seed=0)
    volume = np.random.default_rng(0).random((16, 20, 18))
    of = partial(deblur.reconstruct, g, psf)
    return {
        "default": of,
        "λ as a number": partial(of, 1e-3),
        "a mask": partial(of, mask=g > 0.9),
        "PSFs that vary": partial(deblur.reconstruct, g, psfs=np.stack([psf, psf])[None]),
        "a volume": partial(deblur.reconstruct, volume, cube),
        "a volume by tv": partial(deblur.reconstruct, volume, cube, method="tv"),
        **{name: partial(of, method=name) for name in ("pcg", "gradient", "tv", "pnp", "collaborative")},
        **{name: partial(of, method=name) for name in ("richardson-lucy", "hybrid-lsqr")},
    }


def main() -> int:
    """Show the record types of each kind of call."""
    warnings.simplefilter("ignore")
    kinds, most = record_types(), 0
    for name, call in calls().items():
        with counted(kinds) as made:
            call()
        print(f"{len(made):3} of {MOST}  {name}: {', '.join(sorted(made))}")
        most = max(most, len(made))
    return int(most > MOST)


if __name__ == "__main__":
    sys.exit(main())
