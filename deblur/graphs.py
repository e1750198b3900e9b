"""Capture work as CUDA graphs: Python submits it once, and the GPU replays it as often as needed."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from . import pool as pools
from .device import Array, cupy, making
from .pool import holding, pool

#: Bytes of cuBLAS's workspace on each stream of a graph: cuBLAS's own default on a Hopper GPU.
CUBLAS_BYTES = 32 << 20

_thread = threading.local()
_lock = threading.Lock()
#: Number of calls before uncached work is captured; infinite for work that cannot be captured.
_waits: dict[Hashable, float] = {}


def captured(work: Callable[[], None], stream: Any = None) -> Any:
    """Return `work` as a CUDA graph, or None if it cannot be captured.

    Run the work once before, so that nothing is compiled or loaded during the capture. The work must allocate from a
    memory pool that lives as long as the graph. The pool must have served `stream`, the stream of the capture, before.
    """
    failed = cupy.cuda.runtime.CUDARuntimeError
    with making(), cupy.cuda.Stream(non_blocking=True) if stream is None else stream as where:
        where.begin_capture()
        try:
            work()
        except Exception:
            with contextlib.suppress(failed):
                where.end_capture()
            return None
        with contextlib.suppress(failed):
            return where.end_capture()
        return None


# ---------------------------------------------------------------- loops


class Loop:
    """A repeated step: the first calls run it directly, later calls replay it as a graph.

    The graph has its own stream, and its own memory pool for its allocations. The next loop reuses both, since an
    allocation takes longer than most steps.

    Parameters
    ----------
    eager : int
        Number of direct calls before the step is captured.
    capture : bool
        False if the step must never be captured.
    """

    def __init__(self, eager: int, capture: bool = True) -> None:
        self._left = eager if capture else math.inf
        self._graph: Any = None

    def __call__(self, step: Callable[[], None]) -> None:
        """Run the step, which must be the same in each call, read nothing back, and write its results into existing
        arrays.
        """
        if self._graph is not None:
            self._used_on[0] = cupy.cuda.get_current_stream()
            self._graph.launch(self._used_on[0])
        elif self._left > 0:
            self._left -= 1
            step()
        else:
            self._left = math.inf
            self._capture(step)

    def _capture(self, step: Callable[[], None]) -> None:
        """Run a step on the loop's own stream, and capture it for the next calls."""
        cache, current = pool(cupy.cuda.runtime.getDevice()), cupy.cuda.get_current_stream()
        stream, memory = cache.take("loop") or (cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool())
        # This is a finalizer and not `__del__`: if a loop is part of a reference cycle, the garbage collector would
        # also call the `__del__` of the stream, and the next loop would get a destroyed stream.
        self._used_on = [current]
        weakref.finalize(self, _give_back, cache, stream, memory, self._used_on).atexit = False
        stream.wait_event(current.record())
        with cupy.cuda.using_allocator(memory.malloc):
            with stream:
                step()
            current.wait_event(stream.record())
            with holding() as self._held:
                self._graph = captured(step, stream)


def _give_back(cache: pools.Pool, stream: Any, memory: Any, used_on: list[Any]) -> None:
    """Make the stream and the memory of a loop available to the next loop."""
    cache.give("loop", (stream, memory), memory.total_bytes(), *used_on)


class Repeated:
    """A function of one array, run as the step of a `Loop`."""

    def __init__(self, function: Callable[[Array], Array], eager: int) -> None:
        self._input: Array = None
        self._result: Array = None
        self._function, self._loop = function, Loop(eager)  # deleted in reverse order: the loop last

    def __call__(self, x: Array) -> Array:
        """Return the value of the function; the next call overwrites it."""
        if self._input is None:
            self._input = cupy.empty(x.shape, x.dtype)
        self._input[...] = x
        self._loop(self._step)
        return self._result

    def _step(self) -> None:
        value = self._function(self._input)
        if self._result is None:
            self._result = value.copy()
        else:
            self._result[...] = value


# ---------------------------------------------------------------- cached graphs


def side_streams() -> tuple[Any, Any]:
    """Return two streams beside the caller's: one of high priority for chains of short launches, and one for products.

    They belong to the current device, or to the graph that this thread is capturing.
    """
    capture = capturing()
    if capture is not None:
        return capture.streams
    return pool(cupy.cuda.runtime.getDevice()).get("side streams", _side_streams, 0)


def _side_streams() -> tuple[Any, Any]:
    return (cupy.cuda.Stream(non_blocking=True, priority=-5), cupy.cuda.Stream(non_blocking=True))


