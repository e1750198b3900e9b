"""``deblur plan``, and ``deblur reconstruct`` from one store to another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import image, terminal
from ..arguments import axes_chooser
from ..errors import ConvergenceError
from ..options import Options, defaults
from .options import TOLERANCE, PlanOptions
from .plan import plan_tiles


def wants(args: argparse.Namespace, psf: Any) -> bool:
    """Return whether a call of ``deblur reconstruct`` uses tiles; raise ValueError for an option without effect."""
    store, volume = Path(args.output).suffix == ".zarr", np.ndim(psf) == 3
    of_tiles = ("tile", "tolerance", "workers", "memory", "scheduler", "gpus", "no_check")
    tiled = store and (not volume or any(getattr(args, name) for name in of_tiles))
    if store and args.psf_grid:
        raise ValueError("--psf-grid does not work with tiles: restore the image whole")
    if store and args.blind:
        raise ValueError(
            "--blind does not work with tiles: estimate the PSF first (deblur psf blurred IN --size N -o psf.npy), "
            "and pass it with --psf"
        )
    idle = dict.fromkeys(("bits", "clip", "rescale") if store else (), "a zarr store holds every number")
    idle |= {} if store else dict.fromkeys(of_tiles, "OUT is no .zarr")
    idle |= {} if volume else {"views": "the PSF is in 2-D, and views are of volumes"}
    idle |= {"views": "a volume in tiles is never in memory as a whole"} if volume and tiled else {}
    for name, why in idle.items():
        if getattr(args, name):
            raise ValueError(f"--{name.replace('_', '-')} does nothing here: {why}; leave it out")
    return tiled


def reconstruct(
    args: argparse.Namespace, fitted: Callable[[image.Metadata], tuple[np.ndarray, list[str]]], options: Options
) -> int:
    """Restore a store with the PSF that `fitted` adapts to its metadata, report it, and return the exit code.

    Parameters
    ----------
    --tile : size, optional
        Pixels of a tile, of a volume such as 64x256x256; by default as many as --memory allows and save work.
    --tolerance : share, optional
        Largest error at a seam, as a share of the range; by default 1e-3.
    --workers : count, optional
        Processes of one thread; by default 1.
    --memory : bytes, optional
        Memory of all workers together, such as 8GB.
    --scheduler : text, optional
        Address of a Dask scheduler, such as tcp://host:8786.
    --gpus : count, optional
        Processes of two threads, each with a GPU.
    --no-check : flag
        Do not measure seams and residual afterwards.
    """
    from .clusters import cluster
    from .stores import Source
    from .streams import stream

    image.check_output(args.output, [args.input, args.psf[0]])
    kernel, choose = args.psf[1], axes_chooser(args, args.psf[1])
    source = Source(args.input, dtype=options.get("dtype"), choose=choose, psf_axes=kernel.ndim)
    kernel, resampled = fitted(replace(source.metadata, orientation=1))  # pixels stay in the sensor's orientation
    workers = args.gpus or args.workers or 1
    gpus, several = bool(args.gpus), workers > 1 or args.gpus or args.scheduler
    clients = cluster(workers, gpus=gpus, scheduler=args.scheduler) if several else nullcontext(None)
    with clients as client, terminal.progress("deblur", not args.quiet) as show:
        given: dict[str, Any] = {**options, "workers": client, "memory": args.memory and args.memory // workers}
        given |= {"tolerance": args.tolerance or TOLERANCE, "device": "gpu" if gpus else "cpu"}
        given |= {"tile": args.tile, "check": not args.no_check, "overwrite": args.force, "progress": show}
        report = stream(source, args.output, kernel, args.lam, **given)
    if not args.quiet:
        terminal.report("\n".join([*resampled, str(report)]))
    if report.unfinished:
        raise ConvergenceError(
            f"after {report.plan.passes} passes about {report.left:.1e} of the range is left to be changed in "
            f"{args.output}, more than the tolerance {report.plan.tolerance:.1e}; give a larger λ, a larger tolerance "
            "or more memory"
        )
    if not report.ok:
        print(*(f"deblur: {failure}" for failure in report.failed), sep="\n", file=sys.stderr)
        tiles = report.written + report.kept + len(report.failed)
        raise ConvergenceError(
            f"{len(report.failed)} of {tiles} tiles could not be restored and are NaN in {args.output}; "
            "all others are written, and the same command tries those again"
        )
    return 0


def plan(args: argparse.Namespace) -> int:
    """Show how a large image would be cut into tiles, and the seam to expect.

    PSF and λ determine how large tiles and their overlap must be so that no seam exceeds a tolerance, what memory that
    takes, or why the image should be solved whole.

    Parameters
    ----------
    --shape : size
        Size of the image.
    --psf : psf
        The PSF: the blurred image of a single point.
    --lam : number
        Regularisation parameter λ, a number.
    --tolerance : share = 1e-3
        Largest error at a seam, as a share of the range.
    --boundary : boundary|auto
    --method : method
    --prior : {auto, zero, smooth, natural}
    --dtype : {float32, float64}
    --memory : bytes, optional
        Memory of one worker, such as 8GB.
    --chunk : size, optional
        Tiles are multiples of this.
    --safe : flag
        Use the bound that no image can exceed.
    """
    options: Any = {name: getattr(args, name) for name in defaults(PlanOptions) if name in args}
    terminal.report(str(plan_tiles(args.psf[1], args.lam, args.shape, **options)))
    return 0
