"""Compile, check and launch the CUDA kernels of ``cuda/*.cu``.

Before a launch, `launch` checks every argument against the parameters that `cuda_sources` reads from the file:

- a pointer takes a CuPy array of exactly its dtype on the current device, or None for a null pointer;
- the array must be C-contiguous, unless the kernel has a parameter ``ld<name>`` (leading dimension) for the pointer
  ``<name>``. Then gaps between rows are allowed, the elements of a row must be adjacent, and ``ld<name>`` must be the
  distance of the array's rows;
- a scalar is cast to the parameter's type, and must lie in its range;
- a structure is passed as its members, one after the other.

A kernel is compiled once for each dtype, device architecture and text. The text begins with ``using real = float;`` (or
``double``), ``common.cuh`` and the headers that the file includes; the other kernels of the file are left out. The
machine code is stored in CuPy's cache folder. `deblur.launches.begin` compiles the known kernels of a call in parallel;
any other kernel is compiled when it is launched.

A wheel may contain machine code for common GPUs (`make wheel` packs it). A kernel is not compiled if the wheel has
machine code for its text that the driver accepts.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import struct
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import cuda_sources
from .cuda_sources import TYPES, Constants, alone, signatures
from .device import Device, cupy

OPTIONS = ("-std=c++17",)
LINES = "--generate-line-info"  # for profilers; takes two thirds of the bytes of the machine code
PACKED = "machine_code.zip"  # next to the sources, in a wheel
Sizes = tuple[int, ...] | int  # one to three sizes, along x, y and z

# ---------------------------------------------------------------- compiling


def architecture() -> str:
    """Return the architecture to compile for on the current device: ``sm_90a`` on Hopper, else that of the device."""
    capability = cupy.cuda.Device().compute_capability
    newest = max(cupy.cuda.nvrtc.getSupportedArchs())
    if int(capability) > newest:  # a device newer than the compiler: leave the last step to the driver
        return f"compute_{newest}"
    return "sm_90a" if capability == "90" else f"sm_{capability}"


def compile_source(text: str, name: str, arch: str, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Compile `text` with NVRTC, which needs no GPU, and return the machine code and the compiler's log.

    `options` are further options of NVRTC; `OPTIONS` are always used.

    Raises
    ------
    RuntimeError
        With the compiler's messages, if it refuses the text.
    """
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, *options, f"--gpu-architecture={arch}"))
        get = nvrtc.getCUBIN if arch.startswith("sm_") else nvrtc.getPTX
        return get(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise RuntimeError(f"{name} does not compile for {arch} ({error}):\n{log}") from None
    finally:
        nvrtc.destroyProgram(program)


def packed_name(stem: str, kernel: str, dtype: np.dtype, arch: str) -> str:
    """Return the name of a kernel's machine code in the archive, which depends on everything that the code was made
    from.
    """
    key = hashlib.sha256(repr((alone(stem, kernel, dtype), OPTIONS)).encode()).hexdigest()
    return f"{arch}/{kernel}-{key[:32]}.cubin"


@functools.cache
def _packed(path: Path) -> tuple[zipfile.ZipFile | None, list[tuple[int, str]]]:
    """Return the archive of machine code in the package, and its architectures as (number, name), the newest first."""
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile):
        return None, []
    names = {name.partition("/")[0] for name in archive.namelist()}
    return archive, sorted(((int(re.sub(r"\D", "", name)), name) for name in names), reverse=True)


def _shipped(stem: str, kernel: str, dtype: np.dtype, capability: int) -> Iterator[bytes]:
    """Yield machine code from the package for a device: code for the same generation, and for no newer device."""
    archive, architectures = _packed(cuda_sources.source_folder() / PACKED)
    for number, arch in architectures:
        if archive and number // 10 == capability // 10 and number <= capability:
            with suppress(Exception):  # made from other sources, or damaged: the kernel is compiled instead
                yield archive.read(packed_name(stem, kernel, dtype, arch))


