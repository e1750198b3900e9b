"""Counts of the code that may only fall, and the words that it should not use.

    python tools/ceilings.py            shows counts and ceilings; exit code 1 if one is exceeded
    python tools/ceilings.py --words    also shows every place of a listed word
    python tools/ceilings.py --update   lowers the ceilings to today's counts; never raises one

The ceilings are in tools/ceilings.json, the words and what to write instead in tools/words.json. Code lines exclude
docstrings, comments and blank lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_PARAMETERS = 7
TEMPLATES = (".html", ".md", ".css", ".js")  # of text that the package writes
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Counts = dict[str, int]


def files(root: Path, folder: str, *endings: str) -> list[Path]:
    """The files below a folder; `deblur/cuda` and `deblur/images` are links to folders at the top."""
    found = (path for ending in endings for path in (root / folder).rglob(f"*{ending}"))
    return sorted(path for path in found if not any(parent.is_symlink() for parent in path.parents))


@cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a source."""
    return ast.parse(text)


def code_lines(text: str) -> int:
    """Lines with code."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def numeric_constants(tree: ast.Module) -> list[str]:
    """Names in capitals that a module binds to an expression with a number."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        inner = list(ast.walk(value))
        numbers = (n.value for n in inner if isinstance(n, ast.Constant))
        if any(type(n) in (int, float, complex) for n in numbers) and not any(isinstance(n, ast.Lambda) for n in inner):
            elements = (e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t]))
            found += [e.id for e in elements if isinstance(e, ast.Name) and e.id.isupper()]
    return found


def long_signatures(tree: ast.Module) -> list[str]:
    """Functions with more parameters than `MAX_PARAMETERS`, without self."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, Function):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > MAX_PARAMETERS:
                found.append(node.name)
    return found


def record_types(tree: ast.Module) -> list[str]:
    """Dataclasses, named tuples and typed dictionaries."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            decorated = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
            if decorated or bases & {"NamedTuple", "TypedDict"}:
                found.append(node.name)
    return found


def counts(root: Path = ROOT) -> Counts:
    """Every count that has a ceiling, without the words."""
    package = {path: path.read_text() for path in files(root, "deblur", ".py", ".pyi")}
    trees = [parsed(text) for text in package.values()]

    def lines(folder: str) -> int:
        return sum(code_lines(path.read_text()) for path in files(root, folder, ".py"))

    cuda = files(root, "cuda", ".cu", ".cuh")
    templates = [path.read_text() for path in files(root, "deblur", *TEMPLATES)]
    return {
        "code lines of deblur": sum(map(code_lines, package.values())),
        "lines of cuda": sum(path.read_text().count("\n") for path in cuda),
        "code lines of benchmarks": lines("benchmarks"),
        "code lines of tests": lines("tests"),
        "named numeric constants": sum(len(numeric_constants(tree)) for tree in trees),
        f"functions with more than {MAX_PARAMETERS} parameters": sum(len(long_signatures(tree)) for tree in trees),
        "lines of the longest file": max(text.count("\n") for text in (*package.values(), *templates)),
        "record types": sum(len(record_types(tree)) for tree in trees),
    }


def words() -> dict[str, str]:
    """The words to avoid, and what to write instead."""
    listed: dict[str, str] = json.loads((ROOT / "tools" / "words.json").read_text())
    return listed


def prose(root: Path) -> Iterator[tuple[Path, int, str]]:
    """(file, line, text from there on): package, kernels, pages, and the names and docstrings of tests."""
    sources = [*files(root, "deblur", ".py", *TEMPLATES), *files(root, "cuda", ".cu", ".cuh")]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    for path in (*sources, *pages):
        yield path, 1, path.read_text()
    for path in files(root, "tests", ".py"):
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.Module):
                yield path, 1, ast.get_docstring(node) or ""
            elif isinstance(node, Function | ast.ClassDef):
                yield path, node.lineno, f"{node.name} {ast.get_docstring(node) or ''}"


def word_places(root: Path = ROOT) -> dict[str, list[str]]:
    """{word: its places}; underscores separate words."""
    listed = list(words())
    pattern = re.compile(
        rf"(?<![^\W_])(?:{'|'.join(f'({word})' for word in listed)})(?![^\W_])", re.IGNORECASE | re.ASCII
    )
    found: dict[str, list[str]] = {word: [] for word in listed}
    for path, first, text in prose(root):
        for match in pattern.finditer(text):
            line = first + text.count("\n", 0, match.start())
            found[listed[(match.lastindex or 1) - 1]].append(f"{path.relative_to(root)}:{line}")
    return found


def measured(root: Path = ROOT) -> Counts:
    """Every count that has a ceiling."""
    return counts(root) | {f"word: {word}": len(places) for word, places in word_places(root).items()}


def exceeded(found: Counts, ceilings: Counts) -> list[str]:
    """The counts above their ceilings, in words. A count without a ceiling may not be above 0."""
    return [
        f"{name}: {count}, at most {ceilings.get(name, 0)}"
        for name, count in found.items()
        if not count <= ceilings.get(name, 0)
    ]


def lowered(found: Counts, ceilings: Counts) -> Counts:
    """The ceilings, lowered to the counts; those of 0 are left out."""
    lower = {name: min(count, ceilings.get(name, 0)) for name, count in found.items()}
    return {name: count for name, count in lower.items() if count}


def main() -> int:
    """Show, check and lower the ceilings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--words", action="store_true", help="show every place of a listed word")
    parser.add_argument("--update", action="store_true", help="lower the ceilings to today's counts")
    asked = parser.parse_args()
    file = ROOT / "tools" / "ceilings.json"
    ceilings, found = json.loads(file.read_text()), measured()
    if asked.words:
        for word, places in word_places().items():
            for place in places:
                print(f"{place}: {word}; write: {words()[word]}")
    if asked.update:
        ceilings = lowered(found, ceilings)
        file.write_text(json.dumps(ceilings, indent=2, ensure_ascii=False) + "\n")
    for name, count in found.items():
        print(f"{count:7} of {ceilings.get(name, 0):7}  {name}")
    too_many = exceeded(found, ceilings)
    for line in too_many:
        print(f"above its ceiling: {line}", file=sys.stderr)
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
