"""Build the reference in docs/build: a page for each public module, from its docstrings, and the pages beside it.

    python docs/make.py

A warning fails the build.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import pdoc

HERE = Path(__file__).resolve().parent
PAGES = ("mathematics", "thesis", "figures")  # Markdown; each becomes a page of its own


def page(text: str) -> str:
    """A module whose docstring is the Markdown `text`, with links to the other pages as pages."""
    links = re.sub(r"\]\((\w+)\.md\)", r"](\1.html)", re.sub(r"<!--.*?-->\n?", "", text))
    return f"__docformat__ = 'markdown'\n__doc__ = {links!r}\n__all__ = []\n"


def main() -> None:
    target = HERE / "build"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in PAGES:
            (Path(folder) / f"{name}.py").write_text(page((HERE / f"{name}.md").read_text()))
        sys.path[:0] = [folder, str(HERE.parent)]
        pdoc.render.configure(docformat="numpy", show_source=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=UserWarning, module="pdoc")
            # pdoc looks for a NamedTuple's annotations in the module that collections made up for it.
            warnings.filterwarnings("ignore", r"Error parsing type annotation ForwardRef.*\.__init__")
            pdoc.pdoc("deblur", *PAGES, output_directory=target)


if __name__ == "__main__":
    main()
