"""The device of a call: its array library, its transforms, the dtype of its arrays, and its free memory.

The arrays themselves select the library: NumPy in, NumPy out; CuPy in, CuPy out. CuPy is imported only when a GPU is
used, so ``import deblur`` neither needs it nor waits for it.
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
    """Let only one thread at a time make FFT plans, make shared cache entries on a GPU, or capture a graph.

    If cuFFT makes a plan while any thread captures, the capture breaks, and the plan fails or ends the process.
    """
    with _making:
        yield


class _CuPy:
    """CuPy's names for modules that must not import CuPy before they use one of them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` looks up such names on every object
            raise AttributeError(name)
        import cupy

        return vars(self).setdefault(name, getattr(cupy, name))  # later accesses skip this method


cupy = _CuPy()


def is_cupy(a: object) -> bool:
    """Return True if `a` is a CuPy array, without importing CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(a, cupy.ndarray)


def get_xp(*arrays: object) -> ModuleType:
    """Return the array module of `arrays`: CuPy if one of them is a CuPy array, else NumPy.

    Raises
    ------
    TypeError
        If NumPy and CuPy arrays are mixed, since a silent copy between host and device would hide its cost.
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
    """Return `scipy.fft` for NumPy, or for CuPy `cupyx.scipy.fft`, whose functions hold the lock of `making`."""
    if xp is np:
        return import_module("scipy.fft")
    module = import_module("cupyx.scipy.fft")
    locked = ModuleType(module.__name__)
    vars(locked).update({name: making()(f) for name, f in vars(module).items() if callable(f)})
    return locked


@dataclass(frozen=True)
class Device:
    """The device that holds arrays and computes with them: the CPU, or one GPU by its number.

    Devices are compared by value and can be pickled.

    Attributes
    ----------
    gpu : int or None
        Number of the CUDA device; None is the CPU.
    """

    gpu: int | None = None

    @classmethod
    def of(cls, *arrays: Array) -> Device:
        """Return the device of `arrays`; raise TypeError if they are on several devices."""
        if get_xp(*arrays) is np:
            return CPU
        numbers = {int(a.device.id) for a in arrays if is_cupy(a)}
        if len(numbers) > 1:
            raise TypeError(f"the arrays lie on several GPUs ({sorted(numbers)}); move them to one first")
        return cls(numbers.pop())

    @classmethod
    def named(cls, device: str | int | Device) -> Device:
        """Return the device with that name: "cpu", "gpu" (the current GPU) or the number of a GPU.

        Raises
        ------
        ValueError
            If the name is none of these.
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
        """The array module: numpy or cupy."""
        if self.gpu is None:
            return np
        import cupy

        return cupy

    @property
    def fft(self) -> ModuleType:
        """The module of Fourier transforms: `scipy.fft` or `cupyx.scipy.fft`."""
        return get_fft(self.xp)

    def synchronize(self) -> None:
        """Wait until a GPU has finished all submitted work."""
        if self.gpu is not None:
            self.xp.cuda.get_current_stream().synchronize()

    def mark(self) -> Any:
        """Return a time mark; on a GPU it is the moment when all work submitted so far is finished."""
        return time.perf_counter() if self.gpu is None else self.xp.cuda.get_current_stream().record()

    def between(self, first: Any, last: Any) -> float:
        """Return the seconds between two marks; on a GPU, wait for the second one."""
        if self.gpu is None:
            return last - first
        last.synchronize()
        return 1e-3 * self.xp.cuda.get_elapsed_time(first, last)

    def refuse_capture(self, what: str = "a restoration") -> None:
        """Raise RuntimeError if the current stream is being captured, since a graph cannot hold work that reads numbers
        back.
        """
        if self.gpu is not None and self.xp.cuda.get_current_stream().is_capturing():
            raise RuntimeError(
                f"the current stream is being captured into a CUDA graph, and {what} cannot be: it reads numbers "
                "back from the device to decide how to go on; end the capture first"
            )

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the current GPU; inside, the caller's `numpy.seterr` has no effect.

        If the memory of the GPU is full, raise InsufficientMemoryError, whichever library failed.
        """
        here = nullcontext() if self.gpu is None else self.xp.cuda.Device(self.gpu)
        with here, np.errstate(all="warn", under="ignore"):
            try:
                yield
            except Exception as error:
                if not type(error).__module__.startswith("cupy"):
                    raise
                free = free_memory(self.xp)
                # Few of CuPy's libraries name the lack of memory as the cause.
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
_FULL = 1 << 28  # bytes; with fewer free, cuBLAS, cuSOLVER and the loading of kernels may fail


