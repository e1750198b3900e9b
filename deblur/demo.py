"""The command ``deblur demo``: a photograph blurred, and restored by every method."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from . import image, metrics
from .data import info
from .errors import ConvergenceError, MethodError
from .methods import METHODS
from .operators.boundary import BOUNDARIES
from .pipeline import solve
from .terminal import iterations, progress


def demo(args: argparse.Namespace) -> int:
    """Blur a photograph, restore it by every method, print the table.

    The photograph comes with deblur. The table shows seconds, MSE, PSNR and residual; the images are written. It takes
    half a minute.

    Parameters
    ----------
    --image : sample = camera64
        The photograph.
    --size : count, optional
        Side of the crop in pixels; by default 64, or as much as there is.
    --psf : psf = gaussian:7,1.2
        What one point becomes by the blur.
    --lam : lam = gcv
        How much is smoothed.
    --noise : number = 0.005
        Standard deviation of the noise; 1 is white.
    --seed : seed = 0
        Seed of the noise.
    --output : folder = demo_output
        Folder for the images.
    --force : flag
        Replace images that are there.
    """
    folder, (source, h) = Path(args.output), args.psf
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the pictures with --output")
    folder.mkdir(parents=True, exist_ok=True)
    figure, blurred_file, restored_file = (
        image.check_writable(folder / f"{name}.png", args.force, inputs=[source])
        for name in ("demo", "blurred", "restored")
    )
    room = min(n - m + 1 for n, m in zip(info(args.image).shape, h.shape, strict=False))
    size = min(64, room) if args.size is None and room > 0 else args.size
    from .compare.adapters.own import OWN_BOUNDARY
    from .compare.cases import make_cases

    made = make_cases(args.image, h, args.noise, list(BOUNDARIES), size=size, seed=args.seed)
    blurred_by = {case.boundary: case.blurred for case in made}
    sharp = made[0].truth
    assert sharp is not None
    print(
        f"{args.image}, {size} x {size} pixels, PSF {h.shape[0]} x {h.shape[1]}, "
        f"noise {args.noise:g}, λ {args.lam}"
    )
    header = "method           boundary       seconds     lambda        MSE  PSNR dB   residual"
    print(header)
    print("-" * len(header))
    # The linear methods under the boundary that suits each; then the photograph as it is, restored by the default
    # method, and by those beyond the linear formula.
    linear = [(m.name, OWN_BOUNDARY.get(m.name, "zero")) for m in METHODS.values() if m.linear]
    cases = [*linear, ("auto", "unknown"), *((m.name, "unknown") for m in METHODS.values() if not m.linear)]
    shown: dict[str, np.ndarray] = {}
    lam_by: dict[str, float] = {}
    reported: set[str] = set()
    failures = 0
    for at, (name, boundary) in enumerate(cases):
        blurred = blurred_by[boundary]
        if boundary not in reported:
            reported.add(boundary)
            print(f"{'blurred':<17}{boundary:<33}{_quality(sharp, blurred)}", flush=True)
        # One λ for all linear methods of a boundary, which solve the same problem.
        lam = lam_by.get(boundary, args.lam) if at <= len(linear) else "auto"
        try:
            with progress(name, True) as show:
                result = solve(blurred, h, lam, method=name, boundary=boundary, callback=iterations(show))
        except MethodError as error:
            print(f"{name:<17}{boundary:<13}not for this PSF: {str(error).partition(': ')[2]}")
            continue
        except ConvergenceError as error:
            print(f"{name:<17}{boundary:<13}failed: {error}")
            failures += 1
            continue
        lam_by.setdefault(boundary, result.lam)
        label = f"auto: {result.method}" if name == "auto" else name
        print(
            f"{label:<17}{boundary:<13}{result.seconds:9.3f}{result.lam:11.2e}{_quality(sharp, result.image)}"
            f"{result.residual:11.1e}",
            flush=True,
        )
        shown[f"{label}\n{boundary}"] = result.image
        if name == "auto":
            image.write(blurred_file, blurred, overwrite=args.force)
            image.write(restored_file, result.image, overwrite=args.force)
    if shown:
        image.write_whole(figure, _figure(sharp, blurred_by["unknown"], shown), args.force)
        print(f"\nwritten: {figure}, {blurred_file}, {restored_file}")
    print("residual: of the linear system, measured with the blur itself; below auto, of the iteration.")
    print(
        "The linear methods of one boundary share the λ of the first one; those below auto choose their own."
    )
    return 1 if failures else 0


def _quality(sharp: np.ndarray, picture: np.ndarray) -> str:
    return f"{metrics.mse(sharp, picture):11.2e}{metrics.psnr(sharp, picture):9.2f}"


def _figure(sharp: np.ndarray, blurred: np.ndarray, shown: dict[str, np.ndarray]) -> bytes:
    """A PNG of all images with their PSNR."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {"sharp": sharp, "blurred\nunknown": blurred} | shown
    columns = 5
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, (title, picture) in zip(axes, panels.items(), strict=False):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        note = "" if picture is sharp else f"  {metrics.psnr(sharp, picture):.1f} dB"
        ax.set_title(title + note, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, dpi=120, format="png")
    return content.getvalue()
