"""Processes of this machine or of others that `deblur.tiles.stream` computes in: a `distributed.Client`."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tiling import Tiling


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
        Give each process a GPU of its own, and two threads: by dask-cuda where it is installed, else by
        CUDA_VISIBLE_DEVICES.
    scheduler : str, optional
        Address of a scheduler that runs already, such as ``tcp://host:8786``.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
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
        # See `queue_reads`.
        "distributed.scheduler.worker-saturation": math.inf,
    }
    # An error in a task is raised here, in one sentence: the workers need not print it with its traceback.
    given: dict[str, Any] = {
        "n_workers": workers,
        "dashboard_address": None,
        "silence_logs": logging.CRITICAL,
    }
    with dask.config.set(config):
        if not gpus:
            given["scheduler_kwargs"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
            local = LocalCluster(threads_per_worker=1, host="127.0.0.1", memory_limit=memory or 0, **given)
        else:  # two threads: one reads and writes while the other's tile is solved
            try:
                from dask_cuda import LocalCUDACluster

                local = LocalCUDACluster(threads_per_worker=2, **given)
            except ImportError:
                local = _one_gpu_each(workers, memory or 0)
    with local, Client(local) as client:
        yield client


def _one_gpu_each(workers: int, memory: int) -> Any:
    """Processes that see one GPU each, by CUDA_VISIBLE_DEVICES."""
    from distributed import Nanny, Scheduler, SpecCluster

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(visible) < workers:
        visible = [str(i) for i in range(workers)]
    host: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False}
    each = {"nthreads": 2, "memory_limit": memory, "silence_logs": logging.CRITICAL, **host}
    return SpecCluster(
        workers={
            i: {"cls": Nanny, "options": {**each, "env": {"CUDA_VISIBLE_DEVICES": visible[i]}}}
            for i in range(workers)
        },
        scheduler={"cls": Scheduler, "options": {"port": 0, "dashboard_address": "127.0.0.1:0", **host}},
        silence_logs=logging.CRITICAL,
    )


def queue_reads(client: Any, tiling: Tiling) -> None:
    """Let the scheduler of `cluster` hand out reads one after another where all at once would take too much memory.

    One after another, as Dask has it, neighbours are at different workers, half of the image goes from one to another,
    and workers wait for the scheduler. Handed out at once, each worker reads its part in one piece; but where that
    extends over all columns of a wide image, it holds two rows of tiles until their neighbours are there.
    """
    if getattr(client, "cluster", None) is None:  # threads, or another scheduler
        return
    plan = tiling.plan
    held = 2 * plan.tile[0] * plan.shape[1] * tiling.dtype.itemsize * tiling.layout.colours
    held *= (2 if plan.passes > 1 else 1) if any(plan.overlap) else 0
    if plan.bytes + held > plan.memory:
        client.run_on_scheduler(one_by_one)


def one_by_one(dask_scheduler: Any) -> None:
    """Dask's own setting."""
    dask_scheduler.WORKER_SATURATION = 1.1
