"""Tiles and stacks on one GPU and on two, each in a process of its own: seconds, and what goes over the bus.

A picture of 16384² pixels (float32, zarr in chunks of 2048², not compressed, in shared memory) in tiles, and a stack of
2000 frames of 1024², are restored by `deblur.tiles.stream` with one and with two workers of `deblur.tiles.cluster`, in
turns; reading, copying to the GPU and back, and writing are in the time. Before, each worker has restored a small
picture and a few frames, so that contexts, transforms and kernels are there. Every window's bytes over the bus follow
from the plan; the time that they take is measured on windows of that size, one by one, with a wait after each step.
What four and eight GPUs would give is a model, t = a + b/n through the two measured times, and nothing else.

Writes benchmarks/results/tiles_gpu.json, after every turn.

    python benchmarks/bench_tiles_gpu.py [--side 16384] [--frames 2000] [--turns 2] [--runs 2] [--cpu]

Needs CuPy, dask, distributed and zarr.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import _common
import numpy as np

import deblur
from deblur import psf
from deblur.tiles import Report, cluster, stream
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


def steps(shape: tuple[int, ...], gpu: bool, repeats: int = 10) -> dict[str, float]:
    """Median seconds of the steps of one window inside the picture, with a wait after each."""
    recipe = Recipe(H[None], LAM, "float32", OPTIONS, "gpu" if gpu else "cpu", window=shape[-2:])  # type: ignore[arg-type]
    image = np.random.default_rng(0).random(shape, np.float32)
    if gpu:
        import cupy as xp

        wait = xp.cuda.get_current_stream().synchronize
        image = deblur.device.staging(shape, image.dtype)  # where a window is put together
        image[:] = np.random.default_rng(0).random(shape, np.float32)
    else:
        xp, wait = np, lambda: None
    inside = ((False, False), (False, False))
    seconds: dict[str, list[float]] = {"to": [], "solve": [], "back": []}
    for turn in range(repeats + 2):
        marks = [time.perf_counter()]
        there = xp.empty(shape, image.dtype)
        there.set(image) if gpu else np.copyto(there, image)
        wait()
        marks.append(time.perf_counter())
        f = restore(recipe, there, 0, inside, ((0, 0), (0, 0)))
        wait()
        marks.append(time.perf_counter())
        f.get(out=deblur.device.staging(f.shape, f.dtype)) if gpu else f.copy()
        marks.append(time.perf_counter())
        if turn >= 2:
            for name, a, b in zip(seconds, marks, marks[1:], strict=False):
                seconds[name].append(b - a)
    return {name: statistics.median(s) for name, s in seconds.items()}


def restored(name: str, folder: Path, client: Any, gpu: bool, tile: int) -> Report:
    """One restoration from store to store."""
    out = folder / "out.zarr"
    shutil.rmtree(out, ignore_errors=True)
    more: dict[str, Any] = {"stack_axis": 0} if "stack" in name else {"tile": tile}
    report = stream(
        folder / f"{name}.zarr", out, H, LAM, workers=client, memory=2**34, check=False,
        device="gpu" if gpu else "cpu", **more, **OPTIONS,
    )  # fmt: skip
    assert report.ok
    return report


def found(name: str, report: Report, seconds: dict[int, list[float]], setup: list[float], gpu: bool) -> Any:
    """Speed, what went over the bus, and the model."""
    plan, count = report.plan, report.written
    frames = count if name == "stack" else 1
    together = 2**25 // (4 * math.prod(plan.window)) if name == "stack" else 1
    down = 4.0 * math.prod(plan.shape) * frames
    each = steps((max(1, together), 1, *plan.window), gpu)
    one, two = (statistics.median(seconds[n]) for n in (1, 2))
    serial, shared = 2 * two - one, 2 * (one - two)
    return {
        "blocks": count,
        "window": list(plan.window),
        "windows_at_once": max(1, together),
        "overlap": list(plan.overlap),
        "setup_s": statistics.median(setup),
        "seconds": {str(n): _common.summary(s) for n, s in seconds.items()},
        "speedup_two": one / two,
        "bytes_up": down * plan.work,
        "bytes_down": down,
        "step_s": each,
        "transfer_s_in_all": count / max(1, together) * (each["to"] + each["back"]),
        "model": {"serial_s": serial, "shared_s": shared},
        "modelled_speedup": {str(n): one / (serial + shared / n) for n in (4, 8)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument(
        "--runs", type=int, default=2, help="of the picture in each turn; of the stack there is one"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("/dev/shm/deblur_tiles"), help="for some 20 GB of stores"
    )
    parser.add_argument("--cpu", action="store_true", help="try the script without GPUs; writes no result")
    args = parser.parse_args()
    gpu, folder = not args.cpu, args.folder
    tile, frame = min(TILE, args.side // 4), min(FRAME, args.side)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("picture", "stack")
    seconds: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in names}
    setup: dict[str, list[float]] = {name: [] for name in names}
    reports: dict[str, Report] = {}
    results: dict[str, Any] = {}
    try:
        picture(folder / "picture.zarr", args.side, tile)
        picture(folder / "small_picture.zarr", 3 * tile, tile)
        stack(folder / "stack.zarr", args.frames, frame)
        stack(folder / "small_stack.zarr", 128 if args.frames > 512 else 4, frame)
        print("stores written", flush=True)
        for turn in range(args.turns):
            for workers in (1, 2) if turn % 2 == 0 else (2, 1):
                with cluster(workers, gpus=True) as client:
                    client.wait_for_workers(workers)
                    for name in names:
                        for _ in range(2):  # which worker gets what is chance: twice reaches both
                            restored(f"small_{name}", folder, client, gpu, tile)
                    for name in (*["picture"] * args.runs, "stack"):
                        report = reports[name] = restored(name, folder, client, gpu, tile)
                        seconds[name][workers].append(report.seconds)
                        setup[name].append(report.setup_seconds)
                        print(f"{name}, {workers}: {report.seconds:.2f} s", flush=True)
            for name in names:
                results[name] = found(name, reports[name], seconds[name], setup[name], gpu)
            if gpu:
                _common.save(
                    "tiles_gpu", results, side=args.side, frames=args.frames, turns=turn + 1, runs=args.runs
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _common.print_table(
        [
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
    )


if __name__ == "__main__":
    main()
