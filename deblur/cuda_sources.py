"""Read the CUDA sources ``cuda/*.cu``: their texts, the signatures of their kernels, and their constants.

The ``.cu`` file is the only statement of a kernel's signature, tile sizes, threads and bytes of shared memory. The
parameters of a kernel are pointers, scalars and structures; each member of a structure counts as a parameter.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# C type -> format character, the same for a NumPy dtype and for `struct`
TYPES = {
    "float": "f",
    "double": "d",
    "int": "i",
    "unsigned": "I",
    "unsigned int": "I",
    "long long": "q",
    "unsigned long long": "Q",
    "unsigned char": "B",
}
_KERNEL = re.compile(
    r'^extern\s+"C"\s+__global__\s+void\s+'
    r"(?:__\w+__\s*\([^()]*\)\s*)*"  # __launch_bounds__(256, 1), __cluster_dims__(16, 1, 1)
    r"(\w+)\s*\(([^()]*)\)",
    re.MULTILINE,
)
_STRUCT = re.compile(r"^struct (\w+) \{([^{}()]*)\};", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"', re.MULTILINE)
_CONSTANT = re.compile(r"^(?:template <([^>]*)>\s*)?constexpr (?:int|bool) ([^;{]*);", re.MULTILINE)


class Parameter(NamedTuple):
    """A parameter of a kernel, or one member of a parameter that is a structure."""

    name: str
    ctype: str
    """The type without qualifiers; for a pointer, the type that it points to."""
    pointer: bool
    continues: bool = False
    """True if it belongs to the same structure as the parameter before it."""


def source_folder() -> Path:
    """Return the folder of the ``.cu`` files: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "cuda", here.parent / "cuda"):
        if (folder / "common.cuh").is_file():
            return folder
    raise FileNotFoundError(f"no CUDA sources in {here / 'cuda'} or {here.parent / 'cuda'}: reinstall deblur")


def stems() -> list[str]:
    """Return the names of all kernel files, without ``.cu``."""
    return sorted(path.stem for path in source_folder().glob("*.cu"))


def text_of(name: str) -> str:
    """Return the text of a file in ``cuda/``."""
    return (source_folder() / name).read_text(encoding="utf-8")


@functools.cache
def _files(stem: str) -> dict[str, str]:
    """Return {name: text} of the parts of ``cuda/<stem>.cu``: common.cuh, the headers that the file includes, and the
    file.
    """
    try:
        own = text_of(f"{stem}.cu")
    except FileNotFoundError:
        raise ValueError(f"there is no kernel file {stem!r}; there are {', '.join(stems())}") from None
    headers = {name: text_of(name) for name in ("common.cuh", *_INCLUDE.findall(own))}
    return headers | {f"{stem}.cu": _INCLUDE.sub("", own)}


@functools.cache
def source(stem: str, dtype: np.dtype) -> str:
    """Return the text of ``cuda/<stem>.cu`` for the compiler, with `dtype` as ``real``."""
    real = f"using real = {'float' if dtype == np.float32 else 'double'};\n"
    # The headers are joined here, not included by the compiler, since the cache key must depend on their text.
    return real + "".join(f'#line 1 "{name}"\n{text}' for name, text in _files(stem).items())