def machine_code(text: str, name: str, arch: str) -> bytes:
    """Return the machine code of a text from CuPy's cache folder; if it is missing there, compile and store it."""
    from cupy.cuda import nvrtc

    key = hashlib.sha256(repr((text, OPTIONS, LINES, arch, nvrtc.getVersion())).encode()).hexdigest()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    path = folder / f"deblur-{name}-{key[:32]}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        code, _ = compile_source(text, name, arch, (LINES,))
    with suppress(OSError):  # without a cache the kernel is compiled again next time
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)  # so that another process never reads half a file
    return code


#: Running compilations: {(text, name, architecture): future machine code}.
begun: dict[tuple[str, str, str], Future[bytes]] = {}


def loaded(text: str, name: str) -> Any:
    """Return the module of a text for the current device; `name` stands in messages and in the cache folder."""
    from cupy.cuda.function import Module

    module, unit = Module(), (text, name, architecture())
    soon = begun.pop(unit, None)
    module.load(soon.result() if soon else machine_code(*unit))
    return module


@functools.cache
def _module(stem: str, kernel: str, dtype: np.dtype, device: int) -> Any:
    from cupy.cuda import driver
    from cupy.cuda.function import Module

    module = Module()
    for code in _shipped(stem, kernel, dtype, properties(device).capability):
        with suppress(driver.CUDADriverError):  # the driver is older than the compiler that made it
            module.load(code)
            return module
    return loaded(alone(stem, kernel, dtype), f"{stem}.{kernel}")


# ---------------------------------------------------------------- launching


