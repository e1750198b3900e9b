"""Real pictures on two cores: seconds, peak memory and PSNR of the command, with peers in the same run.

Every entrant runs in a process of its own, pinned to two cores: the time is that of the whole process for the command,
of the call for a peer; the memory is the peak of the process. The scene goes on beyond the frame, and the picture is
stored as a camera stores it: in 8 bits as a JPEG or PNG, or a stack of 16 bits as a TIFF. Writes
benchmarks/results/photographs.json.

    python benchmarks/bench_photographs.py [--pictures NAME ...]      of some pictures it writes nothing
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import ROOT, parser, save, table
from cases import colour

import deblur

CORES, NOISE, LIMIT = 2, 0.01, 600  # LIMIT: seconds for one entrant
#: The photographs that a large picture is laid out of, in colour, none of them black over a tenth of its pixels.
PARTS = ("coffee", "astronaut", "cat", "immunohistochemistry")
PEERS = {"wiener": (0.1,), "unsupervised_wiener": (), "richardson_lucy": (30,)}


class Picture(NamedTuple):
    """A photograph as it is stored: rows, columns and colours, frames of a stack, PSF, ending of the file, peers."""

    shape: tuple[int, ...]
    frames: int = 1
    psf: str = "motion:15,30"
    ending: str = ".png"
    peers: tuple[str, ...] = ()


PICTURES = {
    "64²": Picture((64, 64)),
    "256²": Picture((256, 256)),
    "512²": Picture((512, 512)),
    "0.24 MP colour": Picture((400, 600, 3), ending=".jpg"),
    "1 MP": Picture((1024, 1024), peers=tuple(PEERS)),
    "1 MP colour": Picture((1024, 1024, 3), ending=".jpg"),
    "12 MP": Picture((3000, 4000), peers=tuple(PEERS)),
    "12 MP colour": Picture((3000, 4000, 3), ending=".jpg", peers=("wiener", "unsupervised_wiener")),
    "200 × 512²": Picture((512, 512), frames=200, psf="gaussian:9,1.5", ending=".tif"),
}


def scene(rows: int, cols: int) -> np.ndarray:
    """A picture of that size in colour, float32 in [0, 1]: photographs side by side, mirrored where they end."""
    parts = [colour(name)[..., :3] for name in PARTS]
    side = min(1000, rows, cols)
    out = np.zeros((rows, cols, 3), np.float32)
    for i in range(0, rows, side):
        for j in range(0, cols, side):
            part = parts[(i // side * 4 + j // side) % len(parts)]
            room = out[i : i + side, j : j + side]
            more = [(0, max(n - have, 0)) for n, have in zip(room.shape[:2], part.shape[:2])]
            room[:] = np.pad(part, [*more, (0, 0)], mode="symmetric")[: room.shape[0], : room.shape[1]]
    return out


def store(picture: Picture, folder: Path) -> tuple[Path, np.ndarray]:
    """The blurred and noisy picture as a file, and the truth inside its frame."""
    from PIL import Image

    h = deblur.psf.parse(picture.psf)
    sharp = scene(*(n + m - 1 for n, m in zip(picture.shape, h.shape)))
    if len(picture.shape) == 2:
        sharp = sharp.mean(axis=-1, keepdims=True)
    blur, rng = deblur.Blur(h / h.sum(), picture.shape[:2], "unknown"), np.random.default_rng(0)
    g = np.stack([blur.forward(sharp[..., i]) for i in range(sharp.shape[-1])], axis=-1).reshape(picture.shape)
    noisy = (g + NOISE * rng.standard_normal(g.shape, np.float32) for _ in range(picture.frames))
    path = folder / f"blurred{picture.ending}"
    if picture.frames > 1:
        import tifffile

        tifffile.imwrite(path, np.stack([np.rint(65535 * n.clip(0, 1)).astype(np.uint16) for n in noisy]))
    else:
        Image.fromarray(np.rint(255 * next(noisy).clip(0, 1)).astype(np.uint8)).save(path, quality=95)
    return path, sharp[blur.crop].reshape(picture.shape)


def peer(name: str, blurred: str, psf: str, restored: str) -> None:
    """Run a function of scikit-image in this process and print its seconds; the image goes into `restored`."""
    from skimage import restoration

    g = deblur.image.as_float(deblur.image.read(blurred, as_float=False)).astype(np.float32)
    h, restore = deblur.psf.parse(psf), getattr(restoration, name)
    start = time.perf_counter()
    channels = [g] if g.ndim == 2 else [g[..., i] for i in range(3)]
    images = [restore(c, h, *PEERS[name]) for c in channels]
    seconds = time.perf_counter() - start
    images = [image[0] if isinstance(image, tuple) else image for image in images]
    np.save(restored, images[0] if g.ndim == 2 else np.stack(images, axis=-1))
    print(seconds)


def pinned() -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:CORES]))


def run(name: str, entrant: str, blurred: Path, truth: np.ndarray) -> dict[str, Any]:
    """One row: the command, or a peer, in a process of its own."""
    picture = PICTURES[name]
    restored = blurred.with_name("restored" + (".tif" if picture.frames > 1 else ".png"))
    line = [sys.executable, "-m", "deblur", "reconstruct", str(blurred), "-o", str(restored), "--psf", picture.psf]
    restored.unlink(missing_ok=True)
    if entrant != "command":
        restored = restored.with_suffix(".npy")
        line = [sys.executable, __file__, "--peer", entrant, str(blurred), picture.psf, str(restored)]
    environ = os.environ | {f"{library}_NUM_THREADS": str(CORES) for library in ("OMP", "OPENBLAS", "MKL")}
    environ |= {"PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        streams: dict[str, Any] = {"stdout": out, "stderr": subprocess.STDOUT}
        child = subprocess.Popen(line, **streams, env=environ, preexec_fn=pinned)
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            if time.perf_counter() - start > LIMIT:
                child.kill()
            time.sleep(0.005)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        seconds = time.perf_counter() - start
        out.seek(0)
        text = out.read().decode()
    row: dict[str, Any] = {"picture": name, "contestant": entrant, "peak_bytes": ended[2].ru_maxrss * 1024}
    if child.returncode:
        return row | {"failed": text.strip()[-500:]}
    row |= {"seconds": seconds if entrant == "command" else float(text.splitlines()[-1])}
    row |= {"values": truth.size * picture.frames}
    return row | {"psnr_input": psnr(blurred, truth), "psnr": psnr(restored, truth)}


def psnr(path: Path, truth: np.ndarray) -> float:
    image = np.load(path) if path.suffix == ".npy" else deblur.image.read(path)
    return deblur.metrics.psnr(truth, np.clip(image[0] if image.ndim > truth.ndim else image, 0, 1))


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = [row | {"MB": row["peak_bytes"] / 1e6} for row in rows if "failed" not in row]
    for row in done:
        row["each"] = row["peak_bytes"] / row["values"] if row["values"] >= 1e6 else None
    gain, columns = {"PSNR": "{psnr_input:.2f} → {psnr:.2f}"}, {"picture": "{picture}"}
    taken = {"seconds": "{seconds:.2g}", "MB": "{MB:.0f}"}
    title = (
        "**Real pictures on two cores.** `deblur reconstruct IN -o OUT --psf ...` without other options, each in a "
        "process of its own: seconds from start to end, the peak of the process's memory in MB and in bytes a pixel "
        "and channel, and PSNR in dB."
    )
    second = (
        "scikit-image on the same files, as an array: `wiener` with its parameter 0.1, `richardson_lucy` with 30 "
        "iterations; they take the scene to be dark or repeated beyond the frame."
    )
    ours, theirs = taken | {"bytes": "{each:.0f}"}, {"function": "{contestant}"} | taken
    commands = [row for row in done if row["contestant"] == "command"]
    others = [row for row in done if row["contestant"] != "command"]
    return [table(title, columns | ours | gain, commands), table(second, columns | theirs | gain, others)]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", nargs="+", choices=PICTURES, metavar="NAME")
    arguments.add_argument("--peer", nargs=4, metavar=("NAME", "BLURRED", "PSF", "RESTORED"))
    options = arguments.parse_args()
    if options.peer:
        peer(*options.peer)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.pictures or PICTURES:
            blurred, truth = store(PICTURES[name], Path(folder))
            for entrant in ("command", *PICTURES[name].peers):
                rows.append(run(name, entrant, blurred, truth))
        write = options.pictures is None
    save("photographs", rows, tables(rows), write=write, cores=CORES, noise=NOISE)


if __name__ == "__main__":
    main()
