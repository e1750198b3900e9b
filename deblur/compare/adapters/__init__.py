"""The methods that a comparison can run: deblur's own and other people's, one small file each."""

from __future__ import annotations

from importlib import import_module

from .base import Answer, Contestant, Setting, Solver, Watch

#: One row a file; the order is that of the tables.
ADAPTERS = ("own", "scikit_image", "pylops", "trips", "scico")

#: Distributions whose versions a record names beside those deblur needs.
PACKAGES = ("pylops", "trips-py", "scico", "jax", "bm3d")


def contestants() -> dict[str, Contestant]:
    """Every method by its name, installed or not."""
    found: dict[str, Contestant] = {}
    for adapter in ADAPTERS:
        for contestant in import_module(f"{__name__}.{adapter}").contestants():
            found[contestant.name] = contestant
    return found


__all__ = ["ADAPTERS", "PACKAGES", "Answer", "Contestant", "Setting", "Solver", "Watch", "contestants"]