def alone(stem: str, kernel: str, dtype: np.dtype) -> str:
    """Return the text of `source` with all kernels but `kernel` removed; the line numbers stay.

    The compiler instantiates the templates that each kernel uses, which is most of its work.
    """
    text, parts, end = source(stem, dtype), [], 0
    for found in _KERNEL.finditer(text):
        if found[1] == kernel:
            continue
        parts.append(text[end : found.start()])
        depth = 0
        for brace in re.compile("[{}]").finditer(text, found.end()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                break
        end = brace.end()
        parts.append("\n" * text.count("\n", found.start(), end))
    return "".join(parts) + text[end:]


class Constants:
    """The constants of ``cuda/<stem>.cu`` and its headers, as attributes that are read at the first use.

    A constant is a declaration ``constexpr int NAME = ...;`` (or ``bool``) at the start of a line. A template,
    ``template <int X> constexpr int NAME = ...;``, becomes a function. Without `dtype`, constants that depend on
    ``real`` are missing. A constant that is declared twice, under an ``#if``, is always missing.
    """

    def __init__(self, stem: str, dtype: Any = None) -> None:
        self._stem, self._dtype = stem, None if dtype is None else np.dtype(dtype)

    def __getattr__(self, name: str) -> Any:
        known = _constants(self._stem, self._dtype)
        if name not in known:
            raise AttributeError(f"{self._stem}.cu has no constant {name!r}; it has {', '.join(known)}")
        vars(self).update(known)  # later accesses find the attribute without this method
        return known[name]


@functools.cache
def _constants(stem: str, dtype: np.dtype | None) -> dict[str, Any]:
    known: dict[str, Any] = {"__builtins__": {}, "true": True, "false": False}
    if dtype is not None:
        known["SIZE_OF_REAL"] = dtype.itemsize
    names: list[str] = []
    text = _COMMENT.sub(" ", "\n".join(_files(stem).values()))
    for parameters, declarations in _CONSTANT.findall(text):
        lead = f"lambda {', '.join(p.split()[-1] for p in parameters.split(','))}: " if parameters else ""
        for declaration in [declarations] if parameters else declarations.split(","):
            name, expression = (part.strip() for part in declaration.split("=", 1))
            names.append(name)
            try:
                known[name] = eval(lead + _in_python(expression), known)
            except NameError:  # depends on `real`
                continue
            except SyntaxError:
                raise ValueError(f"{stem}.cu: cannot read the constant {name} = {expression}") from None
    return {name: known[name] for name in names if name in known and names.count(name) == 1}


def _in_python(expression: str) -> str:
    """Return an integer expression of C++ in Python's syntax; it replaces the innermost parentheses first."""
    e = " ".join(expression.split()).replace("sizeof(real)", "SIZE_OF_REAL").replace("/", "//")
    e = re.sub(r"(\w)<([^<>]*)>", r"\1(\2)", e)  # NAME<8>: a template
    while found := re.search(r"\(([^()]*)\)", e):
        e = e[: found.start()] + f"\0{_choice(found[1])}\1" + e[found.end() :]
    return _choice(e).replace("\0", "(").replace("\1", ")")


def _choice(expression: str) -> str:
    """Return ``a ? b : c`` as ``b if a else c``."""
    parts = re.fullmatch(r"(.+?)\?(.+?):(.+)", expression)
    return expression if parts is None else f"{parts[2]} if {parts[1].strip()} else {_choice(parts[3])}"


@functools.cache
def signatures(stem: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the kernels of ``cuda/<stem>.cu`` and their parameters, as the file declares them."""
    whole = _COMMENT.sub(" ", "\n".join(_files(stem).values()))
    structures = dict(_STRUCT.findall(whole))
    return {
        name: tuple(p for text in parameters.split(",") if text.strip() for p in _read(stem, name, text, structures))
        for name, parameters in _KERNEL.findall(whole)
    }


def _read(stem: str, kernel: str, text: str, structures: dict[str, str]) -> list[Parameter]:
    """Return the parameters that a declaration stands for: one, or the members of a structure."""
    words = re.sub(r"\bconst\b|\b__restrict__\b|\b__grid_constant__\b", " ", text)
    match = re.fullmatch(r"\s*([\w\s]+?)\s*(\*?)\s*(\w+)\s*", words)
    if match is None:
        raise ValueError(f"{stem}.cu: cannot read the parameter {text.strip()!r} of {kernel}")
    ctype, star, name = " ".join(match[1].split()), match[2], match[3]
    if ctype in structures and not star:
        declared = [m.split(",") for m in structures[ctype].split(";") if m.strip()]
        kinds = [first.rsplit(None, 1)[0] for first, *_ in declared]
        members = [
            text
            for kind, (first, *more) in zip(kinds, declared, strict=True)
            for text in (first, *(f"{kind} {name}" for name in more))
        ]
        parsed = [p for text in members for p in _read(stem, kernel, text, {})]
        return [p._replace(continues=i > 0) for i, p in enumerate(parsed)]
    if ctype != "real" and ctype not in TYPES:
        raise ValueError(f"{stem}.cu: {kernel} has a parameter that cannot be passed: {text.strip()!r}")
    return [Parameter(name, ctype, bool(star))]
