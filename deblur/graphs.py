"""Work captured as CUDA graphs: submitted once by Python, replayed as often as it is needed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from .device import Array

#: Of the device's memory, what arrays of kept graphs may take while nobody uses them.
KEPT_SHARE = 1 / 32
#: Bytes of cuBLAS's own space on each stream of a graph: as much as it takes by itself on a Hopper GPU.
CUBLAS_BYTES = 32 << 20


def captured(work: Callable[[], None], stream: Any = None) -> Any:
    """`work` as a CUDA graph to be launched, or None where it cannot be captured and is to be done as it is.

    It should have been done once before, so that nothing is compiled or loaded on the way. What it allocates must come
    from a pool that lives as long as the graph, and on `stream`, where it is captured, has come from there before.
    """
    import cupy

    failed = cupy.cuda.runtime.CUDARuntimeError
    with cupy.cuda.Stream(non_blocking=True) if stream is None else stream as where:
        where.begin_capture()
        try:
            work()
        except Exception:
            with contextlib.suppress(failed):
                where.end_capture()
            return None
        try:
            return where.end_capture()
        except failed:
            return None


class SideStreams(NamedTuple):
    """Streams beside the caller's: for chains of short launches that everything waits for, and for products."""

    urgent: Any
    bulk: Any


_thread = threading.local()
_lock = threading.Lock()
_shared: dict[int, SideStreams] = {}


def side_streams() -> SideStreams:
    """Those of the current device, or of the graph that this thread captures."""
    import cupy

    capture = capturing()
    if capture is not None:
        return capture.streams
    device = cupy.cuda.runtime.getDevice()
    with _lock:
        if device not in _shared:
            _shared[device] = _side_streams()
        return _shared[device]


def _side_streams() -> SideStreams:
    import cupy

    return SideStreams(cupy.cuda.Stream(non_blocking=True, priority=-5), cupy.cuda.Stream(non_blocking=True))


def capturing() -> Kept | None:
    """What this thread captures just now."""
    return getattr(_thread, "capture", None)


class _NoMemory(Exception):
    """While a graph was captured. No pool may take this for a reason to free what the graph uses already."""


class Kept:
    """A captured piece of work, and the memory that is its own."""

    def __init__(self, key: Hashable, like: Array, work: Callable[[Array], Any]) -> None:
        import cupy

        self.key, self.device = key, cupy.cuda.runtime.getDevice()
        self.streams, self._pool = _side_streams(), cupy.cuda.MemoryPool(_malloc)
        self._used = cupy.cuda.Event(disable_timing=True)
        self._spaces: dict[int, Array] = {}
        self._result: Any = None
        with cupy.cuda.Stream(non_blocking=True) as main, cupy.cuda.using_allocator(self._pool.malloc):
            self.input = cupy.empty(like.shape, like.dtype)

            def whole() -> None:
                self._result = work(self.input)

            _thread.capture = self
            try:
                self.graph = captured(whole, main)
            finally:
                _thread.capture = None
        self._exec = None if self.graph is None else _with_priorities(self.graph)

    def __del__(self) -> None:
        if getattr(self, "_exec", 0) and not sys.is_finalizing():
            import cupy

            cupy.cuda.runtime.graphExecDestroy(self._exec)

    def cublas_space(self, stream: int) -> Array:
        """cuBLAS's space on one of the streams."""
        import cupy

        if stream not in self._spaces:
            self._spaces[stream] = cupy.empty(CUBLAS_BYTES, "u1")
        return self._spaces[stream]

    def take(self) -> None:
        """Wait, on the current stream, for who used it last."""
        import cupy

        cupy.cuda.get_current_stream().wait_event(self._used)

    def give_back(self) -> None:
        self._used.record()

    def wait(self) -> None:
        self._used.synchronize()

    def __call__(self) -> Any:
        """Do the work on `input`. The result is overwritten the next time."""
        import cupy

        if self._exec:
            cupy.cuda.runtime.graphLaunch(self._exec, cupy.cuda.get_current_stream().ptr)
        else:
            self.graph.launch()
        return self._result

    @property
    def bytes(self) -> int:
        return int(self._pool.total_bytes())


