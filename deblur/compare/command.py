"""The command ``deblur compare``: the arguments, the progress bar, the files."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import data, image, psf
from ..degrade import NOISES
from ..operators.boundary import BOUNDARIES
from ..tuning import RULES
from .adapters import entrants
from .running import Comparison, Progress, run
from .tables import terminal_table

#: What the folder gets beside the rows: file, and the method of Comparison that writes it.
_FILES = (
    ("compare.html", "to_html"),
    ("compare.json", "to_json"),
    ("compare.csv", "to_csv"),
    ("compare.md", "to_markdown"),
)


def add_arguments(parser: argparse.ArgumentParser, read_lam: Callable[[str], float | str]) -> None:
    """Add those of ``deblur compare``; `read_lam` is its reader of λ."""
    parser.description = (
        "Blur pictures, restore them by every method, measure each one alike, and write the tables and one HTML page "
        "with pictures. Every combination of images, PSFs, noises and boundaries is a case."
    )
    parser.epilog = (
        "PSF forms: "
        + "; ".join(psf.FORMS)
        + ". Press Ctrl-C to end early: what is done is kept and written, and "
        "--resume goes on from there."
    )
    parser.add_argument(
        "--image",
        nargs="+",
        metavar="IMAGE",
        help=f"sharp pictures to be blurred: files, or samples ({', '.join(data.names())}); default camera, the "
        "middle 256 x 256 pixels",
    )
    parser.add_argument(
        "--blurred",
        action="store_true",
        help="the pictures came blurred: no truth, nothing is blurred or added",
    )
    parser.add_argument(
        "--size", type=int, metavar="N", help="side of a square part from the middle, in pixels; default all"
    )
    parser.add_argument(
        "--psf", nargs="+", default=["gaussian:9,1.5"], metavar="PSF", help="default gaussian:9,1.5"
    )
    noises = "; ".join(f"{name}:LEVEL, {what}" for name, what in NOISES.items())
    parser.add_argument(
        "--noise", nargs="+", default=["gaussian:0.01"], metavar="NOISE", help=f"{noises}; none; default gaussian:0.01"
    )  # fmt: skip
    parser.add_argument(
        "--boundary",
        nargs="+",
        default=["unknown"],
        choices=BOUNDARIES,
        metavar="B",
        help=f"how the scene goes on beyond the frame: {', '.join(BOUNDARIES)}; default unknown",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the noise; default 0")
    parser.add_argument(
        "--method", nargs="+", metavar="M", help=f"which methods; default all: {', '.join(entrants())}"
    )
    parser.add_argument(
        "--lam",
        type=read_lam,
        default="gcv",
        metavar="L",
        help=f"regularisation parameter λ: a number, or a rule ({', '.join(RULES)}); default gcv",
    )
    parser.add_argument(
        "--other-boundary",
        choices=("own", "refuse"),
        default="own",
        help="a method that cannot assume the boundary is run with its own, and its row says so (own, the default), "
        "or is shown as refused",
    )
    parser.add_argument(
        "--oracle", action="store_true", help="add rows with the best parameter in hindsight, marked oracle"
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=20.0,
        metavar="S",
        help="time limit in seconds for one restoration; choosing its parameter may take twice as long; default 20",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="timed runs after a warm-up; default 3"
    )
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory (one run less)")
    parser.add_argument(
        "--output",
        default="compare_output",
        metavar="DIR",
        help="folder for all files; default compare_output",
    )
    parser.add_argument("--resume", action="store_true", help="go on with what the folder holds")
    parser.add_argument(
        "--force", action="store_true", help="begin afresh in a folder that holds a comparison"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.set_defaults(run=command)


def command(args: argparse.Namespace) -> int:
    """Run ``deblur compare``; returns the exit code: 0, or 130 if it was interrupted."""
    folder = Path(args.output)
    if folder.is_dir():
        inputs = [path for path in [*args.psf, *(args.image or [])] if Path(path).is_file()]
        # A folder that holds a comparison is refused by `run`, which says what to do about it.
        ours = args.force or args.resume or (folder / "rows.jsonl").exists()
        for name, _ in _FILES:
            image.check_writable(folder / name, overwrite=ours, inputs=inputs)
    with _bar(not args.quiet) as progress:
        found = run(
            args.image,
            args.psf,
            args.noise,
            args.boundary,
            args.method,
            size=args.size,
            seed=args.seed,
            blurred=args.blurred,
            lam=args.lam,
            other_boundary=args.other_boundary,
            oracle=args.oracle,
            time_limit=args.time_limit,
            repeats=args.repeats,
            memory=not args.no_memory,
            folder=folder,
            resume=args.resume,
            overwrite=args.force,
            progress=progress,
        )
    write(found, folder)
    if not args.quiet:
        print(terminal_table(found, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
        print(f"\nwritten: {', '.join(str(folder / name) for name, _ in _FILES)}")
    if not found.complete:
        print("deblur: interrupted; go on with the same command and --resume", file=sys.stderr)
        return 130
    return 0


def write(found: Comparison, folder: Path) -> None:
    """The page and the tables of a comparison, into its folder."""
    for name, method in _FILES:
        getattr(found, method)(folder / name, overwrite=True)


@contextmanager
def _bar(enabled: bool) -> Iterator[Progress | None]:
    """A progress bar on a terminal, and nothing in a pipe."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc="compare", unit="row", leave=False) as bar:

        def progress(done: int, total: int, name: str) -> None:
            bar.total = total
            bar.set_postfix_str(name, refresh=False)
            bar.n = done
            bar.refresh()

        yield progress
