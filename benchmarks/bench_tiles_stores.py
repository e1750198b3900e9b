"""From one zarr store to another: time against copying and solving alone, memory of a worker, peers, and two GPUs.

    python benchmarks/bench_tiles_stores.py [--side 8192] [--cores 2] [--repeats 3] [--no-peers]
    python benchmarks/bench_tiles_stores.py --gpus [--side 16384] [--repeats 4]
    python benchmarks/bench_tiles_stores.py --card [--side 8192] [--repeats 3]

A float32 picture in chunks of 1024² is restored by `deblur.tiles.stream` with processes of one thread, on the
first of the cores that this process may use. In the same run: copying it through Dask; solving all windows from memory,
shared by as many processes, which with the copy is the cost of the work without the tiles' own costs, by the clock and
in CPU seconds of all processes; scikit-image's `wiener` under `map_overlap` with the same overlap. Each has a cluster
of its own, whose workers' peak memory is theirs alone. Then the picture is solved whole by one thread, and the largest
difference is the seam. For pictures of more than 8192², which are not compressed, the windows alone are not timed, and
the seam is measured on a few tiles. Writes benchmarks/results/tiles_stores.json (with the side in its name if it is not
8192).

--gpus: a picture in tiles and a stack of frames of 1024² with one and with two workers, a GPU each, in turns; reading,
copying to the GPU and back, and writing are in the time. Before, each worker restores a small picture and a few frames.
Writes benchmarks/results/tiles_gpu.json.

--card: one GPU. A picture in memory in tiles of 2048², beside copying it there and back and solving the same windows
of one that is there; several processes that share the card, 200 pictures each; and a card on which other arrays leave
little room: whether the answer is that of a free card, or what the error says. Writes
benchmarks/results/tiles_card.json.
"""

from __future__ import annotations

import itertools
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

import numpy as np
from _common import asked, each, save, summary, table, time_together
from cases import mirrored

import deblur
from deblur import psf
from deblur.tiles import Tiling, cluster, stream

H, LAM, CHUNK = psf.disk(7), 1e-2, 1024
OPTIONS: dict[str, Any] = {"boundary": "unknown"}
PLAN: dict[str, Any] = {"tile": CHUNK, "tolerance": 1e-3, "memory": 2**28}
FOLDER = Path(os.environ.get("TMPDIR", "/tmp")) / "deblur_tiles_stores"

# ---------------------------------------------------------------- the stores


