"""The command ``deblur psf``: measure, fit, convert or check a PSF.

Exit code 1: the measured PSF is unreliable (it is not written without --anyway), or the checked PSF does not fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf, terminal
from .arguments import add_arguments, add_command
from .image.outputs import write_whole
from .image.reading import check_readable, located
from .image.writing import FORMATS
from .progress import report_phase
from .psf.files import check_suffix, load_with_voxel, numbers_in, read_grey

Measure = Callable[[argparse.Namespace], psf.PSFEstimate]


def add_parser(commands: Any) -> None:
    """Add ``psf`` to the subcommands of an argument parser."""
    about = (
        "Measure a PSF from stars, edges, a pair of images or the blurred image; fit a formula to one, convert or "
        "check one"
    )
    sources = commands.add_parser("psf", help=about, description=f"{about}. Each measurement estimates its own error.")
    sources = sources.add_subparsers(dest="source", required=True, metavar="SOURCE")
    for measure in (points, edge, pair, blurred, refine, fit, convert):
        parser = add_command(sources, measure)
        add_arguments(parser, _run)
        parser.set_defaults(run=partial(_run, measure))
    add_command(sources, check)


def _run(measure: Measure, args: argparse.Namespace) -> int:
    """Measure a PSF, print the result and write it.

    Parameters
    ----------
    -o, --output : out, optional
        File for the PSF: .npy, .npz, .csv, .txt or .tif. Without it nothing is written.
    --anyway : flag
        Write OUT even if the PSF is unreliable.
    --force : flag
        Replace OUT if it exists (never an input).
    -q, --quiet : flag
        Print nothing but errors.
    """
    if args.output:
        inputs = [getattr(args, name, None) for name in ("input", "sharp", "blurred", "positions")]
        inputs += getattr(args, "psf", ())[:1]
        image.check_writable(args.output, args.force, inputs=filter(None, inputs))
        check_suffix(args.output)
        if getattr(args, "grid", None) and Path(args.output).suffix.lower() != ".npz":
            raise ValueError(f"--grid writes several PSFs, into an .npz, not into {args.output}")
    found = measure(args)
    written = bool(args.output) and (found.status.ok or args.anyway)
    if written:
        psf.save(args.output, found, overwrite=args.force, **getattr(args, "read", {}))
    if not args.quiet:
        refused = f"not written {args.output}: the PSF is unreliable (--anyway writes it)"
        outcome = [f"written     {args.output}" if written else refused] if args.output else []
        terminal.report("\n".join([str(found), *outcome]))
    return 0 if found.status.ok or written else 1


def upright(given: tuple[str, np.ndarray, Any], orientation: int) -> np.ndarray:
    """Return the PSF of an argument --psf for the upright image; a PSF from a file is rotated with it, a formula is
    not.
    """
    text, kernel, _ = given
    return psf.upright(kernel, orientation) if located(text)[0].exists() else kernel


def _grey(args: argparse.Namespace, name: str = "input") -> np.ndarray:
    """Return the upright grey image of an argument; `args.read` keeps its orientation for the written PSF."""
    picture, args.read = read_grey(getattr(args, name))
    return image.upright(picture, args.read["orientation"], -2)


def points(args: argparse.Namespace) -> psf.PSFEstimate:
    """Measure the PSF from an image of stars, beads or pinholes.

    Parameters
    ----------
    input : in
        Image of the points, or a volume (a TIFF with planes).
    --positions : path, optional
        Text file with the row and the column of a point in each line; for a volume plane, row and column.
    --size : size, optional
        Rows and columns of the PSF; for a volume planes, rows and columns, such as 31x25x25.
    --saturation : number, optional
        Smallest value of a saturated pixel.
    --grid : size, optional
        Also measure how the PSF varies: write PSFs on a grid of this size to OUT, an .npz.
    """
    try:
        positions = args.positions and numbers_in(check_readable(args.positions))
    except ValueError as error:
        raise ValueError(f"--positions {args.positions}: {error}; a line holds a row and a column") from None
    options = {name: getattr(args, name) for name in ("size", "saturation", "grid")}
    return psf.from_points(_grey(args), positions, **options)


def edge(args: argparse.Namespace) -> psf.PSFEstimate:
    """Measure the PSF from a slanted edge.

    Parameters
    ----------
    input : in
        Image of the edge.
    --region : region, repeated
        Rows TOP to BOTTOM and columns LEFT to RIGHT around the edge. Given twice, two edges make an elliptical PSF.
    --size : size, optional
        Rows and columns of the PSF.
    """
    return psf.from_edge(_grey(args), args.region, args.size)


def pair(args: argparse.Namespace) -> psf.PSFEstimate:
    """Measure the PSF from a sharp and a blurred image of the same scene.

    Parameters
    ----------
    sharp : path
        The sharp image.
    blurred : path
        The blurred image.
    --size : size
        Rows and columns of the PSF; too large is better than too small.
    """
    return psf.from_pair(_grey(args, "sharp"), _grey(args, "blurred"), args.size)


def blurred(args: argparse.Namespace) -> psf.PSFEstimate:
    """Estimate the PSF of camera shake from the blurred image alone.

    Parameters
    ----------
    input : in
        The blurred image.
    --size : size, optional
        Largest rows and columns that the PSF may have; a far too large size makes a failure more likely.
    --grid : size, optional
        Also estimate how the PSF varies: write one PSF for each part of the image to OUT, an .npz.
    """
    with terminal.progress("deblur psf", not args.quiet) as show:
        report_phase("estimate")
        return psf.from_blurred(_grey(args), args.size, grid=args.grid, progress=show)


def blind(args: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Restore a photograph blurred by camera shake, without knowing its PSF.

    The report says how reliable the estimated PSF is, and with it the image. If the PSF is unreliable, no image is
    written, and the exit code is 1. The PSF is written as an image beside OUT. `deblur reconstruct --blind` has more
    options.

    Parameters
    ----------
    input : in
        The photograph: PNG, JPEG, TIFF or FITS, grey or colour.
    -o, --output : out, optional
        Restored image; by default a file beside IN, with -restored in its name.
    --size : size|auto = auto
        Largest rows and columns that the PSF may have.
    --grid : size, optional
        Number of parts of the image, such as 3x3, each of which gets its own PSF; use it if the camera rotated.
    --anyway : flag
        Write OUT even if the PSF is unreliable.
    --force : flag
        Replace OUT if it exists (never IN).
    -q, --quiet : flag
        Print nothing but errors.
    """
    path = Path(args.input)
    path = path.resolve() if path.is_dir() else path  # Path(".") has an empty name
    suffix = path.suffix if path.suffix.lower() in FORMATS or path.is_dir() else ".png"
    out = args.output or str(path.with_name(f"{path.stem}-restored{suffix}"))
    usual = parser.parse_args(["reconstruct", "-", "--output", "OUT", "--blind", "auto"])
    return argparse.Namespace(**vars(usual) | vars(args) | {"input": [args.input], "output": out, "blind": args.size})


