"""The command ``deblur compare``: the arguments, the progress bar, the files."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from .. import image
from ..arguments import Parser, add_arguments
from ..terminal import progress
from .adapters import entrants
from .findings import Settings
from .running import run
from .tables import terminal_table

#: What the folder gets besides the rows: file, and the method of Comparison that writes it.
_FILES = {"compare.html": "to_html", "compare.json": "to_json", "compare.csv": "to_csv", "compare.md": "to_markdown"}


def fill(parser: Parser) -> None:
    """Add the arguments of ``deblur compare``."""
    parser.description = (
        "Blur images, restore them by every method, measure each one alike, and write the tables and one HTML page. "
        "Every combination of images, PSFs, noises and boundaries is a case. Ctrl-C ends early: what is done is kept "
        "and written, and --resume goes on from there."
    )
    add_arguments(parser, compare)
    parser.epilog = f"{parser.epilog} METHOD is one of {', '.join(entrants())}; all by default."
    parser.set_defaults(run=compare)


def compare(args: argparse.Namespace) -> int:
    """Run ``deblur compare``; returns the exit code: 0, or 130 if it was interrupted.

    Parameters
    ----------
    --image : image, several
        Sharp images to be blurred; by default camera, the middle 256 x 256 pixels.
    --blurred : flag
        The images are blurred already: there is no truth, and nothing is blurred or added.
    --size : count, optional
        Side in pixels of a square part from the middle; all by default.
    --psf : psf unread, several = gaussian:9,1.5
        What one point becomes by the blur.
    --noise : noise, several = gaussian:0.01
        The noise to be added.
    --boundary : boundary, several = unknown
        How the scene continues beyond the frame.
    --seed : seed = 0
        Seed of the noise.
    --method : entrant, several
        The methods to be compared.
    --lam : lam = gcv
        How much is smoothed.
    --other-boundary : {own, refuse} = own
        A method that cannot assume the boundary is run with its own, and its row says so, or its row says refused.
    --oracle : flag
        Add rows with the best parameter in hindsight, marked oracle.
    --time-limit : number = 20
        Time limit in seconds for one restoration; the choice of its parameter may take twice as long.
    --repeats : count = 3
        Timed runs after a warm-up.
    --no-memory : flag
        Do not measure memory (one run less).
    --output : folder = compare_output
        Folder for all files.
    --resume : flag
        Go on with what the folder holds.
    --force : flag
        Begin afresh in a folder that holds a comparison.
    -q, --quiet : flag
        Print nothing but errors.
    """
    folder = Path(args.output)
    if folder.is_dir():
        inputs = [*args.psf, *(args.image or [])]
        # `run` refuses a folder that holds a comparison, and says what to do about it.
        ours = args.force or args.resume or (folder / "rows.jsonl").exists()
        image.check_output(folder / "pictures", inputs)
        for name in (*_FILES, "rows.jsonl"):
            image.check_writable(folder / name, overwrite=ours, inputs=inputs)
    settings = {name: getattr(args, name) for name in Settings.__dataclass_fields__ if name in args}
    settings |= {"memory": not args.no_memory, "overwrite": args.force, "folder": folder}
    with progress("compare", not args.quiet) as show:
        found = run(args.image, args.psf, args.noise, args.boundary, args.method, progress=show, **settings)
    for name, method in _FILES.items():
        getattr(found, method)(folder / name, overwrite=True)
    if not args.quiet:
        print(terminal_table(found, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
        print(f"\nwritten: {', '.join(str(folder / name) for name in _FILES)}")
    if not found.complete:
        print("deblur: interrupted; go on with the same command and --resume", file=sys.stderr)
        return 130
    return 0