class Kernel:
    """A kernel compiled for one dtype and one device; call it to launch it.

    One ``struct`` format packs all arguments into one buffer, so that a launch takes only a few microseconds of Python.
    """

    def __init__(self, stem: str, name: str, dtype: np.dtype, device: int) -> None:
        import cupy  # the module itself, since each launch uses it

        known = signatures(stem)
        if name not in known:
            raise ValueError(f"{stem}.cu has no kernel {name!r}; it has {', '.join(known)}")
        self.label = f"{stem}.{name}"
        self.parameters = known[name]
        self.device = device
        self._module = _module(stem, name, dtype, device)
        self._function = self._module.get_function(name)
        self._cupy = cupy
        self._lock = threading.Lock()
        self._shared_mem = 48 << 10  # the limit of a block unless `_allow` raises it
        if properties(device).capability >= 90:
            non_portable_cluster_size_allowed = 14  # CUfunction_attribute: clusters of more than 8 blocks
            cupy.cuda.driver.funcSetAttribute(self._function.ptr, non_portable_cluster_size_allowed, 1)

        types = TYPES | {"real": dtype.char}
        # Every argument begins at a multiple of 8 bytes, so that the members of a structure lie as in C.
        formats = [("" if p.continues else "0q") + ("P" if p.pointer else types[p.ctype]) for p in self.parameters]
        self._format = struct.Struct("@" + "".join(formats))
        self._values = ctypes.create_string_buffer(self._format.size + 8)  # room for the padding after a last structure
        ends = [struct.calcsize("@" + "".join(formats[: i + 1])) for i in range(len(formats))]
        start = ctypes.addressof(self._values)
        addresses = [
            start + end - struct.calcsize(f) for p, end, f in zip(self.parameters, ends, formats) if not p.continues
        ]
        self._address_array = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        self._addresses = ctypes.addressof(self._address_array)

        at = {p.name: i for i, p in enumerate(self.parameters)}
        # For each pointer: its position, its dtype, and the position of its ld (-1: the array must be contiguous).
        self._pointers = [
            (i, np.dtype(types[p.ctype]), at.get(f"ld{p.name}", -1)) for i, p in enumerate(self.parameters) if p.pointer
        ]

    def __call__(self, grid: Sizes, block: Sizes, *args: Any, shared_mem: int = 0, cooperative: bool = False) -> None:
        """Launch the kernel on CuPy's current stream.

        Parameters
        ----------
        grid, block : int or tuple of up to three int
            Number of blocks, and number of threads of a block.
        *args
            One argument for each parameter that the file declares: a CuPy array or None for a pointer, a number for
            a scalar.
        shared_mem : int
            Bytes of dynamic shared memory of a block; more than 48 KiB is requested from the driver.
        cooperative : bool
            Start only if all blocks can run at once, which a grid barrier needs.

        Raises
        ------
        TypeError
            For a wrong number of arguments, a host array, an array on another device, a wrong dtype, or a scalar
            outside the range of its type.
        ValueError
            For an array that is not contiguous, or whose ``ld`` is not the distance of its rows.
        """
        if len(args) != len(self.parameters):
            names = ", ".join(p.name for p in self.parameters)
            raise TypeError(f"{self.label} takes {len(self.parameters)} arguments ({names}), not {len(args)}")
        ndarray, device = self._cupy.ndarray, self.device
        values = list(args)
        for i, dtype, ld in self._pointers:
            a = args[i]
            if a is None:
                values[i] = 0
                continue
            if not isinstance(a, ndarray):
                self._refuse(i, args)
            own, data = a.dtype, a.data
            if (own is not dtype and own != dtype) or data.device_id != device:
                self._refuse(i, args)
            if ld < 0:
                if not a.flags.c_contiguous:
                    self._refuse(i, args)
            elif a.size and a.ndim >= 2:
                item, strides, shape = a.itemsize, a.strides, a.shape
                if (shape[-1] > 1 and strides[-1] != item) or (shape[-2] > 1 and strides[-2] != args[ld] * item):
                    self._refuse(i, args)
            values[i] = data.ptr
        gx, gy, gz = grid if isinstance(grid, tuple) and len(grid) == 3 else _three(grid)
        bx, by, bz = block if isinstance(block, tuple) and len(block) == 3 else _three(block)
        cuda = self._cupy.cuda
        if shared_mem > self._shared_mem:
            self._allow(shared_mem)
        stream = cuda.get_current_stream().ptr
        with self._lock:  # the driver has read the buffer when the launch returns
            try:
                self._format.pack_into(self._values, 0, *values)
            except struct.error as error:
                given = ", ".join(f"{p.name}={v!r}" for p, v in zip(self.parameters, values) if not p.pointer)
                raise TypeError(f"{self.label}: a scalar does not fit its type ({given}): {error}") from None
            how = self._function.ptr, gx, gy, gz, bx, by, bz, shared_mem, stream, self._addresses
            if cooperative:
                cuda.driver.launchCooperativeKernel(*how)
            else:
                cuda.driver.launchKernel(*how, 0)

    def resident_blocks(self, threads: int, shared_mem: int = 0) -> int:
        """Return how many blocks of `threads` threads the device runs at once, the limit for a grid barrier."""
        if shared_mem > self._shared_mem:
            self._allow(shared_mem)
        per_multiprocessor = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self._function.ptr, threads, shared_mem
        )
        return per_multiprocessor * properties(self.device).multiprocessors

    def _allow(self, shared_mem: int) -> None:
        driver = self._cupy.cuda.driver
        driver.funcSetAttribute(self._function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_mem)
        self._shared_mem = shared_mem

    def _refuse(self, i: int, args: tuple[Any, ...]) -> None:
        """Raise an error that says what parameter `i` needs and what was passed."""
        dtype, ld = next((dtype, ld) for at, dtype, ld in self._pointers if at == i)
        layout = "C-contiguous" if ld < 0 else f"with adjacent elements in a row and rows {args[ld]} elements apart"
        a, passed = args[i], type(args[i]).__name__
        fits = isinstance(a, self._cupy.ndarray) and a.dtype == dtype
        if isinstance(a, self._cupy.ndarray):
            strides = tuple(s // a.itemsize for s in a.strides)
            passed = f"of {a.dtype} on device {a.data.device_id}, shape {a.shape}, strides {strides} in elements"
        raise (ValueError if fits else TypeError)(
            f"{self.label}: argument {self.parameters[i].name!r} must be a CuPy array of {dtype} on device "
            f"{self.device}, {layout}; it is {passed}"
        )


def _three(size: Sizes) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else size
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


_kernels: dict[tuple[str, str, Any, int], Kernel] = {}


def get(stem: str, name: str, dtype: Any) -> Kernel:
    """Return the kernel `name` of ``cuda/<stem>.cu`` for `dtype` on the current device, compiled if necessary.

    Raises
    ------
    ValueError
        If there is no such file or kernel.
    TypeError
        If `dtype` is neither float32 nor float64.
    NoGPUError
        If CuPy or a CUDA device is missing.
    RuntimeError
        If the source does not compile; the message has the compiler's log.
    """
    try:
        import cupy  # the module itself, since each launch uses it

        device = cupy.cuda.runtime.getDevice()
    except Exception:
        Device.named("gpu")  # raises an error that says what is missing
        raise
    key = (stem, name, dtype, device)
    kernel = _kernels.get(key)
    if kernel is None:
        real = np.dtype(dtype)
        if real not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"the CUDA kernels compute in float32 or float64, not {real}")
        kernel = _kernels[key] = Kernel(stem, name, real, device)
    return kernel


