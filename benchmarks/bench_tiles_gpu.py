"""Tiles and stacks on one GPU and on two, each in a process of its own: seconds, and what goes over the bus.

A picture of 16384² pixels (float32, zarr in chunks of 2048², not compressed, in shared memory) in tiles, and a stack of
2000 frames of 1024², are restored by `deblur.tiles.stream` with one and with two workers of `deblur.tiles.cluster`, in
turns; reading, copying to the GPU and back, and writing are in the time. Every window's bytes over the bus follow from
the plan; the time that they take is measured on windows of that size, one by one, with a wait after each step. What
four and eight GPUs would give is a model, t = a + b/n through the two measured times, and nothing else.

Writes benchmarks/results/tiles_gpu.json.

    python benchmarks/bench_tiles_gpu.py [--side 16384] [--frames 2000] [--repeats 3] [--cpu]

Needs CuPy, dask, distributed and zarr.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import _common
import numpy as np

import deblur
from deblur import psf
from deblur.tiles import cluster, stream
from deblur.tiles.windows import Recipe, restore

H, LAM = psf.disk(7), 1e-2
TILE, FRAME = 2048, 1024
OPTIONS: dict[str, Any] = {"boundary": "unknown"}


def blurred(side: int) -> np.ndarray:
    """A blurred and noisy picture of that size, put together from a photograph."""
    scene = deblur.data.load("camera").astype(np.float32)
    n = -(-side // 512)
    scene = np.tile(
        np.block([[scene, scene[:, ::-1]], [scene[::-1], scene[::-1, ::-1]]]), (-(-n // 2), -(-n // 2))
    )
    small = deblur.degrade(scene[:1024, :1024], H, noise=0.01, seed=0).astype(np.float32)
    return np.tile(small, (-(-side // 1024), -(-side // 1024)))[:side, :side]


def picture(path: Path, side: int, tile: int) -> None:
    import zarr

    array = zarr.create_array(
        path, shape=(side, side), dtype="float32", chunks=(tile, tile), compressors=None
    )
    array[:] = blurred(side)


def stack(path: Path, frames: int, side: int) -> None:
    import zarr

    array = zarr.create_array(
        path, shape=(frames, side, side), dtype="float32", chunks=(1, side, side), compressors=None
    )
    base = blurred(2 * side)
    for i in range(frames):
        a, b = (37 * i) % side, (53 * i) % side
        array[i] = base[a : a + side, b : b + side]


def steps(window: tuple[int, int], gpu: bool, repeats: int = 20) -> dict[str, float]:
    """Median seconds of the steps of one window inside the picture, with a wait after each."""
    recipe = Recipe(H[None], LAM, "float32", OPTIONS, "gpu" if gpu else "cpu")  # type: ignore[arg-type]
    image = np.random.default_rng(0).random((1, 1, *window), np.float32)
    if gpu:
        import cupy as xp

        wait = xp.cuda.get_current_stream().synchronize
    else:
        xp, wait = np, lambda: None
    inside = ((False, False), (False, False))
    seconds: dict[str, list[float]] = {"to": [], "solve": [], "back": []}
    for turn in range(repeats + 2):
        marks = [time.perf_counter()]
        there = xp.asarray(image) if gpu else image.copy()
        wait()
        marks.append(time.perf_counter())
        f = restore(recipe, there, 0, inside, ((0, 0), (0, 0)))
        wait()
        marks.append(time.perf_counter())
        deblur.device.asnumpy(f)
        marks.append(time.perf_counter())
        if turn >= 2:
            for name, a, b in zip(seconds, marks, marks[1:], strict=False):
                seconds[name].append(b - a)
    return {name: statistics.median(s) for name, s in seconds.items()}


def run(name: str, folder: Path, repeats: int, gpu: bool, tile: int, axes: dict[str, Any]) -> dict[str, Any]:
    """Seconds with one and two workers, in turns; and the bytes over the bus."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    setup: list[float] = []
    report = None
    for turn in range(repeats):
        for workers in (1, 2) if turn % 2 == 0 else (2, 1):
            with cluster(workers, gpus=gpu) as client:
                client.wait_for_workers(workers)
                for measured in (False, True):  # the first warms contexts, plans and kernels
                    out = folder / "out.zarr"
                    shutil.rmtree(out, ignore_errors=True)
                    report = stream(
                        folder / f"{name}.zarr", out, H, LAM, client=client, memory=2**34, check=False,
                        device="gpu" if gpu else "cpu", **({"tile": tile} if not axes else {}), **axes, **OPTIONS,
                    )  # fmt: skip
                    if measured:
                        seconds[workers].append(report.seconds)
                        setup.append(report.setup_seconds)
    assert report is not None
    plan, total = report.plan, report.written
    up = down = 4 * float(np.prod(plan.shape)) * (total if axes else 1)
    up *= plan.work
    one, two = (statistics.median(seconds[n]) for n in (1, 2))
    serial, shared = 2 * two - one, 2 * (one - two)
    window = plan.shape if axes else plan.window
    each = steps(window, gpu)
    return {
        "blocks": total,
        "window": list(window),
        "overlap": list(plan.overlap),
        "setup_s": statistics.median(setup),
        "seconds": {str(n): _common.summary(s) for n, s in seconds.items()},
        "speedup_two": one / two,
        "bytes_up": up,
        "bytes_down": down,
        "step_s": each,
        "transfer_s_in_all": total * (each["to"] + each["back"]),
        "model": {"serial_s": serial, "shared_s": shared},
        "modelled_speedup": {str(n): one / (serial + shared / n) for n in (4, 8)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=Path("/dev/shm/deblur_tiles"), help="for some 20 GB of stores"
    )
    parser.add_argument("--cpu", action="store_true", help="try the script without GPUs; writes no result")
    args = parser.parse_args()
    tile = min(TILE, args.side // 4)
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    results: dict[str, Any] = {}
    try:
        picture(args.folder / "picture.zarr", args.side, tile)
        results["picture"] = run("picture", args.folder, args.repeats, not args.cpu, tile, {})
        shutil.rmtree(args.folder / "picture.zarr")
        stack(args.folder / "stack.zarr", args.frames, min(FRAME, args.side))
        results["stack"] = run("stack", args.folder, args.repeats, not args.cpu, tile, {"stack_axis": 0})
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    rows = [
        {
            "work": name,
            "one (s)": r["seconds"]["1"]["median_s"],
            "two (s)": r["seconds"]["2"]["median_s"],
            "speed-up": r["speedup_two"],
            "GB up": r["bytes_up"] / 1e9,
            "GB down": r["bytes_down"] / 1e9,
            "transfers (s)": r["transfer_s_in_all"],
        }
        for name, r in results.items()
    ]
    _common.print_table(rows)
    if not args.cpu:
        _common.save("tiles_gpu", results, side=args.side, frames=args.frames, repeats=args.repeats)


if __name__ == "__main__":
    main()