def asnumpy(a: Array) -> np.ndarray:
    """Return `a` as a NumPy array, copied only if it is on a GPU."""
    return a.get() if is_cupy(a) else np.asarray(a)


def staging(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an empty array in page-locked host memory, which a GPU reads and writes ten times as fast as other host
    memory.

    Use it only for arrays that live shortly: such memory is never paged out. CuPy reuses it for the next array.
    """
    import cupyx

    return cupyx.empty_pinned(tuple(shape), dtype)


def to_device(a: np.ndarray) -> Array:
    """Return a contiguous NumPy array as an array on the current GPU.

    The driver copies directly from pageable memory, in a tenth of the time that CuPy takes to pin the memory first.
    """
    out = cupy.empty(a.shape, a.dtype)
    stream = cupy.cuda.get_current_stream().ptr
    cupy.cuda.runtime.memcpyAsync(out.data.ptr, a.ctypes.data, a.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream)
    return out


def random_signs(shape: tuple[int, ...], dtype: Any, xp: ModuleType) -> Array:
    """Return random signs ±1, the same on every device and in every call with the same shape."""
    on = np if math.prod(shape) < 1 << 18 else xp  # both operations would be compiled for a GPU
    bits = on.unpackbits(on.asarray(_random_bits(shape)))[: math.prod(shape)].reshape(shape)
    return xp.asarray(on.where(bits.view(bool), *np.array([1, -1], dtype)))


def random_sizes(shape: tuple[int, ...], dtype: Any, xp: ModuleType) -> Array:
    """Return random signs times random factors between 0.75 and 1.25 for each index of each axis.

    A pattern of few pixels may be orthogonal to the signs, but not to these numbers. Factors of single indices need few
    numbers, so little is copied to a GPU.
    """
    numbers = random_signs(shape, dtype, xp)
    for factors in np.ix_(*(np.random.default_rng(axis).uniform(0.75, 1.25, n) for axis, n in enumerate(shape))):
        numbers *= xp.asarray(factors, dtype)
    return numbers


@functools.lru_cache(8)
def _random_bits(shape: tuple[int, ...]) -> np.ndarray:
    """Return random bits, packed eight to a byte."""
    return np.packbits(np.random.default_rng(0).integers(0, 2, shape).astype(bool))


def float_dtype(a: Array, name: str = "") -> np.dtype:
    """Return the dtype to compute in: float32 for float16 and float32 of any byte order, else float64.

    Raises
    ------
    TypeError
        For complex, object and string arrays.
    """
    kind = a.dtype.kind
    if kind not in "biuf":
        way = {"c": ": take .real, or abs(...)", "O": ": .astype(float) converts an array of numbers"}
        raise TypeError(f"{name}real numbers are needed, not dtype {a.dtype}{way.get(kind, '')}")
    return np.dtype(np.float32 if kind == "f" and a.dtype.itemsize <= 4 else np.float64)


def hidden(a: Any) -> np.ndarray | None:
    """Return the mask of an array that hides values, with the shape of the array, or None for any other array.

    Masked arrays are those of `numpy.ma`, also inside Dask arrays, and astropy's Masked and CCDData.
    """
    if is_cupy(a) or isinstance(a, list | tuple):
        return None
    array = np.asanyarray(a.compute() if isinstance(getattr(a, "_meta", None), np.ma.MaskedArray) else a)
    mask = getattr(array, "mask", None)
    return np.broadcast_to(mask, array.shape) if isinstance(mask, np.ndarray) and mask.any() else None


def unwrapped(a: Any, name: str) -> Array:
    """Return `a`, or the result of its ``__array__``, as a NumPy array of native byte order; return CuPy arrays as is.

    Raises
    ------
    TypeError
        For None, text, sparse matrices, linear operators, and masked arrays with hidden values, which would count as
        data.
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
    except ValueError:  # NumPy's message names neither the argument nor the rows
        raise ValueError(f"{name} is not an array: its parts differ in length") from None
    if not array.ndim and array.dtype.kind not in "biufc":
        words = ": deblur.image.read makes an image of a file, deblur.psf.parse a PSF of a file or a form"
        raise TypeError(f"{name} must be an array, not {shown(a)}{words * isinstance(a, str | os.PathLike)}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_real(a: Any, name: str, dtype: Any = None) -> Array:
    """Return `a` as an array of real numbers with native byte order, in `dtype` or by default in `float_dtype(a)`.

    Raises
    ------
    TypeError, ValueError
        As for `unwrapped` and `float_dtype`.
    """
    a = unwrapped(a, name)
    own = float_dtype(a, name=f"{name}: ")
    with np.errstate(over="ignore"):  # too large a number becomes infinite, which is checked later
        return a.astype(own if dtype is None else dtype, copy=False)


def blocks(n: int, size: int) -> list[slice]:
    """Return slices that cut `n` rows into blocks of `size` rows; the last one may have fewer."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def all_true(of: Array) -> bool:
    """Return True if all elements of an array of bool are true.

    On a GPU this uses `min`, since `all` would first be compiled for seconds.
    """
    return bool(of.all()) if get_xp(of) is np else not of.size or bool(of.astype(np.uint8).min())


def check_finite(a: Array, name: str, instead: str = "replace them, for instance by a median of neighbours") -> None:
    """Raise ValueError if `a` holds NaN or infinity; the message has their number, the first index, and advice
    (`instead`).
    """
    xp = get_xp(a)
    # 0 x is 0 only if x is finite. (On a GPU the sum needs no compilation, unlike `all`.)
    if bool(xp.isfinite(a).all() if xp is np else np.isfinite(asnumpy((a * 0).sum()))):
        return
    bad = asnumpy(~xp.isfinite(a))
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    raise ValueError(
        f"{name} holds {int(bad.sum())} value(s) that are NaN or infinite (the first at index {first}); {instead}"
    )


def free_memory(xp: ModuleType) -> int:
    """Return the bytes that can still be allocated: on the GPU for CuPy, on this machine for NumPy.

    For CuPy, unused blocks in CuPy's memory pool count as free. For NumPy the result is Linux's MemAvailable, or less
    if a control group or the process (``ulimit -v``) has a lower limit. Without MemAvailable it is half the physical
    memory, and 4 GiB if that is unknown, too.
    """
    if xp is not np:
        free, _total = xp.cuda.runtime.memGetInfo()
        return int(free + xp.get_default_memory_pool().free_bytes())
    free = 4 << 30
    with suppress(AttributeError, OSError, ValueError):  # a system without these figures
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), free)
    with suppress(OSError, ValueError):  # no control group, or "max"
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, limit - used)
    with suppress(ImportError, OSError):  # only some systems have limits of processes and /proc
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        free = min(free, limit - used) if limit != resource.RLIM_INFINITY else free
    return max(free, 0)


def format_bytes(n: float) -> str:
    """Return `n` bytes as text in binary units: ``format_bytes(134217728)`` is ``'128 MiB'``."""
    power = next((i for i in range(8) if abs(n) < 1024 ** (i + 1)), 8)
    return f"{min(n, 1e300) / 1024**power:.4g} {('bytes', *(f'{letter}iB' for letter in 'KMGTPEZY'))[power]}"


def require_memory(needed: int, xp: ModuleType, what: str, instead: str) -> None:
    """Raise InsufficientMemoryError, before anything is allocated, if `needed` bytes are not free.

    Parameters
    ----------
    needed : int
        Peak bytes of the work.
    xp : module
        numpy for the memory of the host, cupy for that of the GPU.
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