def launch(stem: str, name: str, grid: Sizes, block: Sizes, *args: Any, dtype: Any) -> None:
    """Launch the kernel `name` of ``cuda/<stem>.cu``, with `dtype` for ``real``."""
    get(stem, name, dtype)(grid, block, *args)


def blocks(stem: str, size: int, rows: int = 1, per_multiprocessor: int = 8) -> int:
    """Return the number of blocks, of ``THREADS`` of ``cuda/<stem>.cu`` each, that process `size` elements grid-stride.

    Each thread gets one element, unless all `rows` of the grid would have more than `per_multiprocessor` blocks for
    each multiprocessor. Eight blocks of 256 threads are as many as a multiprocessor can hold.
    """
    import cupy  # the module itself, since each launch uses it

    return _blocks(stem, size, rows, per_multiprocessor, cupy.cuda.runtime.getDevice())


@functools.lru_cache(maxsize=4096)
def _blocks(stem: str, size: int, rows: int, per_multiprocessor: int, device: int) -> int:
    most = per_multiprocessor * properties(device).multiprocessors
    return max(1, min(-(-most // rows), -(-size // _block_size(stem))))


@functools.cache
def _block_size(stem: str) -> int:
    return int(Constants(stem).THREADS)


def spread(stem: str, name: str, size: int, *args: Any, dtype: Any) -> None:
    """Launch a kernel of ``cuda/<stem>.cu`` over `size` elements."""
    launch(stem, name, blocks(stem, size), _block_size(stem), *args, dtype=dtype)


class Reduction:
    """The grid of kernels that reduce by ``reduce.cuh``, and the arrays for the partial results of its blocks.

    Only one launch at a time may use it.

    Parameters
    ----------
    stem : str
        The file of the kernels.
    size : int
        Number of elements that a row of blocks reduces.
    numbers : int
        Largest number of sums or maxima that a kernel computes at once.
    rows : int
        Number of rows of blocks, each of which is a separate reduction.
    """

    def __init__(self, stem: str, size: int, numbers: int = 1, rows: int = 1) -> None:
        self._stem, self._rows = stem, rows
        self.blocks = blocks(stem, size, rows, per_multiprocessor=4)  # the last block adds up all partial results

        self._partial = cupy.empty(numbers * rows * self.blocks, np.float64)
        self._tickets = cupy.zeros(rows, np.uint32)

    def launch(self, name: str, *args: Any, dtype: Any) -> None:
        """Launch the kernel `name`, whose last two parameters are ``partial`` and ``tickets``."""
        room, grid = (self._partial, self._tickets), (self.blocks, self._rows)
        launch(self._stem, name, grid, _block_size(self._stem), *args, *room, dtype=dtype)


class Properties(NamedTuple):
    """The properties of a GPU that decide between kernels."""

    multiprocessors: int
    capability: int  # 90 for 9.0
    shared_memory: int  # largest number of bytes for a block
    cache: int  # bytes of the L2 cache


@functools.cache
def properties(device: int) -> Properties:
    """Return the properties of a GPU, given by its number."""
    p = cupy.cuda.runtime.getDeviceProperties(device)
    capability = 10 * int(p["major"]) + int(p["minor"])
    return Properties(
        int(p["multiProcessorCount"]), capability, int(p["sharedMemPerBlockOptin"]), int(p["l2CacheSize"])
    )
