"""Work captured as CUDA graphs: submitted once by Python, replayed as often as it is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


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
