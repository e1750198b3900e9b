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
#: Bytes of device memory that a thread's loops leave to the next ones.
LOOP_BYTES = 128 << 20
#: Bytes of cuBLAS's own space on each stream of a graph: as much as it takes by itself on a Hopper GPU.
CUBLAS_BYTES = 32 << 20


_thread = threading.local()


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


# ---------------------------------------------------------------- loops


class _Place:
    """A stream of a thread's own, and the memory of what is captured there."""

    def __init__(self) -> None:
        import cupy

        self.stream, self.pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
        self.loops = 0  # how many there are just now


class Loop:
    """A step that is done over and over: as it is at first, and then as a graph.

    What the graphs of a thread write to on their way, and the plans of their transforms, belong to its loops together.
    One leaves them to the next, up to `LOOP_BYTES`: to allocate them takes longer than most steps.

    Parameters
    ----------
    eager : int
        Steps before it pays to capture one.
    capture : bool
        Whether the step may be captured at all.
    """

    def __init__(self, eager: int, capture: bool = True) -> None:
        self._left = eager if capture else math.inf
        self._graph: Any = None
        self._place: _Place | None = None

    def __call__(self, step: Callable[[], None]) -> None:
        """Do the step, the same each time.

        It reads nothing back, and what it leaves lies in arrays that were there before.
        """
        import cupy

        if self._graph is not None:
            self._graph.launch(cupy.cuda.get_current_stream())
        elif self._left > 0:
            self._left -= 1
            step()
        else:
            self._left = math.inf
            self._capture(step)

    def _capture(self, step: Callable[[], None]) -> None:
        """A step, and the graph of those to come."""
        import cupy

        places = _thread.__dict__.setdefault("places", {})
        device = cupy.cuda.runtime.getDevice()
        if device not in places:
            places[device] = _Place()
        self._place = place = places[device]
        place.loops += 1
        current = cupy.cuda.get_current_stream()
        place.stream.wait_event(current.record())
        with cupy.cuda.using_allocator(place.pool.malloc):
            with place.stream:
                step()
            current.wait_event(place.stream.record())
            self._graph = captured(step, place.stream)

    def __del__(self) -> None:
        place, self._graph = getattr(self, "_place", None), None
        if place is None or sys.is_finalizing():
            return
        place.loops -= 1
        if not place.loops and place.pool.total_bytes() > LOOP_BYTES:
            place.pool.free_all_blocks()


class Repeated:
    """A function of an array, done over and over as the step of a `Loop`."""

    def __init__(self, function: Callable[[Array], Array], eager: int) -> None:
        self._given: Array = None
        self._found: Array = None
        self._function, self._loop = function, Loop(eager)  # the last to begin is the last to end

    def __call__(self, x: Array) -> Array:
        """Its value, which is overwritten the next time."""
        import cupy

        if self._given is None:
            self._given = cupy.empty(x.shape, x.dtype)
        self._given[...] = x
        self._loop(self._step)
        return self._found

    def _step(self) -> None:
        found = self._function(self._given)
        if self._found is None:
            self._found = found.copy()
        else:
            self._found[...] = found


# ---------------------------------------------------------------- graphs that are kept


class SideStreams(NamedTuple):
    """Streams beside the caller's: for chains of short launches that everything waits for, and for products."""

    urgent: Any
    bulk: Any


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
    What would fill more than three quarters of the room is done as it is: it leaves none to others.
    A part of what this decides about is done as it is, too: it would be captured beside the whole.
    """
    free = ENABLED and capturing() is None and not getattr(_thread, "decided", False)
    if not free or _COPIES * like.nbytes > 0.75 * KEPT_SHARE * _memory(like.device.id):
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
    """Give the memory of kept graphs back, and what loops of this thread have left."""
    for place in _thread.__dict__.get("places", {}).values():
        if not place.loops:
            place.pool.free_all_blocks()
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
