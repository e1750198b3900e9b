"""From one zarr store to another on two cores: time against copying and solving alone, memory of a worker, and peers.

A picture of 8192² pixels (float32, chunks of 1024²) is restored by `deblur.tiles.stream` with processes of one thread.
In the same run: copying it through Dask; solving all windows one after another from memory, which with the copy is
what the work costs without tiles' own costs; scikit-image's `wiener` and `richardson_lucy` under `map_overlap` with the
same overlap. Each has a cluster of its own, whose workers' peak memory is theirs alone. Then the picture is solved
whole, where there is room, and the largest difference is the seam.

Writes benchmarks/results/tiles_stores.json (with the side in its name if it is not 8192).

    python benchmarks/bench_tiles_stores.py [--side 8192] [--cores 2] [--repeats 3] [--no-peers] [--no-whole]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import _common
import numpy as np

import deblur
from deblur import psf
from deblur.tiles import Tiling, cluster, stream

H, LAM, CHUNK = psf.disk(7), 1e-2, 1024
OPTIONS: dict[str, Any] = {"boundary": "unknown"}
RL_ITERATIONS = 10
TOLERANCE = 1e-3


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
    """Bytes at the peak of this process."""
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def imported() -> None:
    """Import what all need, which is nobody's work."""
    import dask.array  # noqa: F401
    import skimage.restoration  # noqa: F401
    import zarr  # noqa: F401

    import deblur.tiles  # noqa: F401


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
    report = stream(
        source,
        target,
        H,
        LAM,
        client=client,
        tile=CHUNK,
        tolerance=TOLERANCE,
        memory=2**28,
        check=False,
        **OPTIONS,
    )
    assert report.ok
    return time.perf_counter() - start


def solves(source: Path) -> float:
    """Seconds of all windows alone, one after another, with one thread."""
    import zarr

    image = zarr.open(source, mode="r")[:]
    tiling = Tiling(image, H, LAM, tile=CHUNK, tolerance=TOLERANCE, memory=2**28, workers=1, options=OPTIONS)  # type: ignore[arg-type]
    tiling.solve(image, 0, tiling.tiles[0], tiling.plan.overlap)
    start = time.perf_counter()
    for tile in tiling.tiles:
        tiling.solve(image, 0, tile, tiling.plan.overlap)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/deblur_tiles_stores"))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-whole", action="store_true")
    args = parser.parse_args()
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(every)[: args.cores]))
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    source, target = args.folder / "in.zarr", args.folder / "out.zarr"
    write(source, args.side, compress=args.side <= 8192)
    plan = deblur.plan_tiles(
        H,
        LAM,
        (args.side, args.side),
        tolerance=TOLERANCE,
        tile=CHUNK,
        memory=2**28,
        dtype="float32",
        boundary="unknown",
    )
    d = plan.overlap[0]
    contestants: dict[str, Callable[[Any], float]] = {
        "copy": lambda client: through_dask(source, target, client, None, 0),
        "deblur": lambda client: ours(source, target, client),
    }
    if not args.no_peers:
        for peer in (wiener, richardson_lucy):
            contestants[peer.__name__] = partial(
                lambda client, peer: through_dask(source, target, client, peer, d), peer=peer
            )
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    memory: dict[str, int] = dict.fromkeys(contestants, 0)
    alone: list[float] = []
    try:
        for turn in range(args.repeats):
            for name, call in contestants.items():
                if name == "richardson_lucy" and turn:
                    continue  # it takes by far the longest
                shutil.rmtree(target, ignore_errors=True)
                with cluster(args.cores) as client:
                    client.wait_for_workers(args.cores)
                    client.run(imported)
                    seconds[name].append(call(client))
                    memory[name] = max(memory[name], *client.run(peak).values())
            if args.side <= 8192:
                alone.append(solves(source))
        shutil.rmtree(target, ignore_errors=True)
        with cluster(args.cores) as client:
            ours(source, target, client)
        os.sched_setaffinity(0, every)
        seam = None
        if not args.no_whole:
            import zarr

            image = zarr.open(source, mode="r")[:]
            whole = deblur.solve(image, H, LAM, check=False, **OPTIONS).image
            seam = float(abs(zarr.open(target, mode="r")[:] - whole).max() / np.ptp(image))
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    medians = {name: statistics.median(s) for name, s in seconds.items()}
    results: dict[str, Any] = {
        "seconds": {name: _common.summary(s) for name, s in seconds.items()},
        "peak_bytes_of_a_worker": memory,
        "tile_solves_one_thread": _common.summary(alone) if alone else None,
        "over_copy_and_solves": medians["deblur"] / (medians["copy"] + statistics.median(alone) / args.cores)
        if alone
        else None,
        "overlap": d,
        "seam_predicted": plan.seam,
        "seam_measured": seam,
        "bytes_of_the_picture": 4 * args.side**2,
    }
    _common.print_table(
        [
            {"work": name, "seconds": medians[name], "peak of a worker (MB)": memory[name] / 1e6}
            for name in contestants
        ]
    )
    print({k: results[k] for k in ("over_copy_and_solves", "seam_predicted", "seam_measured")}, alone)
    name = "tiles_stores" if args.side == 8192 else f"tiles_stores_{args.side}"
    _common.save(
        name, results, side=args.side, cores=args.cores, chunk=CHUNK, psf="disk 7", lam=LAM, tolerance=TOLERANCE,
        richardson_lucy_iterations=RL_ITERATIONS, **OPTIONS,
    )  # fmt: skip


if __name__ == "__main__":
    main()
