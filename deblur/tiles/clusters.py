"""Processes on this or other machines in which `deblur.tiles.stream` computes, as a `distributed.Client`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def cluster(
    workers: int, memory: int | None = None, *, gpus: bool = False, scheduler: str | None = None
) -> Iterator[Any]:
    """Yield a `distributed.Client`: of a running scheduler, or of processes of this machine with one thread each.

    Parameters
    ----------
    workers : int
        Number of processes.
    memory : int, optional
        Bytes for each process; one that uses more is ended. By default there is no limit.
    gpus : bool
        Give each process its own GPU, from CUDA_VISIBLE_DEVICES if it is set, and two threads.
    scheduler : str, optional
        Address of a running scheduler, such as ``tcp://host:8786``.

    Raises
    ------
    ValueError
        If CUDA_VISIBLE_DEVICES names fewer GPUs than processes.
    ImportError
        If Dask is not installed.
    """
    try:
        import dask
        from distributed import Client, Nanny, Scheduler, SpecCluster
    except ImportError:
        raise ImportError('several processes need Dask: pip install "deblur-toolkit[dask]"') from None
    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
        return
    config: dict[str, Any] = {
        # All windows have similar sizes. If Dask made its workers return memory, each window would need new pages,
        # which costs a fifth of the time. Few arenas keep that memory few times, instead of once for each thread that
        # reads.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 2,
        # Profiling of stacks and the monitors take a tenth of the time.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
    }
    envs = [{"CUDA_VISIBLE_DEVICES": name} for name in visible_gpus(workers)] if gpus else [{}] * workers
    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False}
    # An error in a task is raised here, in one sentence; workers need not print its traceback.
    # With two threads, one reads and writes while the GPU solves the other's tile.
    each = {"nthreads": 1 + gpus, "memory_limit": memory or 0, "silence_logs": logging.CRITICAL, **here}
    with (
        dask.config.set(config),
        SpecCluster(
            workers={i: {"cls": Nanny, "options": {**each, "env": env}} for i, env in enumerate(envs)},
            scheduler={"cls": Scheduler, "options": {"port": 0, "dashboard_address": "127.0.0.1:0", **here}},
            silence_logs=logging.CRITICAL,
        ) as local,
        Client(local) as client,
    ):
        yield client


def visible_gpus(count: int) -> list[str]:
    """Return the names of `count` GPUs: by number, or from CUDA_VISIBLE_DEVICES, which hides all if it is empty."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return [str(i) for i in range(count)]
    names = [name for name in given.split(",") if name.strip()]
    if len(names) < count:
        raise ValueError(
            f"CUDA_VISIBLE_DEVICES is {given!r} and shows {len(names)} GPUs, but {count} are requested (--gpus): "
            "request fewer, or unset it"
        )
    return names[:count]
