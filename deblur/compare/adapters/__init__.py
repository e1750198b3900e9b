"""The methods of a comparison: deblur's own and those of other packages, one small file each."""

from __future__ import annotations

from importlib import import_module

from .base import Answer, Entrant, Setting, Solver, Watch

#: The files of the adapters, in the order of the tables.
ADAPTERS = ("own", "scikit_image", "pylops", "trips", "scico")

#: Distributions whose versions are recorded in addition to those that deblur needs.
PACKAGES = ("pylops", "trips-py", "scico", "jax", "bm3d")


def entrants() -> dict[str, Entrant]:
    """Return every method by its name, installed or not."""
    modules = [import_module(f"{__name__}.{adapter}") for adapter in ADAPTERS]
    return {entrant.name: entrant for module in modules for entrant in module.entrants()}


__all__ = ["ADAPTERS", "PACKAGES", "Answer", "Entrant", "Setting", "Solver", "Watch", "entrants"]
