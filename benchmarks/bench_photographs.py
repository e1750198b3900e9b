"""Real pictures on two cores: seconds, peak memory and PSNR of the command and the calls, with peers in the same run.

Every contestant runs in a process of its own, pinned to two cores: the time is that of its call (of a command, of the
whole process), the memory the peak of the process. The scene goes on beyond the frame, and the picture is stored as a
camera stores it: in 8 bits as a JPEG or PNG, or a stack of 16 bits as a TIFF. What was predicted before the work began
stands beside what it took. Writes benchmarks/results/photographs.json.

    python benchmarks/bench_photographs.py                    all cells
    python benchmarks/bench_photographs.py --cells "1 MP" tv  only those whose names hold one of the words; the others
                                                              stay as they are stored, under the commits they are of
    python benchmarks/bench_photographs.py --predictions      only what was predicted beside what it took, in the
                                                              cells that are stored with half a minute at most: three
                                                              minutes
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common
import numpy as np

import deblur
from deblur.progress import listening

CORES = 2
NOISE = 0.01
SEED = 0
LIMIT = 600  # seconds for one cell
LONG = 30  # seconds of a cell that is not measured again to see what was predicted
#: The photographs that a large picture is laid out of, side by side, in colour, none of them black over a
#: tenth of its pixels.
PARTS = ("coffee", "astronaut", "cat", "immunohistochemistry")


@dataclass(frozen=True)
class Picture:
    """A photograph as it is stored: rows and columns, colour or not, frames of a stack, PSF, and the file's ending."""

    name: str
    shape: tuple[int, int]
    colour: bool = False
    frames: int = 0
    psf: str = "motion:15,30"
    ending: str = ".png"

    @property
    def values(self) -> int:
        """Pixels times channels and frames."""
        return self.shape[0] * self.shape[1] * (3 if self.colour else 1) * max(self.frames, 1)


PICTURES = {
    p.name: p
    for p in (
        Picture("64²", (64, 64)),
        Picture("256²", (256, 256)),
        Picture("512²", (512, 512)),
        Picture("0.24 MP colour", (400, 600), colour=True, ending=".jpg"),
        Picture("1 MP", (1024, 1024)),
        Picture("1 MP colour", (1024, 1024), colour=True, ending=".jpg"),
        Picture("12 MP", (3000, 4000)),
        Picture("12 MP colour", (3000, 4000), colour=True, ending=".jpg"),
        Picture("200 × 512²", (512, 512), frames=200, psf="gaussian:9,1.5", ending=".tif"),
    )
}


@dataclass(frozen=True)
class Cell:
    """One contestant on one picture.

    Attributes
    ----------
    picture : str
        A name in `PICTURES`.
    contestant : str
        "command" runs ``deblur reconstruct``, "call" runs `deblur.solve` on the array, anything else is in `PEERS`.
    options : dict
        Of the call; the command gets them as --NAME VALUE.
    """

    picture: str
    contestant: str = "command"
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        words = " ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.picture}, {self.contestant}{' ' if words else ''}{words}"


def _cell(picture: str, contestant: str = "command", **options: Any) -> Cell:
    return Cell(picture, contestant, tuple(options.items()))


SIZES = ("64²", "256²", "1 MP", "12 MP")
CELLS = [
    *(_cell(name) for name in PICTURES),
    _cell("12 MP colour", lam="gcv"),
    _cell("512²", "call"),
    *(_cell(name, "call") for name in SIZES),
    *(_cell(name, "call", lam=0.01) for name in SIZES),
    *(_cell(name, "call", lam="gcv") for name in SIZES[:3]),
    *(_cell(name, "call", method="tv") for name in SIZES),
    *(_cell(name, "call", method="tv", lam=0.002) for name in SIZES),
    *(_cell(name, "call", method="collaborative") for name in SIZES),
    *(_cell(name, "call", method="collaborative", lam=0.002) for name in SIZES),
    *(_cell(name, "call", method="richardson-lucy") for name in SIZES),
    *(_cell(name, "call", method="richardson-lucy", lam=0.001) for name in SIZES[:3]),
    _cell("1 MP colour", "call", method="richardson-lucy"),
    *(
        _cell(name, peer)
        for name in ("1 MP", "12 MP", "12 MP colour")
        for peer in ("skimage wiener", "skimage unsupervised_wiener", "skimage richardson_lucy")
        if not (name == "12 MP colour" and peer == "skimage richardson_lucy")
    ),
]

# ---------------------------------------------------------------------------------------------
# The pictures
# ---------------------------------------------------------------------------------------------


