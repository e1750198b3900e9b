"""From one zarr store to another on two cores: time against copying and solving alone, memory of a worker, and peers.

A picture of 8192² pixels (float32, chunks of 1024²) is restored by `deblur.tiles.stream` with processes of one thread.
In the same run: copying it through Dask; solving all windows from memory, shared by as many processes, which with the
copy is what the work costs without tiles' own costs, by the clock and in CPU seconds of all processes, which say the
same on a machine that is busy; scikit-image's `wiener` and `richardson_lucy` under `map_overlap` with the same overlap.
Each has a cluster of its own, whose workers' peak memory is theirs alone. Then the picture is solved whole by one
thread, where there is room, and the largest difference is the seam. Of larger pictures, which are not compressed, the
windows alone are not timed, and the seam is measured on a few tiles.

Writes benchmarks/results/tiles_stores.json (with the side in its name if it is not 8192) after every step.

    python benchmarks/bench_tiles_stores.py [--side 8192] [--cores 2] [--repeats 3] [--no-peers] [--no-whole]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _common
import numpy as np

import deblur
from deblur import psf
from deblur.device import thread_limit
from deblur.tiles import Tiling, cluster, stream

H, LAM, CHUNK = psf.disk(7), 1e-2, 1024
OPTIONS: dict[str, Any] = {"boundary": "unknown"}
RL_ITERATIONS = 10
TOLERANCE = 1e-3
ASKED: dict[str, Any] = {"tile": CHUNK, "tolerance": TOLERANCE, "memory": 2**28}


def write(path: Path, side: int, compress: bool) -> None:
    """A blurred and noisy picture, a strip at a time."""
    import zarr

    more: dict[str, Any] = {} if compress else {"compressors": None}
    array = zarr.create_array(path, shape=(side, side), dtype="float32", chunks=(CHUNK, CHUNK), **more)
    scene = deblur.data.load("camera")
    base = np.block([[scene, scene[:, ::-1]], [scene[::-1], scene[::-1, ::-1]]])
    blurred = deblur.Blur(H, base.shape, "periodic").forward(base)
    rng = np.random.default_rng(0)
    for top in range(0, side, CHUNK):
        line = np.tile(np.roll(blurred, 3 * top // CHUNK, axis=1), (1, -(-side // 1024)))[:CHUNK, :side]
        array[top : top + CHUNK] = line + 0.01 * rng.standard_normal(line.shape, np.float32)


def peak() -> int:
    """Bytes at the peak of this process (`getrusage` would count what it was forked from)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def cpu() -> float:
    """CPU seconds of this process so far."""
    return time.process_time()


def imported(name: str) -> None:
    """Import what a call needs, which is nobody's work."""
    import dask.array  # noqa: F401
    import zarr  # noqa: F401

    if name == "deblur":
        import deblur.solvers.pcg
        import deblur.tiles.streams  # noqa: F401
    elif name != "copy":
        import skimage.restoration  # noqa: F401


def wiener(block: np.ndarray) -> np.ndarray:
    from skimage.restoration import wiener

    return wiener(block, H.astype(np.float32), LAM, clip=False).astype(np.float32)


def richardson_lucy(block: np.ndarray) -> np.ndarray:
    from skimage.restoration import richardson_lucy

    return richardson_lucy(block, H.astype(np.float32), num_iter=RL_ITERATIONS).astype(np.float32)


def through_dask(
    source: Path, target: Path, client: Any, solve: Callable[..., Any] | None, overlap: int
) -> float:
    """Seconds to copy, or to map a function with an overlap."""
    import dask.array as da

    start = time.perf_counter()
    x = da.from_zarr(str(source))
    if solve is not None:
        x = da.map_overlap(
            solve, x, depth=overlap, boundary="reflect", dtype=np.float32, meta=np.empty((0, 0), "f4")
        )
    client.compute(x.to_zarr(str(target), overwrite=True, compute=False)).result()
    return time.perf_counter() - start


def ours(source: Path, target: Path, client: Any) -> float:
    start = time.perf_counter()
    report = stream(source, target, H, LAM, workers=client, check=False, **ASKED, **OPTIONS)
    assert report.ok
    return time.perf_counter() - start


def solves(source: Path, part: int, parts: int) -> tuple[float, float]:
    """Seconds, and those of CPU, of every `parts`-th window alone, one after another, with one thread."""
    import zarr

    image = zarr.open(source, mode="r")[:]
    tiling = Tiling(image, H, LAM, workers=1, **ASKED, **OPTIONS)  # type: ignore[arg-type]
    tiling.solve(image, 0, tiling.tiles[0], tiling.plan.overlap)
    start, before = time.perf_counter(), cpu()
    for tile in tiling.tiles[part::parts]:
        tiling.solve(image, 0, tile, tiling.plan.overlap)
    return time.perf_counter() - start, cpu() - before


