"""Which array library a call runs on, what dtype it computes in, and what memory is free.

The library is always read off the arrays themselves: NumPy in, NumPy out; CuPy in, CuPy out. Nothing here imports
CuPy unless a CuPy array is already in hand, so ``import deblur`` neither needs nor pays for it.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .errors import InsufficientMemoryError, NoGPUError, as_number, shown

Array = Any  # numpy.ndarray or cupy.ndarray: the code is the same for both
Map = Callable[[Array], Array]
Shape = tuple[int, ...]


_making = threading.RLock()


@contextmanager
def making() -> Iterator[None]:
    """One thread at once makes FFT plans or shared entries of a cache on a GPU, or captures a graph.

    A plan of cuFFT that is made while any thread captures breaks the capture, and fails itself, or ends the process.
    """
    with _making:
        yield


class _CuPy:
    """CuPy's names, for modules that must not import it before one of them is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` asks every object for such
            raise AttributeError(name)
        import cupy

        return vars(self).setdefault(name, getattr(cupy, name))  # found there from now on


cupy = _CuPy()


def is_cupy(a: object) -> bool:
    """Whether `a` is a CuPy array, asked without importing CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(a, cupy.ndarray)


def get_xp(*arrays: object) -> ModuleType:
    """The array module of `arrays`: CuPy if any of them is a CuPy array, else NumPy.

    Raises
    ------
    TypeError
        If NumPy and CuPy arrays are mixed: a silent copy between host and
        device would hide the cost.
    """
    on_gpu = [is_cupy(a) for a in arrays]
    if not any(on_gpu):
        return np
    if any(isinstance(a, np.ndarray) and a.ndim > 0 for a in arrays):
        raise TypeError(
            "NumPy and CuPy arrays are mixed in one call; move them to one side first "
            "with cupy.asarray(...) or cupy.asnumpy(...)"
        )
    return sys.modules["cupy"]


@functools.cache
def get_fft(xp: ModuleType) -> ModuleType:
    """`scipy.fft` or `cupyx.scipy.fft`, whichever works on arrays of `xp`; the latter makes plans as `making` asks."""
    if xp is np:
        return import_module("scipy.fft")
    module = import_module("cupyx.scipy.fft")
    locked = ModuleType(module.__name__)
    vars(locked).update({name: making()(f) for name, f in vars(module).items() if callable(f)})
    return locked


@dataclass(frozen=True)
class Device:
    """Where arrays live and are computed on: the CPU, or one GPU by its number. Compared by value; pickles.

    Attributes
    ----------
    gpu : int or None
        Number of the CUDA device; None is the CPU.
    """

    gpu: int | None = None

    @classmethod
    def of(cls, *arrays: Array) -> Device:
        """The device that `arrays` lie on; TypeError if they lie on several."""
        if get_xp(*arrays) is np:
            return CPU
        numbers = {int(a.device.id) for a in arrays if is_cupy(a)}
        if len(numbers) > 1:
            raise TypeError(f"the arrays lie on several GPUs ({sorted(numbers)}); move them to one first")
        return cls(numbers.pop())

    @classmethod
    def named(cls, device: str | int | Device) -> Device:
        """The device of that name: "cpu", "gpu" (the current one) or a GPU's number.

        Raises
        ------
        NoGPUError
            If a GPU is named and CuPy, a driver or that device is missing.
        """
        if isinstance(device, Device):
            return device
        if isinstance(device, str) and device == "cpu":
            return CPU
        if device != "gpu" if isinstance(device, str) else not as_number(device).is_integer():
            raise ValueError(f"unknown device {shown(device)}; use 'cpu', 'gpu' or a GPU's number")
        try:
            import cupy

            count = cupy.cuda.runtime.getDeviceCount()
        except ImportError as error:
            raise NoGPUError(
                "a GPU needs CuPy: pip install deblur-toolkit[cuda12] or [cuda13], to match your driver"
            ) from error
        except Exception as error:
            raise NoGPUError(f"no CUDA device can be used: {error}") from error
        number = int(cupy.cuda.Device().id) if device == "gpu" else int(device)
        if not 0 <= number < count:
            raise NoGPUError(f"there is no GPU {number}: this machine has {count}, counted from 0")
        return cls(number)

    @property
    def xp(self) -> ModuleType:
        """numpy or cupy."""
        if self.gpu is None:
            return np
        import cupy

        return cupy

    @property
    def fft(self) -> ModuleType:
        """`scipy.fft` or `cupyx.scipy.fft`."""
        return get_fft(self.xp)

    def synchronize(self) -> None:
        """Wait until everything submitted to a GPU is done."""
        if self.gpu is not None:
            self.xp.cuda.get_current_stream().synchronize()

    def mark(self) -> Any:
        """A moment: for a GPU that at which all that was submitted so far is done."""
        return time.perf_counter() if self.gpu is None else self.xp.cuda.get_current_stream().record()

    def between(self, first: Any, last: Any) -> float:
        """Seconds from one moment to another, which is waited for."""
        if self.gpu is None:
            return last - first
        last.synchronize()
        return 1e-3 * self.xp.cuda.get_elapsed_time(first, last)

    def refuse_capture(self, what: str = "a restoration") -> None:
        """Raise RuntimeError if the current stream is being captured: no graph can hold what is read back."""
        if self.gpu is not None and self.xp.cuda.get_current_stream().is_capturing():
            raise RuntimeError(
                f"the current stream is being captured into a CUDA graph, and {what} cannot be: it reads numbers "
                "back from the device to decide how to go on; end the capture first"
            )

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the GPU that new arrays are made on; a caller's `numpy.seterr` changes nothing within.

        What fails because the GPU's memory is full is an InsufficientMemoryError, whichever library it was.
        """
        here = nullcontext() if self.gpu is None else self.xp.cuda.Device(self.gpu)
        with here, np.errstate(all="warn", under="ignore"):
            try:
                yield
            except Exception as error:
                if not type(error).__module__.startswith("cupy"):
                    raise
                free = free_memory(self.xp)
                # Few of CuPy's libraries say that memory is what they lack.
                if free > _FULL and not isinstance(error, MemoryError):
                    raise
                raise InsufficientMemoryError(
                    f"the GPU's memory is full: {format_bytes(free)} are free ({str(error).rstrip('.')}); free some in "
                    "this process or another, or restore the image in tiles (deblur.tiled)",
                    getattr(error, "_size", free + 1),
                    free,
                ) from error

    def __str__(self) -> str:
        return "cpu" if self.gpu is None else f"gpu {self.gpu}"


