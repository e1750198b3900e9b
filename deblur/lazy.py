"""Lazy imports: the modules of a package are imported when one of their names is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def names_from(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that offers these names, and its modules.

    Parameters
    ----------
    package : str
    modules : dict of str to tuple of str
        The modules below it, each with the names that come from it. For type checkers the package imports the same
        below ``TYPE_CHECKING``. No module may have the name of something else.

    Returns
    -------
    callable
        From a name to the object or module; it raises AttributeError for other names.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def found(name: str) -> Any:
        if name in where:
            return getattr(import_module(f"{package}.{where[name]}"), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return found
