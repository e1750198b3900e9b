"""Processes of this machine or of others that `deblur.tiles.stream` computes in: a `distributed.Client`."""

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
    """A `distributed.Client`: of the scheduler at an address, or of processes of this machine, with a thread each.

    Parameters
    ----------
    workers : int
        Processes.
    memory : int, optional
        Bytes for each, which ends a process that takes more; by default no limit is set.
    gpus : bool
        Give each process a GPU of its own, and two threads; of those that CUDA_VISIBLE_DEVICES names if it is set.
    scheduler : str, optional
        Address of a scheduler that runs already, such as ``tcp://host:8786``.

    Raises
    ------
    ValueError
        If CUDA_VISIBLE_DEVICES names fewer GPUs than there are to be processes.
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
        # Windows are all alike: memory that Dask has its workers give back would be new pages again for each, which
        # costs a fifth of the time. One arena keeps it once, and not one for each thread that reads.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
        "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 2,
        # Sampling of every stack and the monitors take a tenth of the time.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
    }
    envs = [{"CUDA_VISIBLE_DEVICES": name} for name in visible_gpus(workers)] if gpus else [{}] * workers
    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False}
    # An error in a task is raised here, in one sentence: the workers need not print it with its traceback.
    # Of two threads one reads and writes while the other's tile is solved on the GPU.
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
    """The names of so many GPUs: by number, or as CUDA_VISIBLE_DEVICES has them, which hides all if it is empty."""
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
