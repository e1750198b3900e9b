"""``deblur plan``, and ``deblur reconstruct`` from one store to another."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from .. import terminal
from ..errors import ConvergenceError
from ..operators.boundary import BOUNDARIES
from ..options import Options
from ..terminal import rows_by_columns
from .options import TOLERANCE
from .plan import plan_tiles

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
#: Options of an image file that a store has no use for, and their names in the parser.
_IDLE = {"bits": "--bits", "clip": "--clip", "rescale": "--rescale"}


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)\s*([kmgt]?i?)b?", text.strip().lower())
    try:
        value = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    except (ValueError, KeyError):
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"a size such as 8GB or 512MiB is needed, not {text!r}")
    return value


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"a part of the range between 0 and 1 is needed, not {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``deblur reconstruct`` that belong to stores."""
    group = parser.add_argument_group(
        "stores",
        "when OUT is a .zarr: IN is a zarr array, OME-Zarr or an uncompressed TIFF, restored tile by tile",
    )
    group.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="T",
        help=f"largest error at a seam, of the range; default {TOLERANCE:g}",
    )
    group.add_argument("--workers", type=int, metavar="N", help="processes of one thread; default 1")
    group.add_argument(
        "--memory", type=_bytes, metavar="B", help="such as 8GB: what all workers together may take"
    )
    group.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask scheduler, such as tcp://host:8786")
    group.add_argument("--gpus", type=int, metavar="N", help="processes of two threads, each with a GPU")
    group.add_argument("--no-check", action="store_true", help="measure no seams and no residual afterwards")


def wants(args: argparse.Namespace) -> bool:
    """Whether a call of ``deblur reconstruct`` is about stores; an option of theirs without one is an error."""
    if str(args.output).rstrip("/").endswith(".zarr"):
        return True
    if str(args.input).rstrip("/").endswith(".zarr"):
        raise ValueError(f"a zarr store is restored to another: OUT must end in .zarr, not be {args.output}")
    for name in ("tolerance", "workers", "memory", "scheduler", "gpus"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} does nothing here: OUT is no .zarr; leave it out")
    if args.no_check:
        raise ValueError("--no-check does nothing here: OUT is no .zarr; leave it out")
    return False


def reconstruct(args: argparse.Namespace, psf: Any, options: Options) -> int:
    """Restore a store; returns the exit code."""
    from .clusters import cluster
    from .streams import stream

    for name, flag in _IDLE.items():
        if getattr(args, name):
            raise ValueError(f"{flag} does nothing here: a zarr store holds every number; leave it out")
    given: dict[str, Any] = dict(options)
    for name in ("mask", "callback"):
        if given.get(name) is None:
            given.pop(name, None)
    workers = args.gpus or args.workers or 1
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, not {workers}")
    several = workers > 1 or args.gpus or args.scheduler
    clients = (
        cluster(workers, gpus=bool(args.gpus), scheduler=args.scheduler) if several else nullcontext(None)
    )
    with clients as client, _progress(not args.quiet) as progress:
        report = stream(
            args.input,
            args.output,
            psf,
            args.lam,
            tolerance=args.tolerance or TOLERANCE,
            memory=args.memory // workers if args.memory else None,
            workers=client,
            device="gpu" if args.gpus else "cpu",
            check=not args.no_check,
            overwrite=args.force,
            progress=progress,
            **given,
        )
    if not args.quiet:
        terminal.report(str(report))
    if report.unfinished:
        raise ConvergenceError(
            f"after {report.plan.passes} passes about {report.left:.1e} of the range is left to be changed in "
            f"{args.output}, more than the tolerance {report.plan.tolerance:.1e}; give a larger λ, a larger tolerance "
            "or more memory",
            None,
        )
    if not report.ok:
        for failure in report.failed:
            print(f"deblur: {failure}", file=sys.stderr)
        tiles = report.written + report.kept + len(report.failed)
        raise ConvergenceError(
            f"{len(report.failed)} of {tiles} tiles could not be restored and are NaN in {args.output}; "
            "all others are written, and the same command tries those again",
            None,
        )
    return 0


@contextmanager
def _progress(enabled: bool) -> Iterator[Callable[[int, int], None] | None]:
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc="deblur", unit=" tiles", leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def add_parser(commands: Any, psf: Callable[[str], Any]) -> None:
    """``deblur plan``."""
    plan = commands.add_parser(
        "plan",
        help="say how a large picture would be cut into tiles, and the seam to expect",
        description="Say from PSF and λ alone how large tiles and their overlap must be so that no seam exceeds a "
        "tolerance, what memory that takes, or why the picture should be solved whole.",
    )
    plan.add_argument(
        "--shape", required=True, type=rows_by_columns, metavar="ROWSxCOLUMNS", help="size of the picture"
    )
    plan.add_argument("--psf", type=psf, required=True)
    plan.add_argument("--lam", type=float, required=True, help="λ, a number")
    plan.add_argument(
        "--tolerance", type=_tolerance, default=TOLERANCE, help=f"default {TOLERANCE:g} of the range"
    )
    plan.add_argument("--boundary", default="unknown", choices=BOUNDARIES, help="default unknown")
    plan.add_argument("--method", default="auto", metavar="M")
    plan.add_argument(
        "--prior", default="smooth", choices=("smooth", "zero", "natural"), help="default smooth"
    )
    plan.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="default float32")
    plan.add_argument("--memory", type=_bytes, metavar="B", help="of one worker, such as 8GB")
    plan.add_argument(
        "--chunk", type=rows_by_columns, metavar="ROWSxCOLUMNS", help="tiles are multiples of this"
    )
    plan.add_argument("--safe", action="store_true", help="by the bound, which no picture can exceed")
    plan.set_defaults(run=_plan)


def _plan(args: argparse.Namespace) -> int:
    plan = plan_tiles(
        args.psf.value,
        args.lam,
        args.shape,
        tolerance=args.tolerance,
        boundary=args.boundary,
        method=args.method,
        prior=args.prior,
        dtype=args.dtype,
        memory=args.memory,
        chunk=args.chunk,
        safe=args.safe,
    )
    terminal.report(str(plan))
    return 0
