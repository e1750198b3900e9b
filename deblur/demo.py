"""The command ``deblur demo``: a photograph blurred, and restored by every method."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import image, metrics
from .data import load, names
from .degrade import degrade
from .errors import ConvergenceError, MethodError
from .methods import METHODS
from .pipeline import solve
from .terminal import progress


def add_parser(commands: Any, read_psf: Callable[[str], Any], read_lam: Callable[[str], float | str]) -> None:
    """Add ``demo`` to the subcommands of an argument parser; `read_psf` gives (text, value), `read_lam` λ."""
    parser = commands.add_parser(
        "demo",
        help="blur a photograph, restore it by every method, print the table",
        description="Blur a photograph that comes with deblur, restore it by every method, print a table of "
        "seconds, MSE, PSNR and residual, and write the pictures. Half a minute.",
    )
    parser.add_argument(
        "--image", default="camera64", choices=names(), help="which photograph; default camera64"
    )
    parser.add_argument(
        "--size", type=int, metavar="N", help="side of the crop in pixels; default 64, or as much as there is"
    )
    parser.add_argument("--psf", type=read_psf, default="gaussian:7,1.2", help="default gaussian:7,1.2")
    parser.add_argument("--lam", type=read_lam, default="gcv", help="default gcv")
    parser.add_argument("--noise", type=float, default=0.005, help="standard deviation; default 0.005")
    parser.add_argument("--seed", type=int, default=0, help="of the noise; default 0")
    parser.add_argument("--output", default="demo_output", metavar="DIR", help="folder for the pictures")
    parser.add_argument("--force", action="store_true", help="replace pictures that are there")
    parser.set_defaults(run=demo)


#: The boundary under which a method that serves only one is shown.
_OWN_BOUNDARY = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}


def demo(args: argparse.Namespace) -> int:
    folder, h = Path(args.output), args.psf.value
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the pictures with --output")
    folder.mkdir(parents=True, exist_ok=True)
    figure, *written = (
        image.check_writable(folder / f"{name}.png", args.force, inputs=[args.psf.text])
        for name in ("demo", "blurred", "restored")
    )
    pictures = dict(zip(("blurred", "restored"), written, strict=True))
    photograph = load(args.image)
    margin = np.array(h.shape) - 1
    most = int((np.array(photograph.shape[:2]) - margin).min())
    size = min(64, most) if args.size is None else args.size
    if not max(h.shape) <= size <= most:
        raise ValueError(
            f"--size must lie between {max(h.shape)}, the PSF's size, and {most} for {args.image!r}, not {size}"
        )

    # The same window of the photograph under every boundary. What lies beyond it is real in the case
    # "unknown"; for the others the scene is made to go on as the boundary assumes.
    top, left = ((np.array(photograph.shape[:2]) - size - margin) // 2).tolist()
    scene = photograph[top : top + size + margin[0], left : left + size + margin[1]]
    origin = [(m - 1) // 2 for m in h.shape]
    at = [int(m) - o for m, o in zip(margin, origin, strict=True)]
    sharp = scene[at[0] : at[0] + size, at[1] : at[1] + size]
    print(
        f"{args.image}, {size} x {size} pixels, PSF {h.shape[0]} x {h.shape[1]}, "
        f"noise {args.noise:g}, λ {args.lam}"
    )

    header = (
        f"{'method':<17}{'boundary':<13}{'seconds':>9}{'lambda':>11}{'MSE':>11}{'PSNR dB':>9}{'residual':>11}"
    )
    print(header)
    print("-" * len(header))
    # The linear methods under the boundary that each knows best; then the photograph as it is, restored by the one
    # that a call takes by itself, and by those beyond the linear formula.
    linear = [(m.name, _OWN_BOUNDARY.get(m.name, "zero")) for m in METHODS.values() if m.linear]
    cases = [*linear, ("auto", "unknown"), *((m.name, "unknown") for m in METHODS.values() if not m.linear)]
    shown: dict[str, Any] = {}
    blurred_by: dict[str, np.ndarray] = {}
    lam_by: dict[str, float] = {}
    failures = 0
    for name, boundary in cases:
        if boundary not in blurred_by:
            source = scene if boundary == "unknown" else sharp
            blurred = degrade(source, h, noise=args.noise, boundary=boundary, seed=args.seed)
            blurred_by[boundary] = blurred
            _row("blurred", boundary, None, None, sharp, blurred, None)
        blurred = blurred_by[boundary]
        try:
            with progress(name, True) as line:
                # One λ for all linear methods of one boundary: they solve the same problem. The others mean another.
                lam = (
                    lam_by.get(boundary, args.lam) if (name, boundary) in cases[: len(linear) + 1] else "auto"
                )
                result = solve(blurred, h, lam, method=name, boundary=boundary, callback=line.iterated)
        except MethodError as error:
            print(f"{name:<17}{boundary:<13}not for this PSF: {str(error).partition(': ')[2]}")
            continue
        except ConvergenceError as error:
            print(f"{name:<17}{boundary:<13}failed: {error}")
            failures += 1
            continue
        lam_by.setdefault(boundary, result.lam)
        label = f"auto: {result.method}" if name == "auto" else name
        _row(label, boundary, result.seconds, result.lam, sharp, result.image, result.residual)
        shown[f"{label}\n{boundary}"] = result.image
        if name == "auto":
            image.write(pictures["blurred"], blurred, overwrite=args.force)
            image.write(pictures["restored"], result.image, overwrite=args.force)
    if shown:
        _demo_figure(figure, args.force, sharp, blurred_by["unknown"], shown)
        print(f"\nwritten: {figure}, {pictures['blurred']}, {pictures['restored']}")
    print(
        "residual: of the linear system, measured with the blur itself; below auto, of the iteration.\n"
        "The linear methods of one boundary share the λ that the first one found; those below auto choose their own."
    )
    return 1 if failures else 0


def _row(
    name: str,
    boundary: str,
    seconds: float | None,
    lam: float | None,
    sharp: np.ndarray,
    picture: np.ndarray,
    residual: float | None,
) -> None:
    cells = [
        f"{seconds:9.3f}" if seconds is not None else " " * 9,
        f"{lam:11.2e}" if lam is not None else " " * 11,
        f"{metrics.mse(sharp, picture):11.2e}{metrics.psnr(sharp, picture):9.2f}",
        f"{residual:11.1e}" if residual is not None else "",
    ]
    print(f"{name:<17}{boundary:<13}" + "".join(cells), flush=True)


def _demo_figure(
    path: Path, overwrite: bool, sharp: np.ndarray, blurred: np.ndarray, shown: dict[str, np.ndarray]
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {"sharp": sharp, "blurred\nunknown": blurred} | shown
    columns = 5
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, (title, picture) in zip(axes, panels.items(), strict=False):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        note = "" if picture is sharp else f"  {metrics.psnr(sharp, picture):.1f} dB"
        ax.set_title(title + note, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, dpi=120, format="png")
    image.write_whole(path, content.getvalue(), overwrite)
