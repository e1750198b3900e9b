"""Make the notebooks from the scripts beside them (percent format), executed from top to bottom.

python notebooks/build.py            writes NAME.ipynb for each NAME.py
python notebooks/build.py 2 5        only those whose names begin so
python notebooks/build.py --check    executes them, and fails if a stored notebook is not made from its script
"""

import argparse
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("numbers", nargs="*", help="which notebooks, by the beginning of their names; all of them if none")
parser.add_argument("--check", action="store_true", help="write nothing")
arguments = parser.parse_args()
for script in sorted(HERE.glob("[0-9]*.py")):
    if arguments.numbers and not script.name.startswith(tuple(arguments.numbers)):
        continue
    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(HERE)}}).execute()
    target = script.with_suffix(".ipynb")
    if arguments.check:
        if not target.exists() or cells(nbformat.read(target, as_version=4)) != cells(notebook):
            raise SystemExit(f"{target.name} is not what {script.name} says; run python notebooks/build.py")
        print(f"{target.name}: executed, and made from {script.name}")
        continue
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same at every build
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, target)
    print(f"written: {target}")