def scene(shape: tuple[int, int]) -> np.ndarray:
    """A picture of that size in colour, float32 in [0, 1]: photographs side by side, mirrored where they end."""
    from skimage import data

    parts = [np.asarray(getattr(data, name)())[..., :3] for name in PARTS]
    side = min(1000, *shape)
    out = np.zeros((*shape, 3), np.float32)
    for i in range(0, shape[0], side):
        for j in range(0, shape[1], side):
            part = parts[(i // side * 4 + j // side) % len(parts)]
            room = out[i : i + side, j : j + side]
            more = [(0, max(n - have, 0)) for n, have in zip(room.shape[:2], part.shape[:2])]
            room[:] = np.pad(part, [*more, (0, 0)], mode="symmetric")[: room.shape[0], : room.shape[1]] / 255
    return out


def store(picture: Picture, folder: Path) -> tuple[Path, Path]:
    """The blurred and noisy picture as a file, and the truth inside its frame (a .npy) beside it."""
    h = deblur.psf.parse(picture.psf)
    h = h / h.sum()
    blurred, truth = folder / f"blurred{picture.ending}", folder / "truth.npy"
    shape = (picture.shape[0] + h.shape[0] - 1, picture.shape[1] + h.shape[1] - 1)
    sharp = scene(shape)
    if not picture.colour:
        sharp = sharp.mean(axis=-1, keepdims=True)
    blur = deblur.Blur(h, picture.shape, "unknown")
    rng = np.random.default_rng(SEED)
    g = np.stack([blur.forward(sharp[..., i]) for i in range(sharp.shape[-1])], axis=-1)
    inside = sharp[(*blur.crop, slice(None) if picture.colour else 0)]
    g = g if picture.colour else g[..., 0]
    if picture.frames:
        import tifffile

        noisy = (g + NOISE * rng.standard_normal(g.shape, np.float32) for _ in range(picture.frames))
        frames = np.stack([np.clip(np.rint(65535 * n), 0, 65535).astype(np.uint16) for n in noisy])
        tifffile.imwrite(blurred, frames)
    else:
        g = g + NOISE * rng.standard_normal(g.shape, np.float32)
        from PIL import Image

        Image.fromarray(np.clip(np.rint(255 * g), 0, 255).astype(np.uint8)).save(blurred, quality=95)
    np.save(truth, inside)
    return blurred, truth


# ---------------------------------------------------------------------------------------------
# The contestants, each in its own process
# ---------------------------------------------------------------------------------------------


def _colours(restore: Callable[[np.ndarray], np.ndarray], g: np.ndarray) -> np.ndarray:
    """A function of grey pictures applied to each colour."""
    return restore(g) if g.ndim == 2 else np.stack([restore(g[..., i]) for i in range(g.shape[-1])], axis=-1)


def _wiener(g: np.ndarray, h: np.ndarray) -> np.ndarray:
    from skimage import restoration

    return _colours(lambda x: restoration.wiener(x, h, 0.1, clip=False), g)


def _unsupervised(g: np.ndarray, h: np.ndarray) -> np.ndarray:
    from skimage import restoration

    return _colours(lambda x: restoration.unsupervised_wiener(x, h, clip=False, rng=SEED)[0], g)


def _lucy(g: np.ndarray, h: np.ndarray) -> np.ndarray:
    from skimage import restoration

    return _colours(lambda x: restoration.richardson_lucy(x, h, 30), g)


PEERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "skimage wiener": _wiener,
    "skimage unsupervised_wiener": _unsupervised,
    "skimage richardson_lucy": _lucy,
}


def serve(cell: Cell, blurred: Path, restored: Path) -> None:
    """Run one call in this process, and print what it says as JSON; the image goes into `restored`."""
    picture = PICTURES[cell.picture]
    raw = deblur.image.read(blurred, as_float=False)
    h = deblur.psf.parse(picture.psf)
    said: dict[str, Any] = {}
    if cell.contestant == "call":
        options = {"boundary": "unknown", **dict(cell.options)}
        axes = {"channel_axis": -1 if picture.colour else None, "stack_axis": 0 if picture.frames else None}
        told: list[float] = []
        with listening(lambda progress: told.append(progress.left or 0.0)):
            start = time.perf_counter()
            result = deblur.solve(raw, h, **axes, **options)
            said["seconds"] = time.perf_counter() - start
        said["foretold"] = told[0]  # by the progress line, as the work began
        said |= {"method": result.method, "lam": result.lam, "iterations": result.iterations}
        said["predicted"] = result.predicted_seconds
        image = result.image
    else:
        g = deblur.image.as_float(raw).astype(np.float32)
        start = time.perf_counter()
        image = PEERS[cell.contestant](g, h)
        said["seconds"] = time.perf_counter() - start
    np.save(restored, image)
    print(json.dumps(said))


def pinned() -> None:
    """Keep to two cores, whatever the machine has."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def run(cell: Cell, blurred: Path, truth: Path, folder: Path) -> dict[str, Any]:
    """One cell: seconds, peak bytes, PSNR and what was predicted."""
    picture = PICTURES[cell.picture]
    restored = folder / (f"restored{picture.ending}" if cell.contestant == "command" else "restored.npy")
    restored.unlink(missing_ok=True)
    if cell.contestant == "command":
        options = [word for key, value in cell.options for word in (f"--{key}", str(value))]
        line = [sys.executable, "-m", "deblur", "reconstruct", str(blurred), "-o", str(restored)]
        line += ["--psf", picture.psf, *options]
    else:
        line = [sys.executable, __file__, "--serve", cell.name, str(blurred), str(restored)]
    threads = {name: str(CORES) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            line,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=kept
            | threads
            | {"PYTHONPATH": str(_common.ROOT)},  # compiled once, as an installed package is
            preexec_fn=pinned,
        )
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            if time.perf_counter() - start > LIMIT:
                child.kill()
            time.sleep(0.005)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        whole = time.perf_counter() - start
        out.seek(0)
        text = out.read().decode()
    row: dict[str, Any] = {"cell": cell.name, "picture": cell.picture, "contestant": cell.contestant}
    row |= {"options": dict(cell.options), "process_seconds": whole, "values": picture.values}
    row["peak_bytes"] = ended[2].ru_maxrss * 1024
    if child.returncode:
        return row | {"failed": f"killed after {LIMIT} s" if child.returncode < 0 else text.strip()[-500:]}
    if cell.contestant == "command":
        row |= {"seconds": whole, "said": text} | _predicted(text)
    else:
        row |= json.loads(text.splitlines()[-1])
    return row | {"psnr": _psnr(restored, truth, picture)}


def _predicted(text: str) -> dict[str, float]:
    """What the command says of its call: "seconds  0.5 (predicted 0.6, of which set-up ...)"."""
    found = re.search(r"^seconds +(\S+) \(predicted (\S+),", text, re.MULTILINE)
    return {} if found is None else {"call_seconds": float(found[1]), "predicted": float(found[2])}


def _psnr(restored: Path, truth: Path, picture: Picture) -> float:
    image = np.load(restored) if restored.suffix == ".npy" else deblur.image.read(restored)
    sharp = np.load(truth)
    if picture.frames:
        image = image[0]
    return deblur.metrics.psnr(sharp, np.clip(image, 0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells",
        nargs="+",
        metavar="WORDS",
        help="only cells of these names, or whose names hold one of these",
    )
    parser.add_argument(
        "--predictions", action="store_true", help="only the cells in which seconds are predicted"
    )
    parser.add_argument(
        "--join", nargs="+", type=Path, metavar="RECORD", help="only put records of some cells together"
    )
    parser.add_argument("--serve", nargs=3, metavar=("CELL", "BLURRED", "RESTORED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        name, blurred, restored = arguments.serve
        serve(next(c for c in CELLS if c.name == name), Path(blurred), Path(restored))
        return
    if arguments.join:
        records = [json.loads(path.read_text()) for path in arguments.join]
        rows = {row["cell"]: row for record in records for row in record["results"]}
        path = _save(
            rows, {k: v for record in records for k, v in record["settings"].get("kept", {}).items()}
        )
        path.write_text(
            json.dumps(records[0] | {"results": json.loads(path.read_text())["results"]}, indent=1) + "\n"
        )
        return
    names, words = {cell.name for cell in CELLS}, arguments.cells or [""]
    asked = [c for c in CELLS if any(w == c.name if w in names else w in c.name for w in words)]
    stored = _common.RESULTS / "photographs.json"
    rows, kept = {}, {}
    if (arguments.cells or arguments.predictions) and stored.exists():
        measured, kept = _common.measured_before("photographs", [cell.name for cell in CELLS])
        rows = {row["cell"]: row for row in measured}
    if arguments.predictions:
        short = {name for name, row in rows.items() if row["process_seconds"] <= LONG}
        asked = [c for c in asked if c.contestant in ("command", "call") and c.name in short]
    shown = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for picture in PICTURES.values():
            cells = [c for c in asked if c.picture == picture.name]
            if not cells:
                continue
            blurred, truth = store(picture, folder)
            before = _psnr(blurred, truth, picture)
            for cell in cells:
                row = run(cell, blurred, truth, folder)
                row |= {"psnr_input": before, "file_bytes": blurred.stat().st_size}
                rows[cell.name] = row
                kept.pop(cell.name, None)
                if "failed" in row:
                    print(f"{cell.name} failed: {row['failed']}")
                shown.append(
                    {k: _short(row.get(k)) for k in ("cell", "seconds", "predicted", "peak_bytes", "psnr")}
                )
                print(shown[-1], flush=True)
                _save(rows, kept)  # a long run that is stopped has not been in vain
    print()
    _common.print_table(shown)


def _save(rows: dict[str, Any], kept: dict[str, str]) -> Path:
    """The rows that there are; `kept` names the commit of each that is of another one than the record."""
    there = [rows[cell.name] for cell in CELLS if cell.name in rows]
    kept = {name: commit for name, commit in kept.items() if name in rows}
    return _common.save("photographs", there, cores=CORES, noise=NOISE, kept=kept)


def _short(value: Any) -> Any:
    return "–" if value is None else value


if __name__ == "__main__":
    main()