def solves_at_once(source: Path, processes: int) -> tuple[float, float]:
    """Seconds of all windows alone, shared by processes at work at the same time, and those of CPU of all of them."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        took = list(pool.map(partial(solves, source, parts=processes), range(processes)))
    return max(seconds for seconds, _ in took), sum(of_cpu for _, of_cpu in took)


def solved_whole(source: Path, target: Path) -> tuple[float, float]:
    """The largest difference from the picture solved whole, over the range; and CPU seconds of solving it."""
    import zarr

    image, restored = (zarr.open(path, mode="r")[:] for path in (source, target))
    before = cpu()
    with thread_limit(1):
        whole = deblur.solve(image, H, LAM, check=False, **OPTIONS).image
    took = cpu() - before
    return float(abs(restored - whole).max() / np.ptp(image)), took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--cores", type=int, default=2, help="the first of those that this process may use")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/deblur_tiles_stores"))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-whole", action="store_true")
    args = parser.parse_args()
    every, large = os.sched_getaffinity(0), args.side > 8192
    os.sched_setaffinity(0, set(sorted(every)[: args.cores]))
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    source, target = args.folder / "in.zarr", args.folder / "out.zarr"
    plan = deblur.plan_tiles(H, LAM, (args.side, args.side), dtype="float32", **ASKED, **OPTIONS)
    calls: dict[str, Callable[[Any], float]] = {
        "copy": lambda client: through_dask(source, target, client, None, 0),
        "deblur": lambda client: ours(source, target, client),
    }
    if not args.no_peers:
        for peer in (wiener, richardson_lucy):
            calls[peer.__name__] = partial(
                lambda client, peer: through_dask(source, target, client, peer, plan.overlap[0]), peer=peer
            )
    seconds: dict[str, list[float]] = {}
    memory: dict[str, int] = {}
    of_cpu: dict[str, list[float]] = {}
    alone: list[tuple[float, float]] = []
    one: list[tuple[float, float]] = []
    found: dict[str, Any] = {
        "overlap": plan.overlap[0],
        "seam_predicted": plan.seam,
        "seam_measured": None,
        "seam_measured_on": None,
        "whole_cpu_seconds": None,
        "bytes_of_the_picture": 4 * args.side**2,
    }

    def over(of: dict[str, list[float]], which: int) -> float | None:
        if not alone or "deblur" not in of:
            return None
        medians = {name: statistics.median(s) for name, s in of.items()}
        return medians["deblur"] / (medians["copy"] + statistics.median(took[which] for took in alone))

    def record() -> None:
        found["seconds"] = {name: _common.summary(s) for name, s in seconds.items()}
        found["cpu_seconds"] = {name: _common.summary(s) for name, s in of_cpu.items()}
        found["peak_bytes_of_a_worker"] = memory
        for name, took in (("at_once", alone), ("one_thread", one)):
            found[f"tile_solves_{name}"] = _common.summary([t for t, _ in took]) if took else None
            found[f"tile_solves_{name}_cpu"] = _common.summary([t for _, t in took]) if took else None
        found["over_copy_and_solves"] = over(seconds, 0)
        found["over_copy_and_solves_cpu"] = over(of_cpu, 1)
        _common.save(
            "tiles_stores" if args.side == 8192 else f"tiles_stores_{args.side}", found, side=args.side,
            cores=args.cores, chunk=CHUNK, psf="disk 7", lam=LAM, tolerance=TOLERANCE,
            richardson_lucy_iterations=RL_ITERATIONS, **OPTIONS,
        )  # fmt: skip

    def timed(name: str) -> None:
        shutil.rmtree(target, ignore_errors=True)
        with cluster(args.cores) as client:
            client.wait_for_workers(args.cores)
            client.run(imported, name)
            before = cpu() + sum(client.run(cpu).values())
            seconds.setdefault(name, []).append(calls[name](client))
            of_cpu.setdefault(name, []).append(cpu() + sum(client.run(cpu).values()) - before)
            memory[name] = max(memory.get(name, 0), *client.run(peak).values())
        print(
            f"{name}: {seconds[name][-1]:.1f} s, {of_cpu[name][-1]:.1f} of CPU, {memory[name] / 1e6:.0f} MB",
            flush=True,
        )
        record()

    try:
        write(source, args.side, compress=not large)
        for turn in range(args.repeats):
            for name in calls:
                if name != "richardson_lucy":  # it takes by far the longest
                    timed(name)
                if name == "deblur" and turn == args.repeats - 1:
                    os.sched_setaffinity(0, every)
                    if large:
                        import zarr

                        tiling = Tiling(zarr.open(source, mode="r"), H, LAM, **ASKED, **OPTIONS)
                        found["seam_measured"] = max(s.difference for s in tiling.measure())
                        found["seam_measured_on"] = "a few tiles, against twice the overlap"
                    elif not args.no_whole:
                        found["seam_measured"], found["whole_cpu_seconds"] = solved_whole(source, target)
                        found["seam_measured_on"] = "the picture solved whole"
                    os.sched_setaffinity(0, set(sorted(every)[: args.cores]))
            if not large:
                alone.append(solves_at_once(source, args.cores))
                print("windows alone: {:.1f} s, {:.1f} of CPU".format(*alone[-1]), flush=True)
                record()
        if not large:
            one.append(solves(source, 0, 1))
        if "richardson_lucy" in calls:
            timed("richardson_lucy")
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    record()
    print(
        {
            k: found[k]
            for k in (
                "over_copy_and_solves",
                "over_copy_and_solves_cpu",
                "whole_cpu_seconds",
                "seam_predicted",
                "seam_measured",
            )
        }
    )


if __name__ == "__main__":
    main()