def capturing() -> CachedGraph | None:
    """Return the cached graph that this thread is capturing, or None."""
    return getattr(_thread, "capture", None)


class _NoMemory(Exception):
    """Raised if memory runs out while a graph is captured.

    It is an error of its own, so that no memory pool catches it and frees memory that the graph uses already.
    """


class CachedGraph:
    """A captured piece of work, with its own memory."""

    def __init__(self, like: Array, work: Callable[[Array], Any]) -> None:
        self.streams, self._memory = _side_streams(), cupy.cuda.MemoryPool(_malloc)
        self._spaces: dict[int, Array] = {}
        self._result: Any = None
        with cupy.cuda.Stream(non_blocking=True) as main, cupy.cuda.using_allocator(self._memory.malloc):
            self.input = cupy.empty(like.shape, like.dtype)

            def whole() -> None:
                self._result = work(self.input)

            _thread.capture = self
            try:
                with holding() as self._held:
                    self.graph = captured(whole, main)
            finally:
                _thread.capture = None
        self._exec = None if self.graph is None else _with_priorities(self.graph)
        if self._exec:
            weakref.finalize(self, cupy.cuda.runtime.graphExecDestroy, self._exec).atexit = False

    def cublas_space(self, stream: int) -> Array:
        """Return cuBLAS's workspace on one of the streams."""
        if stream not in self._spaces:
            self._spaces[stream] = cupy.empty(CUBLAS_BYTES, "u1")
        return self._spaces[stream]

    def __call__(self) -> Any:
        """Run the work on `input` and return its result, which the next call overwrites."""
        if self._exec:
            cupy.cuda.runtime.graphLaunch(self._exec, cupy.cuda.get_current_stream().ptr)
        else:
            self.graph.launch()
        return self._result

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the graph holds."""
        return int(self._memory.total_bytes())


def _with_priorities(graph: Any) -> int:
    """Return `graph` instantiated such that each kernel keeps the priority of its stream, or 0 if the driver cannot do
    this.
    """
    use_node_priority = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
    made = ctypes.c_void_p()
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        failed = driver.cuGraphInstantiateWithFlags(
            ctypes.byref(made), ctypes.c_void_p(graph.graph), ctypes.c_ulonglong(use_node_priority)
        )
        return 0 if failed else int(made.value or 0)
    return 0


def _malloc(size: int) -> Any:
    try:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise _NoMemory from error


@contextlib.contextmanager
def replay(name: str, work: Callable[[Array], Any], like: Array) -> Iterator[CachedGraph | None]:
    """Yield a graph of `work` on an array of its own, or None if the caller must run the work directly.

    Work is captured when it runs the second time for a shape, dtype and device, so work that runs once takes no memory.
    A graph takes about four times the memory of its input. Work whose graph would fill more than half of the cache is
    not captured. Work inside such a context is not captured either, since it would be captured twice.
    """
    cache, free = pool(like.device.id), capturing() is None and not getattr(_thread, "decided", False)
    if not free or 4 * like.nbytes > cache.budget / 2:
        yield None
        return
    key = ("graph", name, like.shape, like.dtype.char)
    graph = cache.take(key) or _new_graph((key, like.device.id), like, work)
    _thread.decided = True
    try:
        yield graph
    finally:
        _thread.decided = False
        if graph is not None:
            cache.give(key, graph, graph.nbytes)


@contextlib.contextmanager
def worked(name: str, work: Callable[[Array], Any], a: Array, room: Array) -> Iterator[tuple[Array, Any]]:
    """Run `work` on a row-major array with the values of `a`, by a graph if possible, and yield that array and the
    result.

    Without a graph the array is `room` if `room` is row-major, else a new array. Both are valid only inside the
    context.
    """
    with replay(name, work, a) as graph:
        if graph is None:
            x = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)
            if x is not a:
                x[...] = a
            yield x, work(x)
        else:
            graph.input[...] = a
            yield graph.input, graph()


def _new_graph(key: Hashable, like: Array, work: Callable[[Array], Any]) -> CachedGraph | None:
    with _lock:
        left = _waits.pop(key, 1)
        if left > 0:
            _waits[key] = left - 1
            if len(_waits) > 256:
                del _waits[next(iter(_waits))]
            return None
    with contextlib.suppress(_NoMemory):
        made = CachedGraph(like, work)
        if made.graph is not None:
            return made
    with _lock:
        _waits[key] = math.inf
    return None


def forget() -> None:
    """Free the memory of all cached objects that are not in use, including graphs."""
    with _lock:
        _waits.clear()
    pools.forget()