def _with_priorities(graph: Any) -> int:
    """`graph` so made that each kernel keeps the priority of the stream it was captured on, or 0."""
    use_node_priority = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
    made = ctypes.c_void_p()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        failed = driver.cuGraphInstantiateWithFlags(
            ctypes.byref(made), ctypes.c_void_p(graph.graph), ctypes.c_ulonglong(use_node_priority)
        )
    except (OSError, AttributeError):
        return 0
    return 0 if failed else int(made.value or 0)


def _malloc(size: int) -> Any:
    import cupy

    try:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise _NoMemory from error


_kept: list[Kept] = []  # the least recently used first
# Of what has been done and is not kept: how often it is to be done before it is captured, and how often that was at
# first. What is dropped for want of room waits longer each time, or two that do not fit beside each other would be
# captured again with every call.
_waits: dict[Hashable, tuple[float, float]] = {}
_MOST_WAITS = 256
_LONGER = 8
ENABLED = True
_COPIES = 4  # of the input, that the memory of a graph comes to, roughly


@contextlib.contextmanager
def replay(name: str, work: Callable[[Array], Any], like: Array) -> Iterator[Kept | None]:
    """`work` on an array of its own as a graph, or None where it is to be done as it is.

    It is captured when it is done the second time for a shape, dtype and device: what is done once keeps no memory.
    What would fill more than half of the room is done as it is: so much work does not wait for its launches.
    A part of what this decides about is done as it is, too: it would be captured beside the whole.
    """
    free = ENABLED and capturing() is None and not getattr(_thread, "decided", False)
    if not free or 2 * _COPIES * like.nbytes > KEPT_SHARE * _memory(like.device.id):
        yield None
    else:
        space = _taken((name, like.shape, like.dtype.char, like.device.id), like, work)
        _thread.decided = True
        try:
            yield space
        finally:
            _thread.decided = False
            if space is not None:
                _give_back(space)


@contextlib.contextmanager
def worked(name: str, work: Callable[[Array], Any], a: Array, room: Array) -> Iterator[tuple[Array, Any]]:
    """`work`, by a graph where there is one, in a row-major array with the values of `a`: that array, and its result.

    Without a graph the array is `room` if that is row-major, and a new one if not. Both are good inside the context.
    """
    import cupy

    with replay(name, work, a) as graph:
        if graph is None:
            x = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)
            if x is not a:
                x[...] = a
            yield x, work(x)
        else:
            graph.input[...] = a
            yield graph.input, graph()


def _taken(key: Hashable, like: Array, work: Callable[[Array], Any]) -> Kept | None:
    with _lock:
        found = next((s for s in reversed(_kept) if s.key == key), None)
        if found is not None:
            _kept.remove(found)
        else:
            left, whole = _waits.pop(key, (1, 1))
            _waits[key] = (left - 1, whole)
            if len(_waits) > _MOST_WAITS:
                del _waits[next(iter(_waits))]
            if left > 0:
                return None
    if found is None:
        try:
            found = Kept(key, like, work)
        except _NoMemory:
            found = None
        if found is None or found.graph is None:
            with _lock:
                _waits[key] = (math.inf, math.inf)
            return None
    found.take()
    return found


def _give_back(space: Kept) -> None:
    space.give_back()
    most, dropped = KEPT_SHARE * _memory(space.device), []
    with _lock:
        _kept.append(space)
        while sum(s.bytes for s in _kept if s.device == space.device) > most:
            first = next(s for s in _kept if s.device == space.device)
            _kept.remove(first)
            dropped.append(first)
            wait = _LONGER * _waits.get(first.key, (1, 1))[1] if first.bytes <= most else math.inf
            _waits[first.key] = (wait, wait)
    for old in dropped:
        old.wait()


@functools.cache
def _memory(device: int) -> int:
    import cupy

    with cupy.cuda.Device(device):
        return int(cupy.cuda.runtime.memGetInfo()[1])


def forget() -> None:
    """Give the memory of kept graphs back."""
    with _lock:
        dropped = _kept[:]
        _kept.clear()
        _waits.clear()
    for old in dropped:
        old.wait()


def kept_bytes() -> int:
    """Device memory that kept graphs hold while nobody uses them."""
    with _lock:
        return sum(s.bytes for s in _kept)
