"""Build the reference in docs/build: a page for each public module, from its docstrings, and the Markdown pages.

    python docs/make.py

A warning fails the build.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import pdoc

HERE = Path(__file__).resolve().parent
#: Besides all that `deblur` names as public, the modules whose docstrings hold the mathematics.
MODULES = (
    "deblur",
    "deblur.operators.blur",
    "deblur.operators.boundary",
    "deblur.operators.matrix",
    "deblur.operators.operator",
    "deblur.problem",
    "deblur.terms",
    "deblur.methods",
    "deblur.solvers.admm",
    "deblur.solvers.pcg",
    "deblur.solvers.quadratic",
    "deblur.solvers.richardson_lucy",
    "deblur.denoise.denoisers",
    "deblur.denoise.impulses",
    "deblur.tuning.sampled",
    "deblur.tuning.spectral",
    "deblur.posterior",
    "deblur.tiles",
    "deblur.tiles.reach",
)
PAGES = tuple(sorted(path.stem for path in HERE.glob("*.md")))  # each becomes a page of its own


def page(text: str) -> str:
    """A module whose docstring is the Markdown `text`, with links to the other pages as pages."""
    links = re.sub(r"\]\((\w+)\.md\)", r"](\1.html)", re.sub(r"<!--.*?-->\n?", "", text))
    return f"__docformat__ = 'markdown'\n__doc__ = {links!r}\n__all__ = []\n"


def with_tables(text: str) -> str:
    """A docstring with its tables (two columns between lines of equals signs) in Markdown, which pdoc reads."""
    table = re.compile(r"^(=+ +)=+\n(.*?)^=+ +=+$", re.MULTILINE | re.DOTALL)

    def markdown(match: re.Match[str]) -> str:
        at, rows = len(match[1]), []
        for line in match[2].rstrip().split("\n"):
            end = line.find(" ", max(at - 1, 0))  # a word may reach beyond its column
            left, right = (cell.strip().replace("|", r"\|") for cell in (line[:end], line[end:]))
            if left:
                rows.append([left, right])
            else:
                rows[-1][1] += f" {right}"
        return "\n".join(f"| {' | '.join(row)} |" for row in ([" ", " "], ["---", "---"], *rows))

    return table.sub(markdown, inspect.cleandoc(text))


def modules() -> list[ModuleType]:
    """The package and all its modules, with their lazy names imported, because pdoc imports nothing."""
    package = importlib.import_module("deblur")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "deblur.")]
    found = [package, *(importlib.import_module(n) for n in names if not n.endswith("__main__"))]
    for module in found:
        for name in getattr(module, "__all__", ()):
            vars(module).setdefault(name, getattr(module, name))
    return found


def main() -> None:
    target = HERE / "build"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in PAGES:
            (Path(folder) / f"{name}.py").write_text(page((HERE / f"{name}.md").read_text()))
        sys.path[:0] = [folder, str(HERE.parent)]
        for module in modules():
            module.__doc__ = with_tables(module.__doc__ or "")
        pdoc.render.configure(docformat="numpy", show_source=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=UserWarning, module="pdoc")
            # pdoc looks for a NamedTuple's annotations in the module that collections made up for it.
            warnings.filterwarnings("ignore", r"Error parsing type annotation ForwardRef.*\.__init__")
            pdoc.pdoc(*MODULES, *PAGES, output_directory=target)
    for picture in HERE.glob("*.png"):
        shutil.copy(picture, target)


if __name__ == "__main__":
    main()