def refine(args: argparse.Namespace) -> psf.PSFEstimate:
    """Correct the angle, size, tone curve and background of a nearly correct PSF by means of the blurred image.

    Parameters
    ----------
    input : in
        The blurred image.
    --psf : psf
        The nearly correct PSF, for example motion:15,30 or a file.
    """
    return psf.refine(image.as_float(_grey(args)), upright(args.psf, args.read["orientation"]))


def fit(args: argparse.Namespace) -> psf.PSFEstimate:
    """Fit a formula to a PSF, or the formula of defocus or motion to a blurred image.

    Parameters
    ----------
    input : in
        A PSF or a blurred image.
    --kind : text, optional
        gaussian, moffat, disk, airy or motion; by default the one that fits best.
    --of : {auto, psf, image} = auto
        Whether IN is a PSF or an image.
    """
    table = Path(args.input).suffix.lower() in (".npy", ".npz", ".mat", ".csv", ".txt", ".dat")
    given = psf.load(args.input, normalize=False, allow_negative=True) if table else _grey(args)
    return psf.fit(given, args.kind, of=args.of)


def convert(args: argparse.Namespace) -> psf.PSFEstimate:
    """Centre, crop, resample or clean a PSF.

    Parameters
    ----------
    input : in
        File of the PSF: TIFF, FITS, PNG, .mat, .npy, .npz, .csv or .txt; volume:IN if the first axis of an array counts
        planes.
    --clean : flag
        Subtract background and noise.
    --scale : number = 1
        Number of new pixels along the side of an old one.
    --energy : number, optional
        Crop the PSF to this share of its light, such as 0.999.
    --size : size, optional
        Rows and columns of the result; for a volume planes, rows and columns.
    --as-centred : flag
        Do not move the centre of gravity to the central pixel.
    """
    given, voxel = load_with_voxel(args.input, normalize=False, allow_negative=True)
    options = {name: getattr(args, name) for name in ("clean", "scale", "energy", "size")}
    found = psf.prepare(given, centred=not args.as_centred, **options)
    args.read = {"voxel": voxel and tuple(side / args.scale for side in voxel)}
    return found


def check(args: argparse.Namespace) -> int:
    """Test whether a PSF fits a blurred image.

    Parameters
    ----------
    input : in
        Blurred image.
    --psf : psf
        The PSF, for example gaussian:9,1.2 or a file.
    --picture : path, optional
        File for a figure of the comparison, of the kind that its name ends with: .png, .jpg, .pdf or .svg.
    --force : flag
        Replace the figure if it exists.
    """
    if args.picture:
        image.check_writable(args.picture, args.force, inputs=[args.input, args.psf[0]])
    found = psf.check(image.as_float(_grey(args)), upright(args.psf, args.read["orientation"]))
    if args.picture:
        from .plot import psf_check

        kind = Path(args.picture).suffix[1:] or "png"
        write_whole(args.picture, partial(psf_check(found).savefig, format=kind), args.force)
    terminal.report(str(found))
    return 0 if found.verdict.ok else 1
