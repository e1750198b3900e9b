"""Operations on each pixel, written once as Python functions of NumPy; a GPU runs each function as one kernel.

On a GPU, `pixelwise` calls the function once with `Term` objects in place of arrays, and each operation of NumPy on a
term adds a statement of CUDA C++. One compiled kernel serves arrays of all layouts. CuPy compiles its own operations
for each layout, which takes 0.15 s each.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import kernels
from .cuda_sources import text_of
from .device import Shape, cupy, get_xp, is_cupy

_TYPES = {"?": "bool", "f": "float", "d": "double", "F": "Complex<float>", "D": "Complex<double>"}
_TYPES |= {"b": "signed char", "h": "short", "i": "int", "l": "long long", "q": "long long"}
_TYPES |= {"B": "unsigned char", "H": "unsigned short", "I": "unsigned", "L": "unsigned long long"}
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "greater": ">", "less": "<", "equal": "=="}
#: The operations that CUDA or pixelwise.cuh has, with their operands: c is a complex one, r a real one.
_KNOWN = dict.fromkeys([*_SIGNS, "maximum", "minimum"], "rr") | {"log": "r", "sqrt": "r", "absolute": "r c"}
_KNOWN |= {"add": "rr cc", "multiply": "rr rc cr cc", "divide": "rr cr", "where": "rr cc", "conjugate": "r c"}


class Term(NDArrayOperatorsMixin):
    """A variable of the kernel: an argument, or the result of an operation."""

    def __init__(self, lines: list[str], dtype: np.dtype, value: str) -> None:
        self.lines, self.dtype, self.changed = lines, dtype, False
        self.name = f"v{len(lines)}"
        lines.append(f"{_TYPES[dtype.char]} {self.name} = {value};")

    def __setitem__(self, _all: Any, value: Any) -> None:
        self.lines.append(f"{self.name} = {_operand(value, self.dtype)};")
        self.changed = True

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, out: Sequence[Term] = ()) -> Term:
        found = self._operation(ufunc if method == "__call__" else getattr(ufunc, method), operands)
        for term in out:
            term[...] = found
        return out[0] if out else found

    def __array_function__(self, function: Callable, _types: Any, operands: Sequence[Any], _options: Any) -> Term:
        return self._operation(function, operands)

    def _operation(self, function: Callable, operands: Sequence[Any]) -> Term:
        """Add the statement of an operation, and return its result."""
        name = function.__name__
        if name == "power" and isinstance(operands[1], int) and operands[1] > 1:
            return functools.reduce(np.multiply, [operands[0]] * operands[1])
        conditions, values = (operands[:1], operands[1:]) if name == "where" else ((), operands)
        complexes = "".join("c" if isinstance(v, Term) and v.dtype.kind == "c" else "r" for v in values)
        if complexes not in _KNOWN.get(name, "").split():
            kinds = ", ".join(str(getattr(v, "dtype", v)) for v in operands)
            raise TypeError(f"a kernel cannot compute {name} of {kinds}: write it with other operations")
        samples = [np.ones(1, v.dtype) if isinstance(v, Term) else v for v in operands]
        result = function(*samples).dtype
        dtype = np.result_type(*samples[len(conditions) :], result)  # NumPy divides integers as floating-point numbers
        texts = [condition.name for condition in conditions] + [_operand(v, dtype) for v in values]
        value = f" {_SIGNS[name]} ".join(texts) if name in _SIGNS else f"{name}({', '.join(texts)})"
        return Term(self.lines, result, value)


def _operand(value: Any, dtype: np.dtype) -> str:
    """Return a term or a number in C++ as a value of that dtype; beside complex terms a real one stays real."""
    kind = _TYPES[np.zeros((), dtype).real.dtype.char]
    if isinstance(value, Term):
        return value.name if dtype.kind == "c" else f"({kind}){value.name}"
    if math.isfinite(value):
        return f"({kind}){float(value).hex()}"
    return f"({kind})__longlong_as_double({int(np.float64(value).view(np.int64)):#x}ll)"


def source(function: Callable, kinds: Sequence[str], axes: int) -> tuple[str, list[np.dtype], list[int]]:
    """Return the text of a function's kernel, the dtypes of its results, and which arguments it changes.

    `kinds` are the characters of the dtypes of all arguments, with a star for arrays. Without `axes`, the arrays are
    contiguous and have one shape; else each array has a distance of elements along each axis.
    """

    def element(i: int) -> str:
        return f"p{i}[{' + '.join(f'at[{axis}] * p{i}_{axis}' for axis in range(axes)) or 'i'}]"

    lines: list[str] = []
    terms = [Term(lines, np.dtype(kind[0]), element(i) if "*" in kind else f"p{i}") for i, kind in enumerate(kinds)]
    found = function(np, *terms)
    results = found if isinstance(found, tuple) else () if found is None else (found,)
    changed = [i for i, term in enumerate(terms) if term.changed]
    lines += [f"{element(i)} = {terms[i].name};" for i in changed]
    lines += [f"{element(i)} = {term.name};" for i, term in enumerate(results, len(terms))]
    if axes:
        sizes = ", ".join(f"n{axis}" for axis in range(axes))
        lines.insert(0, f"const long long n[] = {{{sizes}}}; long long at[{axes}]; find(i, size, n, at);")

    kinds = [*kinds, *(term.dtype.char + "*" for term in results)]
    parameters = [f"{_TYPES[kind[0]]} {kind[1:]}p{i}" for i, kind in enumerate(kinds)]
    parameters += [f"long long n{axis}" for axis in range(axes)]
    arrays = [i for i, kind in enumerate(kinds) if "*" in kind]
    parameters += [f"long long p{i}_{axis}" for i in arrays for axis in range(axes)]
    head = f"#define PARAMETERS {', '.join(parameters)}\n#define STATEMENTS {' '.join(lines)}\n"
    return head + text_of("pixelwise.cuh"), [term.dtype for term in results], changed


_kernels: dict[Any, tuple[Any, list[np.dtype], list[int], str]] = {}


def record(dtype: np.dtype) -> list[tuple[str, str, int]]:
    """Return the arguments for `recorded` of the kernels that were launched.

    In place of `dtype` and its complex dtype stand "x" and "X", since another image may have another dtype.
    """
    own = str.maketrans(dtype.char + dtype.char.upper(), "xX")
    return [(name, ",".join(kinds).translate(own), axes) for (_, kinds, axes, _), (*_, name) in _kernels.items()]


def recorded(dtype: np.dtype, name: str, kinds: str, axes: int) -> str:
    """Return the text of a kernel of a `record` for an image of that dtype."""
    module, _, function = name.rpartition(".")
    each = kinds.translate(str.maketrans("xX", dtype.char + dtype.char.upper())).split(",")
    return source(inspect.unwrap(getattr(import_module(module), function)), each, axes)[0]


@functools.lru_cache(maxsize=4096)
def _layout(*arrays: tuple[Shape, Shape, int]) -> tuple[Shape, list[list[int]]]:
    """Return the shape that arrays broadcast to, and the numbers by which a kernel finds their elements.

    These are the sizes of the fewest axes that describe all arrays, at least two, and then each array's distances along
    these axes, those of a new array last. An array is given by its shape, its strides and the bytes of an element.
    """
    shape = np.broadcast_shapes(*(own for own, _, _ in arrays))
    new = shape, tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))), 1
    distances = []
    for own, strides, item in (*arrays, new):
        within = [0 if n == 1 else stride // item for n, stride in zip(own, strides, strict=True)]
        distances.append([0] * (len(shape) - len(own)) + within)
    axes: list[list[int]] = []  # the size and the distances of each axis, the last axis first
    for size, *outer in reversed([*zip(shape, *distances, strict=True)]):
        if axes and outer == [axes[-1][0] * inner for inner in axes[-1][1:]]:
            axes[-1][0] *= size  # in all arrays this axis continues the one within it
        elif size > 1:
            axes.append([size, *outer])
    axes += [[1] + [0] * len(distances)] * (2 - len(axes))
    return shape, [list(numbers) for numbers in zip(*reversed(axes), strict=True)]


def pixelwise(function: Callable, *args: Any) -> Any:
    """Return `function(np, *args)`, an operation on each pixel; on a GPU it runs as one kernel, unless it has float16.

    Parameters
    ----------
    function : callable
        It may use nothing but its arguments: it must not be a closure. It returns new arrays, or changes arguments by
        ``x += y``, ``x[...] = y`` or ``out=x``.
    *args
        Arrays that broadcast, the first of which selects the device, and NumPy's numbers.
    """
    first = args[0]
    if not is_cupy(first):
        return function(np, *args)
    ndarray, shape, steps = type(first), first.shape, list[list[int]]()
    arrays = [a for a in args if isinstance(a, ndarray)]
    kinds = tuple(a.dtype.char + "*" if isinstance(a, ndarray) else a.dtype.char for a in args)
    if not all(a.shape == shape and a.flags.c_contiguous for a in arrays):
        shape, steps = _layout(*((a.shape, a.strides, a.itemsize) for a in arrays))
    device = cupy.cuda.runtime.getDevice()
    key = function.__code__, kinds, len(steps[0]) if steps else 0, device
    if key not in _kernels:
        if any(kind[0] not in _TYPES for kind in kinds):
            return function(cupy, *args)
        text, dtypes, changed = source(function, kinds, key[2])
        name = f"{function.__module__}.{function.__qualname__}"
        _kernels[key] = kernels.loaded(text, name).get_function("pixelwise"), dtypes, changed, name
    kernel, dtypes, changed, name = _kernels[key]
    if small := [i for i in changed if args[i].shape != shape]:
        raise ValueError(f"argument {small[0]} of {name} has shape {args[small[0]].shape}, and its values {shape}")
    results = [cupy.empty(shape, dtype) for dtype in dtypes]
    steps = steps[:-1] + steps[-1:] * len(results)
    if size := math.prod(shape):
        blocks = min(-(-size // 256), 8 * kernels.properties(device).multiprocessors)
        kernel((blocks,), (256,), (size, *args, *results, *(number for each in steps for number in each)))
    return tuple(results) if len(results) > 1 else results[0] if results else None


def fused(function: Callable) -> Callable:
    """Return a version of `function` that runs by `pixelwise`."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        return pixelwise(function, *args)

    return run


@fused
def modulus(xp: ModuleType, x: Any) -> Any:
    """Return |x| of a real or complex array."""
    return xp.abs(x)


@fused
def stored(_xp: ModuleType, out: Any, values: Any) -> None:
    """Store values, an array or a number, in the array `out`, which may have another dtype."""
    out[...] = values


def copied(x: Any, dtype: Any = None) -> Any:
    """Return a C-contiguous copy of an array of any layout, by default of the same dtype."""
    copy = get_xp(x).empty(x.shape, dtype or x.dtype)
    stored(copy, x)
    return copy


def planes_of(x: Any) -> tuple[Any, int, int]:
    """Return a CuPy array (..., M, N) as (k, M, N) with adjacent pixels in a row, the distance of its rows, and of its
    images.

    Both distances are in elements.
    """
    x = x.reshape(-1, *x.shape[-2:])
    item = x.itemsize
    if x.strides[2] != item and x.shape[2] > 1:
        x = copied(x)
    ld = x.strides[1] // item if x.shape[1] > 1 else x.shape[2]
    return x, ld, x.strides[0] // item if len(x) > 1 else 0
