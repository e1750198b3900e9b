"""One cache per device for objects that are slow to make: FFT plans, captured graphs, work arrays, prepared windows.

All entries of a device share one budget in bytes. If it is exceeded, the least recently used entries are dropped.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

from .device import Device, free_memory, making

#: The budget, as a share of the memory of a GPU, or of the memory that is free on the host at the first use.
SHARE = 1 / 16
#: Smallest number of bytes that an entry counts, since plans and graphs hold memory that the driver does not report.
SMALLEST = 16 << 20

T = TypeVar("T")

_lock = threading.Lock()
_thread = threading.local()
_pools: dict[int | None, Pool] = {}


def pool(gpu: int | None) -> Pool:
    """Return the cache of a GPU by its number, or of the host (None)."""
    with _lock:
        if gpu not in _pools:
            _pools[gpu] = Pool(gpu)
        return _pools[gpu]


def forget() -> None:
    """Drop all entries that are not in use, on all devices."""
    with _lock:
        pools = list(_pools.values())
    for one in pools:
        one.clear()


@contextlib.contextmanager
def holding() -> Iterator[list[Any]]:
    """Collect the objects that `Pool.get` returns to this thread, since a captured graph must keep them alive."""
    held: list[Any] = []
    before, _thread.held = getattr(_thread, "held", None), held
    try:
        yield held
    finally:
        _thread.held = before


class _Entry:
    """A cached value; `nbytes` is 0 until the value is made, and `used` is an event after its last exclusive use on a
    GPU.
    """

    __slots__ = ("lock", "nbytes", "used", "value")

    def __init__(self, value: Any = None, nbytes: int = 0, used: Any = None) -> None:
        self.lock, self.value, self.nbytes, self.used = threading.Lock(), value, nbytes, used


class Pool:
    """The cache of one device.

    Attributes
    ----------
    budget : int
        Bytes that all entries together may take.
    """

    def __init__(self, gpu: int | None) -> None:
        device = Device(gpu)
        with device.current():
            memory = free_memory(device.xp) if gpu is None else device.xp.cuda.runtime.memGetInfo()[1]
        self._device, self.budget = device, int(SHARE * memory)
        self._lock = threading.RLock()  # a finalizer may call `give` while this thread holds the lock
        # The least recently used first. A shared entry has the key (key, 0), an exclusive one (key, id of the value).
        self._entries: OrderedDict[tuple[Hashable, int], _Entry] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of all cached entries that are not in exclusive use."""
        with self._lock:
            return sum(entry.nbytes for entry in list(self._entries.values()))

    def get(self, key: Hashable, make: Callable[[], T], nbytes: int) -> T:
        """Return the value of `key`, which all threads share; `make` is called if there is none.

        A new entry stays in the cache until another one is made, even if it is larger than the budget.

        Parameters
        ----------
        key : hashable
            The key. If only one thread or stream may use the value at a time, the key must contain its name.
        make : callable
            Makes the value. It is called once, while other threads that need the same key wait.
        nbytes : int
            Approximate bytes that the value holds.
        """
        with self._lock:
            entry = self._entries.get((key, 0)) or self._entries.setdefault((key, 0), _Entry())
            self._entries.move_to_end((key, 0))
        if not entry.nbytes:
            with entry.lock if self._device.gpu is None else making():  # one lock: a value may need another value
                if not entry.nbytes:
                    entry.value = self._made(make)
                    entry.nbytes = max(nbytes, SMALLEST)
            self._shrink(self.budget, entry)
        held = getattr(_thread, "held", None)
        if held is not None:
            held.append(entry.value)
        return entry.value

    @contextlib.contextmanager
    def lend(self, key: Hashable, make: Callable[[], T], nbytes: int) -> Iterator[T]:
        """Yield a value for exclusive use: an idle one of that key, or a new one."""
        value = self.take(key)
        if value is None:
            value = self._made(make)
        try:
            yield value
        finally:
            self.give(key, value, nbytes)

    def take(self, key: Hashable) -> Any:
        """Return an idle value of that key, or None; the current stream waits for the stream that used the
        value last.
        """
        with self._lock:
            at = next((at for at in list(self._entries)[::-1] if at[1] and at[0] == key), None)
            entry = None if at is None else self._entries.pop(at)
        if entry is None:
            return None
        if entry.used is not None:
            self._device.xp.cuda.get_current_stream().wait_event(entry.used)
        return entry.value

    def give(self, key: Hashable, value: Any, nbytes: int, stream: Any = None) -> None:
        """Make a value idle; `stream` used it last, by default the current one."""
        used = None
        if self._device.gpu is not None:
            with self._device.current():
                used = (stream or self._device.xp.cuda.get_current_stream()).record()
        with self._lock:
            self._entries[key, id(value)] = _Entry(value, max(nbytes, SMALLEST), used)
        self._shrink(self.budget)

    def clear(self) -> None:
        """Drop all entries that are not in use."""
        self._shrink(0)
        self._shrink(0)  # dropped graphs have returned their own entries

    def _made(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except MemoryError:  # CuPy's OutOfMemoryError is one
            self.clear()
            return make()

    def _shrink(self, budget: int, spare: _Entry | None = None) -> None:
        """Drop the least recently used entries, except `spare`, until the rest fits in the budget."""
        dropped = []
        with self._lock:
            excess = self.nbytes - budget
            for at in list(self._entries):
                entry = self._entries.get(at)
                if excess > 0 and entry and entry.nbytes and entry is not spare:
                    dropped.append(self._entries.pop(at))
                    excess -= entry.nbytes
        for entry in dropped:  # the memory is freed when this function returns
            if entry.used is not None:
                entry.used.synchronize()
