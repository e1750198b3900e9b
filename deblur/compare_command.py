"""The command ``deblur compare``: every method on the same images."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from . import image
from .terminal import progress

#: Files of the folder besides the rows, and the methods of Comparison that write them.
_FILES = {"compare.html": "to_html", "compare.json": "to_json", "compare.csv": "to_csv", "compare.md": "to_markdown"}


def compare(args: argparse.Namespace) -> int:
    """Compare methods on the same images: tables and a page.

    Blur images, restore them by every method, measure all methods alike, and write tables and one HTML page. Every
    combination of images, PSFs, noises and boundaries is a case. Ctrl-C ends the command early and keeps all finished
    rows; --resume continues from there.

    Parameters
    ----------
    --image : image, several
        Sharp images to be blurred; by default the central 256 x 256 pixels of camera.
    --blurred : flag
        The images are already blurred: there is no truth, and neither blur nor noise is added.
    --size : count, optional
        Side in pixels of a square part at the centre; by default the largest part.
    --psf : psf unread, several = gaussian:9,1.5
        Image of one point after the blur.
    --noise : noise, several
        The noise to be added; by default gaussian:0.01.
    --boundary : boundary, several = unknown
        How the scene continues beyond the frame.
    --seed : whole = 0
        Seed of the noise.
    --method : entrant, several
        The methods to be compared; by default all.
    --lam : lam = gcv
        Strength of the smoothing.
    --other-boundary : {own, refuse} = own
        For a method that cannot assume the boundary: own runs it with its own boundary, and its row says so; refuse
        marks its row as refused.
    --oracle : flag
        Add rows with the best parameter in hindsight, marked oracle.
    --time-limit : number = 20
        Time limit in seconds for one restoration; the choice of its parameter may take twice as long.
    --repeats : whole = 3
        Number of timed runs after a warm-up; 0 times the warm-up itself.
    --no-memory : flag
        Do not measure memory (one run less).
    --output : folder = compare_output
        Folder for all files.
    --resume : flag
        Continue the comparison in the folder.
    --force : flag
        Replace a comparison in the folder.
    -q, --quiet : flag
        Print nothing but errors.
    """
    from .compare import Settings, run  # with the packages that they need
    from .compare.tables import terminal_table

    folder = Path(args.output)
    if folder.is_dir():
        inputs = [*args.psf, *(args.image or [])]
        # `run` raises an error with advice if the folder contains a comparison.
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
        print("deblur: interrupted; continue with the same command and --resume", file=sys.stderr)
        return 130
    return 0