def write(name: str, shape: tuple[int, ...], chunks: tuple[int, ...], compress: bool = False) -> Path:
    """A blurred and noisy picture, or a stack of them, a strip or a frame at a time."""
    import zarr

    more: dict[str, Any] = {} if compress else {"compressors": None}
    path = FOLDER / f"{name}.zarr"
    array = zarr.create_array(path, shape=shape, dtype="float32", chunks=chunks, **more)
    base = deblur.Blur(H, (1024, 1024), "periodic").forward(mirrored(deblur.data.load("camera"), 1024, 1024))
    rng = np.random.default_rng(0)
    for i in range(0, shape[0], chunks[0]):
        moved = np.roll(base, 3 * i // chunks[0], axis=1)
        strip = np.tile(moved, [-(-n // 1024) for n in shape[-2:]])[: chunks[-2], : shape[-1]]
        array[i : i + chunks[0]] = strip + 0.01 * rng.standard_normal(strip.shape, np.float32)
    return path


# ---------------------------------------------------------------- one picture on the CPU


def peak() -> int:
    """Bytes at the peak of this process (`getrusage` would count its parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def imported(name: str) -> None:
    """Import the modules of a call, which are not timed."""
    import dask.array  # noqa: F401
    import zarr  # noqa: F401

    if name in PEERS:
        import skimage.restoration  # noqa: F401
    elif name == "deblur":
        deblur.reconstruct(np.ones((16, 16)), H, LAM)


def wiener(block: np.ndarray) -> np.ndarray:
    from skimage.restoration import wiener

    return wiener(block, H.astype(np.float32), LAM, clip=False).astype(np.float32)


PEERS = {"wiener": wiener}


def through_dask(source: Path, target: Path, client: Any, solve: Any = None, overlap: int = 0) -> None:
    """Copy, or map a function with an overlap."""
    import dask.array as da

    x = da.from_zarr(str(source))
    if solve is not None:
        meta = np.empty((0, 0), "f4")
        x = da.map_overlap(solve, x, depth=overlap, boundary="reflect", dtype=np.float32, meta=meta)
    client.compute(x.to_zarr(str(target), overwrite=True, compute=False)).result()


def ours(source: Path, target: Path, client: Any) -> None:
    assert stream(source, target, H, LAM, client=client, check=False, **PLAN, **OPTIONS).ok


def solves(source: Path, part: int, parts: int) -> tuple[float, float]:
    """Seconds, and those of CPU, of every `parts`-th window alone, with one thread."""
    import zarr

    image = zarr.open(source, mode="r")[:]
    tiling = Tiling(image, H, LAM, workers=1, **OPTIONS, **PLAN)
    tiling.solve([image], (0, 1), tiling.tiles[0], tiling.plan.overlap)
    start, before = time.perf_counter(), time.process_time()
    for tile in tiling.tiles[part::parts]:
        tiling.solve([image], (0, 1), tile, tiling.plan.overlap)
    return time.perf_counter() - start, time.process_time() - before


def solved_whole(source: Path, target: Path) -> tuple[float, float]:
    """The largest difference from the picture solved whole, over the range; and CPU seconds of solving it."""
    import zarr

    image, restored = (zarr.open(path, mode="r")[:] for path in (source, target))
    before = time.process_time()
    whole = deblur.solve(image, H, LAM, check=False, **OPTIONS).image
    return float(abs(restored - whole).max() / np.ptp(image)), time.process_time() - before


def on_cpu(side: int, cores: int, repeats: int, peers: bool) -> None:
    import zarr

    large, every = side > 8192, os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(every)[:cores]))
    source, target = write("in", (side, side), (CHUNK, CHUNK), compress=not large), FOLDER / "out.zarr"
    plan = deblur.plan_tiles(H, LAM, (side, side), dtype="float32", **PLAN, **OPTIONS)
    calls: dict[str, Callable[[Any], None]] = {
        "copy": partial(through_dask, source, target),
        "deblur": partial(ours, source, target),
    }
    for name, solve in PEERS.items() if peers else ():
        calls[name] = partial(through_dask, source, target, solve=solve, overlap=plan.overlap[0])
    clock: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    memory = dict.fromkeys(calls, 0)
    alone: list[tuple[float, float]] = []
    found: dict[str, Any] = {"overlap": plan.overlap[0], "seam_predicted": plan.seam, "whole_cpu_seconds": None}
    for turn, name in itertools.product(range(repeats), calls):
        shutil.rmtree(target, ignore_errors=True)
        with cluster(cores) as client:
            client.wait_for_workers(cores)
            client.run(imported, name)
            before = time.process_time() + sum(client.run(time.process_time).values())
            start = time.perf_counter()
            calls[name](client)
            clock[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() + sum(client.run(time.process_time).values()) - before)
            memory[name] = max(memory[name], *client.run(peak).values())
        if name == "deblur" and not large:
            with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
                took = list(pool.map(partial(solves, source, parts=cores), range(cores)))
            alone.append((max(s for s, _ in took), sum(s for _, s in took)))
        if name == "deblur" and turn == repeats - 1 and large:
            tiling = Tiling(zarr.open(source, mode="r"), H, LAM, **OPTIONS, **PLAN)
            found["seam_measured"] = max(tiling.measure())
            found["seam_measured_on"] = "a few tiles, against more overlap"
        elif name == "deblur" and turn == repeats - 1:
            found["seam_measured"], found["whole_cpu_seconds"] = solved_whole(source, target)
            found["seam_measured_on"] = "the picture solved whole"
        print(f"{name}: {clock[name][-1]:.1f} s, {cpu[name][-1]:.1f} of CPU", flush=True)
    found["seconds"], found["cpu_seconds"] = ({k: summary(v) for k, v in s.items()} for s in (clock, cpu))
    found["peak_bytes_of_a_worker"] = memory
    if alone:
        found["tile_solves_one_thread"] = summary([solves(source, 0, 1)[0]])
        for key, part, seconds in (("", 0, clock), ("_cpu", 1, cpu)):
            medians = {name: statistics.median(seconds[name]) for name in ("copy", "deblur")}
            windows = summary([took[part] for took in alone])
            found[f"tile_solves_at_once{key}"] = windows
            found[f"over_copy_and_solves{key}"] = medians["deblur"] / (medians["copy"] + windows["median_s"])
    settings = {"side": side, "cores": cores, "psf": "disk 7", "lam": LAM, **OPTIONS}
    save("tiles_stores" if side == 8192 else f"tiles_stores_{side}", found, tables(found, settings), **settings)


def tables(r: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
    names = {"copy": "copied through Dask", "deblur": "`deblur.tiles.stream`", "wiener": "scikit-image `wiener`"}
    rows = [
        {"name": names[who], "seconds": s["median_s"], "peak": r["peak_bytes_of_a_worker"][who] / 1e6}
        for who, s in r["seconds"].items()
    ]
    text = (
        f"{settings['side']}² float32 in zarr ({4 * settings['side'] ** 2 / 1e9:.2g} GB), {settings['cores']} "
        f"processes of one thread, {settings['psf']}, λ = {settings['lam']:g}, boundary {settings['boundary']}, "
        f"overlap {r['overlap']} pixels."
    )
    if len(rows) > 2:
        text += " The peer under `map_overlap` with the same."
    if "over_copy_and_solves" in r:
        one, both = (r[f"tile_solves_{how}"]["median_s"] for how in ("one_thread", "at_once"))
        text += (
            f" All windows solved alone take {both:.1f} s by {settings['cores']} processes at once; the whole takes "
            f"{r['over_copy_and_solves']:.2f} times the copy and that. In one process they take {one:.1f} s: cores "
            "that work at the same time are slower. By CPU seconds of all processes, which other work on the machine "
            f"changes less, it is {r['over_copy_and_solves_cpu']:.2f} times."
        )
    if r.get("whole_cpu_seconds") is not None:
        text += (
            f" To solve the picture whole, in memory, takes {r['whole_cpu_seconds']:.1f} CPU seconds; in tiles, from "
            f"store to store, {r['cpu_seconds']['deblur']['median_s']:.1f}: only a strip along the frame is solved, "
            "the rest is filtered."
        )
    text += (
        f" Seam predicted {r['seam_predicted']:.1e} of the range, measured {r['seam_measured']:.1e} "
        f"({r['seam_measured_on']})."
    )
    columns = {"from store to store": "{name}", "seconds": "{seconds:.1f}", "peak of a worker, MB": "{peak:.0f}"}
    return [table(text, columns, rows)]


# ---------------------------------------------------------------- one GPU and two


def on_gpus(side: int, frames: int, repeats: int) -> None:
    tile = 2048
    write("picture", (side, side), (tile, tile))
    write("small_picture", (3 * tile, 3 * tile), (tile, tile))
    write("stack", (frames, 1024, 1024), (1, 1024, 1024))
    write("small_stack", (128, 1024, 1024), (1, 1024, 1024))
    seconds: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in ("picture", "stack")}
    results: dict[str, Any] = {}

    def restored(name: str, client: Any) -> Any:
        shutil.rmtree(FOLDER / "out.zarr", ignore_errors=True)
        more: dict[str, Any] = {"stack_axis": 0} if "stack" in name else {"tile": tile}
        report = stream(
            FOLDER / f"{name}.zarr", FOLDER / "out.zarr", H, LAM, client=client, memory=2**34, check=False,
            device="gpu", **more, **OPTIONS,
        )  # fmt: skip
        assert report.ok
        return report

    for turn in range(repeats):
        for workers in (1, 2) if turn % 2 == 0 else (2, 1):
            with cluster(workers, gpus=True) as client:
                client.wait_for_workers(workers)
                for name in ("picture", "stack", "picture", "stack"):  # twice reaches both workers
                    restored(f"small_{name}", client)
                for name, taken in seconds.items():
                    report = restored(name, client)
                    taken[workers].append(report.seconds)
                    pixels = 4.0 * report.written * 1024**2 if name == "stack" else 4.0 * side**2
                    results[name] = {"bytes_up": pixels * report.plan.work, "bytes_down": pixels}
        for name, found in results.items():
            one, two = (statistics.median(seconds[name][n]) for n in (1, 2))
            found |= {"seconds": {str(n): summary(s) for n, s in seconds[name].items()}, "speedup_two": one / two}
        settings = {"side": side, "frames": frames, "turns": turn + 1}
        save("tiles_gpu", results, gpu_tables(results, settings), **settings)


def gpu_tables(r: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
    names = {"picture": f"{settings['side']}² in tiles", "stack": f"{settings['frames']} × 1024²"}
    rows = [{"work": names[k], "up": v["bytes_up"] / 1e9, "down": v["bytes_down"] / 1e9} | v for k, v in r.items()]
    columns = {"work": "{work}", "one GPU, s": "{seconds[1][median_s]:.1f}", "two, s": "{seconds[2][median_s]:.1f}"}
    columns |= {"times": "{speedup_two:.2f}", "GB up / down the bus": "{up:.1f} / {down:.1f}"}
    return [table("Two GPUs of one host, a process each.", columns, rows)]


# ---------------------------------------------------------------- one card


def pictures(image: np.ndarray) -> tuple[float, float]:
    """Seconds of 200 restorations, from the host and back, and how far the last is from the first."""
    import cupy

    def restored() -> np.ndarray:
        return deblur.reconstruct(cupy.asarray(image), H, LAM, **OPTIONS).get()

    first, start = restored(), time.perf_counter()  # the first compiles
    last = [restored() for _ in range(200)][-1]
    return time.perf_counter() - start, float(abs(last - first).max())


def with_room(image: Any, room: int, method: str) -> str:
    """What a restoration is, or says, where other arrays leave so many MB of the card."""
    import cupy

    wanted = deblur.reconstruct(image, H, LAM, method=method, **OPTIONS).get()
    cupy.get_default_memory_pool().free_all_blocks()
    others = cupy.cuda.Memory(cupy.cuda.runtime.memGetInfo()[0] - (room << 20))
    try:
        again = deblur.reconstruct(image, H, LAM, method=method, **OPTIONS).get()
        return f"right, apart by {abs(again - wanted).max():.0e}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        del others


def on_one_card(side: int, repeats: int) -> None:
    import cupy

    base = deblur.Blur(H, (1024, 1024), "periodic").forward(mirrored(deblur.data.load("camera"), 1024, 1024))
    image = np.tile(base.astype(np.float32), (side // 1024, side // 1024))
    there, tiling = cupy.asarray(image), Tiling(image, H, LAM, tile=2048, tolerance=1e-3, device="gpu", **OPTIONS)
    calls = {"tiles": lambda: tiling(image), "copy": lambda: cupy.asarray(image).get(), "solves": lambda: tiling(there)}
    timed = time_together(calls, repeats=repeats, synchronize=cupy.cuda.Device().synchronize)
    tiles, copy, solves = (1e3 * found["median_s"] for found in timed.values())
    words = f"copying it there and back ({copy:.0f}) and solving the windows of one that is there ({solves:.0f})"
    rows = [(f"{side}² in tiles", f"{tiles:.0f} ms, {tiles / (copy + solves):.2f} times {words}")]
    for n in (1, 2, 4):
        taken, apart = zip(*each(pictures, [(image[:1024, :1024],)] * n, n))
        rows.append((f"processes: {n}", f"{200 * n / max(taken):.0f} of 1024² a second, apart by {max(apart):.0e}"))
    for method, room in itertools.product(("auto", "tv", "collaborative"), (2048, 1024, 512, 256, 64)):
        rows.append((f"{method}, 4096², {room} MB free", with_room(there[:4096, :4096].copy(), room, method)))
    cells = [{"work": work, "result": result} for work, result in rows]
    save("tiles_card", rows, [table("One card.", {"work": "{work}", "result": "{result}"}, cells)], side=side)


def main() -> None:
    options = asked(__doc__, gpus=False, card=False, side=None, cores=2, repeats=3, no_peers=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        if options.card:
            on_one_card(options.side or 8192, options.repeats)
        elif options.gpus:
            on_gpus(options.side or 16384, 2000, options.repeats)
        else:
            on_cpu(options.side or 8192, options.cores, options.repeats, not options.no_peers)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
