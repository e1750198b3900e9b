"""Imports point down the table of CONTRIBUTING.md, contain no cycle, and use no private names of other modules."""

import ast
import graphlib
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import deblur

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "deblur"


def layers():
    """{module or subpackage of deblur: its row in CONTRIBUTING's table, counted from the top}."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.split("Imports only point down this table.")[1].split("\n\n")[1]
    rows = [re.findall(r"`(\w+)(?:\.py|/)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    return {name: rank for rank, names in enumerate(rows) for name in names}


_PATHS = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {name.removesuffix("/__init__").replace("/", "."): path for name, path in _PATHS.items()}


@cache
def imports(name):
    """(module imported, names imported from it) of every import in a module of deblur, also those inside functions."""
    return list(_imports(name))


def _imports(name):
    path = MODULES[name]
    tree = ast.parse(path.read_text())
    # Imports for type checkers do not count.
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.split(".")[0] == "deblur")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            if target.split(".")[0] != "deblur":
                continue
            names = [alias.name for alias in node.names]
            yield from ((f"{target}.{n}", []) for n in names if f"{target}.{n}" in MODULES)
            plain = [n for n in names if f"{target}.{n}" not in MODULES]
            if plain or not node.names:
                yield target, plain


def top(module):
    """The module or subpackage of deblur that a module lies in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_every_module_has_its_row():
    have = {path.stem for path in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert set(layers()) == have


def test_imports_point_down():
    rank = layers()
    for name in MODULES:
        here = top(name)
        for target, _ in imports(name):
            there = top(target)
            assert there == here or rank[there] > rank[here], (
                f"{name} imports {target}, which is above it or in the same row"
            )


def test_imports_contain_no_cycle():
    graph = {name: {target for target, _ in imports(name) if target != name} for name in MODULES}
    # A package's __init__ imports its modules; a module that imports a name from it would close a cycle.
    graphlib.TopologicalSorter(graph).prepare()


def test_the_public_names_are_those_that_type_checkers_see():
    stub = MODULES["deblur"].with_suffix(".pyi").read_text()
    imports = [n for n in ast.walk(ast.parse(stub)) if isinstance(n, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert sorted(seen) == sorted([*deblur.__all__, "__version__"])
    assert dir(deblur) == deblur.__all__
    for name, module in seen.items():  # also after every module that could hide one has been imported
        whole = import_module(f"deblur.{module or name}")
        assert getattr(deblur, name) is (getattr(whole, name) if module else whole), name
    assert deblur.errors.PSFWarning is deblur.PSFWarning
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        deblur.nothing  # noqa: B018


def private(names):
    return [name for name in names if name.startswith("_") and not name.startswith("__")]


def test_no_private_name_of_another_module_is_imported():
    for name in MODULES:
        for target, names in imports(name):
            assert not private(names), f"{name} imports {private(names)} from {target}"
            of_package = target.split(".")[:-1] == name.split(".")[: target.count(".")]
            assert of_package or not private(target.split(".")[1:]), (
                f"{name} imports {target}, which is private to its package"
            )


def test_the_makefile_names_tests_that_exist():
    named = re.findall(r"tests/\S+", (ROOT / "Makefile").read_text())
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
    slow = [name.partition("::") for name in (ROOT / "tests/slow.txt").read_text().split()]
    assert [test for file, _, test in slow if f"def {test}(" not in (ROOT / file).read_text()] == []
