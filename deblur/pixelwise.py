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


class Term(NDArrayOperatorsMixin):
    """A variable of the kernel: an argument, or the result of an operation."""

    def __init__(self, lines: list[str], dtype: np.dtype, value: str) -> None:
        self.lines, self.dtype, self.changed = lines, dtype, False
        self.name = f"v{len(lines)}"
        lines.append(f"{_TYPES[dtype.char]} {self.name} = {value};")

    def __setitem__(self, _all: Any, value: Any) -> None:
        self.lines.append(f"{self.name} = {_operand(value, self.dtype)};")
        self.changed = True

    def astype(self, dtype: np.dtype) -> Term:
        return Term(self.lines, dtype, _operand(self, dtype))

    def __array_ufunc__(self, ufunc: np.ufunc, _method: str, *operands: Any, out: Sequence[Term] = ()) -> Term:
        found = self._operation(ufunc, operands)
        for term in out:
            term[...] = found
        return out[0] if out else found

    def __array_function__(self, function: Callable, _types: Any, operands: Sequence[Any], _options: Any) -> Term:
        return self._operation(function, operands)

    def _operation(self, function: Callable, operands: Sequence[Any]) -> Term:
        """Add the statement of an operation, and return its result."""
        name = function.__name__
        if name == "power":
            return functools.reduce(np.multiply, [operands[0]] * operands[1])
        samples = [np.ones(1, v.dtype) if isinstance(v, Term) else v for v in operands]
        conditions = 1 if name == "where" else 0
        dtype = np.result_type(*samples[conditions:])
        texts = [v.name for v in operands[:conditions]] + [_operand(v, dtype) for v in operands[conditions:]]
        value = f" {_SIGNS[name]} ".join(texts) if name in _SIGNS else f"{name}({', '.join(texts)})"
        return Term(self.lines, function(*samples).dtype, value)


def _operand(value: Any, dtype: np.dtype) -> str:
    """Return a term or a number in C++ as a value of that dtype; beside complex terms a real one stays real."""
    kind = _TYPES[np.zeros((), dtype).real.dtype.char]
    if isinstance(value, Term):
        return value.name if dtype.kind == "c" else f"({kind}){value.name}"
    return f"({kind})" + (float(value).hex() if math.isfinite(value) else "__longlong_as_double(0x7ff0000000000000ll)")


def source(function: Callable, kinds: Sequence[str], axes: int) -> tuple[str, list[np.dtype]]:
    """Return the text of a function's kernel, and the dtypes of its results.

    `kinds` are the characters of the dtypes of all arguments, with a star for arrays. Without `axes`, the arrays are
    contiguous and have one shape; else each array has a distance of elements along each axis.
    """

    def at(i: int) -> str:
        return f"p{i}[{' + '.join(f'at[{axis}] * p{i}_{axis}' for axis in range(axes)) or 'i'}]"

    lines: list[str] = []
    terms = [Term(lines, np.dtype(kind[0]), at(i) if "*" in kind else f"p{i}") for i, kind in enumerate(kinds)]
    found = function(np, *terms)
    results = found if isinstance(found, tuple) else () if found is None else (found,)
    written = [(i, term) for i, term in enumerate(terms) if term.changed] + [*enumerate(results, len(terms))]
    lines += [f"{at(i)} = {term.name};" for i, term in written]
    kinds = [*kinds, *(term.dtype.char + "*" for term in results)]
    parameters = [f"{_TYPES[kind[0]]} {kind[1:]}p{i}" for i, kind in enumerate(kinds)]
    if axes:
        sizes = [f"n{axis}" for axis in range(axes)]
        place = f"const long long n[] = {{{', '.join(sizes)}}}; long long at[{axes}]; find(i, size, n, at);"
        lines.insert(0, place)
        steps = [f"p{i}_{axis}" for i, kind in enumerate(kinds) if "*" in kind for axis in range(axes)]
        parameters += [f"long long {name}" for name in sizes + steps]
    head = f"#define PARAMETERS {', '.join(parameters)}\n#define STATEMENTS {' '.join(lines)}\n"
    return head + text_of("pixelwise.cuh"), [term.dtype for term in results]


_kernels: dict[Any, tuple[Any, list[np.dtype], str]] = {}


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
    """Return the shape that arrays broadcast to, the sizes of the fewest axes that describe them all, at least two, and
    each array's distances along these axes, those of a new array last.

    An array is given by its shape, its strides and the bytes of an element.
    """
    shape = np.broadcast_shapes(*(of_array for of_array, *_ in arrays))
    whole = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    steps = []
    for own, strides, item in (*arrays, (shape, whole, 1)):
        step = [0 if n == 1 else stride // item for n, stride in zip(own, strides, strict=True)]
        steps.append([0] * (len(shape) - len(own)) + step)
    axes: list[list[int]] = []  # the size and the distances of each axis, the last axis first
    for n, *step in zip(*(x[::-1] for x in (shape, *steps)), strict=True):
        if axes and all(a == axes[-1][0] * b for a, b in zip(step, axes[-1][1:], strict=True)):
            axes[-1][0] *= n
        elif n > 1:
            axes.append([n, *step])
    axes += [[1, *(0 for _ in steps)]] * (2 - len(axes))
    return shape, [list(each) for each in zip(*axes[::-1], strict=True)]


def pixelwise(function: Callable, *args: Any) -> Any:
    """Return `function(np, *args)`, an operation on each pixel; on a GPU it runs as one kernel, but for float16.

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
        text, dtypes = source(function, kinds, key[2])
        name = f"{function.__module__}.{function.__qualname__}"
        _kernels[key] = kernels.loaded(text, name).get_function("pixelwise"), dtypes, name
    kernel, dtypes, _ = _kernels[key]
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
