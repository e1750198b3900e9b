"""Work captured as CUDA graphs: Python submits it once, and the GPU replays it as often as needed."""

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

#: Bytes of cuBLAS's own workspace on each stream of a graph: what it takes by itself on a Hopper GPU.
CUBLAS_BYTES = 32 << 20

_thread = threading.local()
_lock = threading.Lock()
#: How often work that is not cached is done before it is captured; infinite where it cannot be captured.
_waits: dict[Hashable, float] = {}


def captured(work: Callable[[], None], stream: Any = None) -> Any:
    """`work` as a CUDA graph, or None if it cannot be captured.

    Do the work once before, so that the capture compiles and loads nothing. What it allocates must come from a memory
    pool that lives as long as the graph, and that has served `stream`, where the work is captured, before.
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
    """A step that is repeated: first as it is, then as a graph.

    The graph has a stream and a memory pool of its own for what it allocates. The next loop takes them over, because
    to allocate memory takes longer than most steps.

    Parameters
    ----------
    eager : int
        Steps that are done as they are before one is captured.
    capture : bool
        Whether the step may be captured at all.
    """

    def __init__(self, eager: int, capture: bool = True) -> None:
        self._left = eager if capture else math.inf
        self._graph: Any = None

    def __call__(self, step: Callable[[], None]) -> None:
        """Do the step, the same each time. It reads nothing back, and leaves its results in arrays made before."""
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
        """Do a step on the loop's own stream, and capture the next ones."""
        cache, current = pool(cupy.cuda.runtime.getDevice()), cupy.cuda.get_current_stream()
        stream, memory = cache.take("loop") or (cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool())
        # A finalizer and not `__del__`: of a loop that is part of a reference cycle, the garbage collector would call
        # the stream's `__del__`, too, and the next loop would get a destroyed stream.
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
    """Let the next loop have a loop's stream and memory."""
    cache.give("loop", (stream, memory), memory.total_bytes(), *used_on)


class Repeated:
    """A function of an array as the step of a `Loop`."""

    def __init__(self, function: Callable[[Array], Array], eager: int) -> None:
        self._input: Array = None
        self._result: Array = None
        self._function, self._loop = function, Loop(eager)  # deleted in reverse order: the loop last

    def __call__(self, x: Array) -> Array:
        """Its value; the next call overwrites it."""
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
    """Streams besides the caller's: for chains of short launches that everything waits for, and for products.

    They are those of the current device, or of the graph that this thread captures.
    """
    capture = capturing()
    if capture is not None:
        return capture.streams
    return pool(cupy.cuda.runtime.getDevice()).get("side streams", _side_streams, 0)


def _side_streams() -> tuple[Any, Any]:
    return (cupy.cuda.Stream(non_blocking=True, priority=-5), cupy.cuda.Stream(non_blocking=True))


def capturing() -> CachedGraph | None:
    """The cached graph that this thread captures at the moment."""
    return getattr(_thread, "capture", None)


class _NoMemory(Exception):
    """Raised while a graph is captured. No memory pool may catch it and free what the graph uses already."""


class CachedGraph:
    """A captured piece of work, and the memory that is its own."""

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
        """cuBLAS's space on one of the streams."""
        if stream not in self._spaces:
            self._spaces[stream] = cupy.empty(CUBLAS_BYTES, "u1")
        return self._spaces[stream]

    def __call__(self) -> Any:
        """Do the work on `input`. The next call overwrites the result."""
        if self._exec:
            cupy.cuda.runtime.graphLaunch(self._exec, cupy.cuda.get_current_stream().ptr)
        else:
            self.graph.launch()
        return self._result

    @property
    def nbytes(self) -> int:
        """Device memory that it holds."""
        return int(self._memory.total_bytes())


def _with_priorities(graph: Any) -> int:
    """`graph` instantiated such that each kernel keeps the priority of its stream; 0 where the driver cannot."""
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
    """`work` on an array of its own as a graph, or None if the caller must do it as it is.

    Work is captured when it is done the second time for a shape, dtype and device: work done once takes no memory. A
    graph takes about four times the memory of its input; what would fill more than half the cache is not captured.
    Nor is a part of what this decides about, which would be captured twice.
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
    """`work`, by a graph where there is one, in a row-major array with the values of `a`: that array, and its result.

    Without a graph the array is `room` if that is row-major, and a new one if not. Both are valid inside the context.
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
    """Free the memory of all cached objects that are not in use, graphs among them."""
    with _lock:
        _waits.clear()
    pools.forget()
