"""The command ``deblur psf``: a PSF from data, checked, and made ready.

Exit code 1: it was measured, and is not to be trusted (nothing is written without --anyway), or does not fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf, terminal
from .psf.files import read_grey
from .terminal import rows_by_columns


def add_parser(commands: Any, read_psf: Callable[[str], Any]) -> None:
    """Add ``psf`` to the subcommands of an argument parser; `read_psf` gives (text, value)."""
    parser = commands.add_parser(
        "psf",
        help="measure a PSF from stars, edges or a pair of pictures, fit, check or convert one",
        description="Measure the point spread function (PSF) from data, with an estimate of its own error; fit a "
        "formula to one; say whether one fits a picture; make one that an instrument wrote ready for use.",
    )
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")

    points = _measuring(sources, "points", "from a picture of stars, beads or pinholes", _points)
    points.add_argument("input", metavar="IN", help="picture of the points")
    points.add_argument(
        "--positions", metavar="FILE", help="text with a row and a column of a point in each line"
    )
    points.add_argument(
        "--size", type=rows_by_columns, metavar="N", help="rows and columns of the PSF, such as 15 or 15x17"
    )
    points.add_argument(
        "--saturation", type=float, metavar="V", help="value from which on a pixel is saturated"
    )
    points.add_argument(
        "--grid",
        type=rows_by_columns,
        metavar="RxC",
        help="also how it varies: PSFs on a grid, into OUT as an .npz",
    )

    edge = _measuring(sources, "edge", "from a slanted edge", _edge)
    edge.add_argument("input", metavar="IN", help="picture of the edge")
    edge.add_argument(
        "--region",
        type=_region,
        action="append",
        metavar="T,B,L,R",
        help="rows T to B and columns L to R around the edge; given twice, two edges make an elliptical PSF",
    )
    edge.add_argument("--size", type=rows_by_columns, metavar="N", help="rows and columns of the PSF")

    pair = _measuring(sources, "pair", "from a sharp and a blurred picture of the same thing", _pair)
    pair.add_argument("sharp", metavar="SHARP")
    pair.add_argument("blurred", metavar="BLURRED")
    pair.add_argument(
        "--size", type=rows_by_columns, metavar="N", required=True, help="rows and columns, rather too large"
    )

    blurred = _measuring(sources, "blurred", "of a shaking hand, from the blurred picture alone", _blurred)
    blurred.add_argument("input", metavar="IN", help="the blurred picture")
    blurred.add_argument(
        "--size",
        type=rows_by_columns,
        metavar="N",
        required=True,
        help="rows and columns that the PSF has at most; a third more than it has does no harm",
    )

    fit = _measuring(
        sources, "fit", "fit a formula to a PSF, or defocus or motion to a blurred picture", _fit
    )
    fit.add_argument("input", metavar="IN", help="a PSF or a picture")
    fit.add_argument("--kind", metavar="K", help="gaussian, moffat, disk, airy or motion; default the best")
    fit.add_argument(
        "--of", choices=("auto", "psf", "image"), default="auto", help="what IN is; default auto"
    )

    convert = _measuring(sources, "convert", "centre, crop, resample or clean a PSF", _convert)
    convert.add_argument("input", metavar="IN", help="PSF: TIFF, FITS, PNG, .mat, .npy, .npz, .csv or .txt")
    convert.add_argument("--clean", action="store_true", help="take off its background and noise")
    convert.add_argument(
        "--scale", type=float, default=1.0, metavar="S", help="new pixels a length of one old one"
    )
    convert.add_argument(
        "--energy", type=float, metavar="E", help="crop it to this share of its light, such as 0.999"
    )
    convert.add_argument("--size", type=rows_by_columns, metavar="N", help="rows and columns")
    convert.add_argument(
        "--as-centred", action="store_true", help="do not move its centre of gravity to its centre"
    )

    check = sources.add_parser("check", help="say whether a PSF fits a blurred picture")
    check.add_argument("input", metavar="IN", help="blurred picture")
    check.add_argument("--psf", type=read_psf, required=True, help="for example gaussian:9,1.2 or a file")
    check.add_argument("--picture", metavar="PNG", help="also draw what was looked at")
    check.add_argument("--force", action="store_true", help="replace PNG if it is there")
    check.set_defaults(run=_check)


def _measuring(sources: Any, name: str, help: str, measure: Callable[..., psf.PSFEstimate]) -> Any:
    parser = sources.add_parser(name, help=help, description=f"A PSF: {help}.")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="the PSF: .npy, .npz, .csv, .txt or .tif; only told if not given",
    )
    parser.add_argument("--anyway", action="store_true", help="write OUT even if it is not to be trusted")
    parser.add_argument("--force", action="store_true", help="replace OUT if it is there (never an input)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.set_defaults(run=lambda args: _run(args, measure))
    return parser


def _region(text: str) -> tuple[int, ...]:
    try:
        top, bottom, left, right = (int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"four whole numbers such as 10,90,20,100 are needed, not {text!r}"
        ) from None
    return top, bottom, left, right


def _run(args: argparse.Namespace, measure: Callable[[argparse.Namespace], psf.PSFEstimate]) -> int:
    names = [
        getattr(args, name)
        for name in ("input", "sharp", "blurred", "positions")
        if getattr(args, name, None)
    ]
    if args.output:
        image.check_writable(args.output, args.force, inputs=names)
        if getattr(args, "grid", None) and Path(args.output).suffix.lower() != ".npz":
            raise ValueError(f"--grid writes several PSFs, into an .npz, not into {args.output}")
    found = measure(args)
    written = bool(args.output) and (found.status.ok or args.anyway)
    if written:
        psf.save(args.output, found, overwrite=args.force)
    if not args.quiet:
        lines = [str(found)]
        if written:
            lines.append(f"written     {args.output}")
        elif args.output:
            lines.append(f"not written {args.output}: it is not to be trusted (--anyway writes it)")
        terminal.report("\n".join(lines))
    return 0 if found.status.ok or written else 1


def _points(args: argparse.Namespace) -> psf.PSFEstimate:
    positions = None if args.positions is None else np.loadtxt(args.positions, ndmin=2)
    return psf.from_points(
        read_grey(args.input), positions, args.size, saturation=args.saturation, grid=args.grid
    )


def _edge(args: argparse.Namespace) -> psf.PSFEstimate:
    return psf.from_edge(read_grey(args.input), args.region, args.size)


def _pair(args: argparse.Namespace) -> psf.PSFEstimate:
    return psf.from_pair(read_grey(args.sharp), read_grey(args.blurred), args.size)


def _blurred(args: argparse.Namespace) -> psf.PSFEstimate:
    with terminal.progress("deblur psf", not args.quiet) as shown:
        told = lambda i, n: shown.phase(f"PSF, {i} of {n} done")  # noqa: E731
        return psf.from_blurred(read_grey(args.input), args.size, progress=told)


def _fit(args: argparse.Namespace) -> psf.PSFEstimate:
    return psf.fit(_given(args.input), args.kind, of=args.of)


def _given(path: str) -> np.ndarray:
    """What may be a picture or a PSF."""
    if Path(path).suffix.lower() in (".npy", ".npz", ".mat", ".csv", ".txt", ".dat"):
        return psf.load(path, normalize=False, allow_negative=True)
    return read_grey(path)


def _convert(args: argparse.Namespace) -> psf.PSFEstimate:
    return psf.prepare(
        psf.load(args.input, normalize=False, allow_negative=True),
        clean=args.clean,
        scale=args.scale,
        centred=not args.as_centred,
        energy=args.energy,
        size=args.size,
    )


def _check(args: argparse.Namespace) -> int:
    if args.picture:
        image.check_writable(args.picture, args.force, inputs=[args.input, args.psf.text])
    found = psf.check(image.as_float(read_grey(args.input)), args.psf.value)
    if args.picture:
        import io

        from . import plot

        held = io.BytesIO()
        plot.psf_check(found).savefig(held, format="png")
        image.write_whole(args.picture, held.getvalue(), args.force)
    terminal.report(str(found))
    return 0 if found.verdict.ok else 1