CPU = Device()
_FULL = 1 << 28  # bytes: where fewer are free cuBLAS and cuSOLVER may not start, nor the driver load kernels


def asnumpy(a: Array) -> np.ndarray:
    """`a` on the host, copied only if it lives on a GPU."""
    return a.get() if is_cupy(a) else np.asarray(a)


def staging(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An empty array of the host that a GPU reads and writes by itself, ten times as fast as any other.

    For what lives shortly: such memory is never paged out, and CuPy keeps it for the next array.
    """
    import cupyx

    return cupyx.empty_pinned(tuple(shape), dtype)


def to_device(a: np.ndarray) -> Array:
    """A contiguous NumPy array on the current GPU.

    The driver copies so much of pageable memory as it stands, in a tenth of the time that CuPy takes to pin it first.
    """
    out = cupy.empty(a.shape, a.dtype)
    stream = cupy.cuda.get_current_stream().ptr
    cupy.cuda.runtime.memcpyAsync(out.data.ptr, a.ctypes.data, a.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream)
    return out


def random_signs(shape: tuple[int, ...], dtype: Any, xp: ModuleType) -> Array:
    """±1 at random, always the same for a shape and on every device."""
    on = np if math.prod(shape) < 1 << 18 else xp  # a GPU compiles both operations
    bits = on.unpackbits(on.asarray(_random_bits(shape)))[: math.prod(shape)].reshape(shape)
    return xp.asarray(on.where(bits.view(bool), *np.array([1, -1], dtype)))


def random_sizes(shape: tuple[int, ...], dtype: Any, xp: ModuleType) -> Array:
    """Random signs, each times factors of its own: to signs a pattern of few pixels may be orthogonal, not to these.

    The factors are 0.75 to 1.25 for each index of each axis, so that few numbers are copied to a GPU.
    """
    numbers = random_signs(shape, dtype, xp)
    for factors in np.ix_(*(np.random.default_rng(axis).uniform(0.75, 1.25, n) for axis, n in enumerate(shape))):
        numbers *= xp.asarray(factors, dtype)
    return numbers


@functools.lru_cache(8)
def _random_bits(shape: tuple[int, ...]) -> np.ndarray:
    """Random bits, eight in a byte."""
    return np.packbits(np.random.default_rng(0).integers(0, 2, shape).astype(bool))


def float_dtype(a: Array, name: str = "") -> np.dtype:
    """The dtype to compute in: float32 for float16 and float32 of any byte order, else float64.

    Raises
    ------
    TypeError
        For complex, object and string arrays.
    """
    kind = a.dtype.kind
    if kind not in "biuf":
        way = {"c": ": take .real, or abs(...)", "O": ": .astype(float) makes them of what holds numbers"}
        raise TypeError(f"{name}real numbers are needed, not dtype {a.dtype}{way.get(kind, '')}")
    return np.dtype(np.float32 if kind == "f" and a.dtype.itemsize <= 4 else np.float64)


def hidden(a: Any) -> np.ndarray | None:
    """The mask, shaped like the array, of one that hides values; None for others.

    `numpy.ma` has such arrays, also as Dask's, and astropy's Masked and CCDData are others.
    """
    if is_cupy(a) or isinstance(a, list | tuple):
        return None
    lazy = isinstance(getattr(a, "_meta", None), np.ma.MaskedArray)
    array = np.asanyarray(a.compute() if lazy else a)
    mask = getattr(array, "mask", None)
    return np.broadcast_to(mask, array.shape) if isinstance(mask, np.ndarray) and mask.any() else None


def unwrapped(a: Any, name: str) -> Array:
    """`a`, or what its ``__array__`` offers, as a NumPy array of native byte order; a CuPy array stays as it is.

    Raises
    ------
    TypeError
        For None, texts, sparse matrices, linear operators, and masked arrays with hidden values, which would be data.
    ValueError
        For rows of different lengths.
    """
    if is_cupy(a):
        return a
    if hasattr(a, "toarray"):
        raise TypeError(f"{name} is sparse ({type(a).__name__}), a dense array is needed: pass its toarray()")
    if hasattr(a, "matvec"):
        raise TypeError(
            f"{name} is a linear operator ({type(a).__name__}), an array is needed; deblur.reconstruct, solve and "
            "Deblurrer take an operator as psf"
        )
    masks = [hidden(part) for part in (a if isinstance(a, list | tuple) else (a,))]
    count = sum(int(mask.sum()) for mask in masks if mask is not None)
    if count:
        raise TypeError(
            f"{name} is a masked array with {count} hidden value(s), which would be used as data: fill them "
            "(numpy.ma.filled), and give the mask as mask=... where it can be given"
        )
    try:
        array = np.asarray(a)
    except ValueError:  # NumPy's words name neither the argument nor the rows
        raise ValueError(f"{name} is no array: its parts differ in length") from None
    if not array.ndim and array.dtype.kind not in "biufc":
        words = ": deblur.image.read makes an image of a file, deblur.psf.parse a PSF of a file or a form"
        raise TypeError(f"{name} must be an array, not {shown(a)}{words * isinstance(a, str | os.PathLike)}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_real(a: Any, name: str, dtype: Any = None) -> Array:
    """`a` as an array in `dtype`, by default in `float_dtype(a)`: native, whatever numbers it came as.

    Raises
    ------
    TypeError
        As `unwrapped` and `float_dtype`.
    """
    a = unwrapped(a, name)
    own = float_dtype(a, name=f"{name}: ")
    with np.errstate(over="ignore"):  # what the dtype cannot hold becomes infinite, and is found as that
        return a.astype(own if dtype is None else dtype, copy=False)


def all_true(of: Array) -> bool:
    """Whether all of an array of bool are true. On a GPU `all` is compiled, which takes seconds, and `min` is there."""
    return bool(of.all()) if get_xp(of) is np else not of.size or bool(of.astype(np.uint8).min())


#: What to do about NaN in an image.
HIDE = (
    "replace them, for instance by a median of their neighbours, or hide such pixels of an image by a "
    "mask: ~numpy.isfinite(image) in Python, for the command a file that is not black there"
)


def check_finite(a: Array, name: str, instead: str = HIDE) -> None:
    """Raise ValueError if `a` holds NaN or infinity, saying how many, where the first one is, and what to do."""
    xp = get_xp(a)
    # 0 x is 0 for a number x alone. (On a GPU such a sum needs no compilation, and `all` does.)
    if bool(xp.isfinite(a).all() if xp is np else np.isfinite(asnumpy((a * 0).sum()))):
        return
    bad = asnumpy(~xp.isfinite(a))
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    raise ValueError(
        f"{name} holds {int(bad.sum())} value(s) that are NaN or infinite (the first at index {first}); {instead}"
    )


def free_memory(xp: ModuleType) -> int:
    """Bytes that can still be allocated: on the GPU for CuPy, in this process's machine for NumPy.

    For CuPy the blocks that its memory pool holds unused count as free. For NumPy it is Linux's MemAvailable, lowered
    to a control group's limit and to that of this process (``ulimit -v``); where none can be read, a cautious 4 GiB.
    """
    if xp is not np:
        free, _total = xp.cuda.runtime.memGetInfo()
        return int(free + xp.get_default_memory_pool().free_bytes())
    free = 4 << 30
    try:
        with open("/proc/meminfo") as f:
            free = next((int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:")), free)
    except OSError:
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    with suppress(OSError, ValueError):  # no control group, or "max"
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, limit - used)
    with suppress(ImportError, OSError):  # where a process can have a limit, and its use can be read
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        free = min(free, limit - used) if limit != resource.RLIM_INFINITY else free
    return max(free, 0)


def format_bytes(n: float) -> str:
    """`n` bytes in words, in binary units: ``format_bytes(134217728)`` is ``'128 MiB'``."""
    power = next((i for i in range(8) if abs(n) < 1024 ** (i + 1)), 8)
    return f"{min(n, 1e300) / 1024**power:.4g} {('bytes', *(f'{letter}iB' for letter in 'KMGTPEZY'))[power]}"


def require_memory(needed: int, xp: ModuleType, what: str, instead: str) -> None:
    """Raise InsufficientMemoryError, before anything is allocated, if `needed` bytes are not free.

    Parameters
    ----------
    needed : int
        Peak bytes of the work.
    xp : module
        numpy or cupy: whose memory.
    what : str
        The work, as the subject of the sentence: ``"a dense H of 16384 x 16384"``.
    instead : str
        What to do instead, as a full clause.
    """
    free = free_memory(xp)
    if needed > free:
        where = "the GPU" if xp is not np else "this machine"
        raise InsufficientMemoryError(
            f"{what} takes {format_bytes(needed)}, and {where} has {format_bytes(free)} free; {instead}", needed, free
        )
