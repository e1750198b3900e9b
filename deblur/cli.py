"""The command ``deblur``.

Exit codes: 0, done; 1, the work was done and the answer cannot be trusted
(nothing is written); 2, a mistake in the request, said in one line; 130,
interrupted by Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import itertools
import mimetypes
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf, psf_command, terminal, volumes
from .arguments import Parser, add_arguments, add_command
from .blind_restoration import blind
from .demo import demo
from .device import check_finite
from .errors import ConvergenceError, NoGPUError
from .image.axes import in_words
from .image.light import measured
from .image.metadata import inverse
from .image.stores import is_store
from .methods import METHODS, choose_method, expected_seconds
from .operators.blur import Blur
from .options import defaults
from .pipeline import Deblurrer, solve_into
from .problem import Problem
from .progress import report_phase
from .result import Result
from .threads import cores
from .tiles import command as tiles
from .tuning import RULES
from .version import __version__

#: What main reports in one line. numpy.linalg.LinAlgError, and with it SingularMatrixError, is a ValueError.
_MISTAKES = (ConvergenceError, ValueError, TypeError, OverflowError, OSError, MemoryError, NoGPUError, ImportError)


def _parser() -> Parser:
    parser = Parser(
        prog="deblur",
        description="Restore blurred images: the blur is a matrix, and deblur inverts it with care.",
        epilog="`deblur COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"deblur {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_arguments(add_command(commands, reconstruct), tiles.reconstruct)
    for function in (choose, demo, tiles.plan):
        add_command(commands, function)
    add_command(commands, psf_command.blind).set_defaults(run=lambda args: reconstruct(psf_command.blind(args, parser)))
    psf_command.add_parser(commands)
    commands.add_parser("compare", help="Compare methods on the same images: tables and a page").fill = _compare
    return parser


def _compare(parser: Parser) -> None:
    from .compare import command  # and with it every package that is compared with

    command.fill(parser)


# ---------------------------------------------------------------------------------------------
# reconstruct
# ---------------------------------------------------------------------------------------------


def reconstruct(args: argparse.Namespace) -> int:
    """Restore a blurred image file, or several with one PSF.

    Of several images, each is restored as if alone: λ and the boundary, if they are not given, are chosen for each. One
    that fails is named at the end, and the others are restored; the exit code is then 1.

    The point spread function (PSF) is given by --psf, or as one that varies by --psf-grid, or estimated by --blind.
    If OUT is a .zarr, IN is a zarr array, OME-Zarr or a TIFF, restored tile by tile, a volume if one of --tile and the
    options after it is given; they belong to that.

    Parameters
    ----------
    input : in, several
        Blurred image: PNG, JPEG, TIFF or FITS (a.fits[SCI] names one of several), grey, colour or a stack; /dev/stdin
        for a pipe; or a .zarr. Several, or a folder for the images in it.
    -o, --output : out
        Restored image: .png, .jpg, .webp, .tif, .fits or .zarr. Of several images, a folder: they keep their names
        there.
    --psf : psf, optional
        What one point became by the blur, such as gaussian:9,1.2, which describes IN as a viewer shows it. A PSF in a
        file lies as the sensor has it: it is turned with IN, if the camera was held sideways.
    --blind : size|auto, optional
        Camera shake blurred the image and the PSF is unknown: estimate it from the image itself, and write it as a
        picture beside OUT. The size is the largest that it may have; a size far too large makes failures likelier.
    --psf-grid : path, optional
        PSFs that vary across the image: a folder with a file for each position, row by row; an .npy file (rows,
        columns, m, n), an .npz that deblur psf points --grid wrote; or an image of stars or beads, from which they are
        measured.
    --grid : size, optional
        Positions of --psf-grid, for example 5x5; with --blind, parts of the image whose PSFs are estimated.
    --axis : axes, optional
        Axes of IN, where the file does not name them, or not rightly: T time, C channel, Z depth, then Y and X. ZYX is
        a volume, TYX a film, TCZYX several volumes of several channels.
    --time : places, optional
        Restore one time point alone, or, as N:M, those from N to before M, counted from 0.
    --channel : channel, optional
        Restore one channel alone, by its number or its name in the file, or some of them, as --time does.
    --planes : flag
        Restore each plane of a volume by itself, with a PSF in 2-D. A PSF in 3-D restores volumes.
    --lam : lam = auto
        How much is smoothed; auto is gcv, or the rule that is sound for the noise model.
    --noise : level
    --psf-error : number
    --method : method
    --boundary : boundary|auto
    --formula : {tikhonov, hht}
    --prior : {auto, zero, smooth, natural}
    --mask : mask
    --weights : weights
    --gamma : {srgb, linear}
    --data : {gaussian, poisson, l1, huber}
    --bounds : bounds
    --background : brightness
    --dtype : {float32, float64}
    --denoiser : text
    --rtol : number
    --max-iterations : count
    --stop : {consensus}
    --bits : {8, 16, 32}, optional
        Bits of OUT, 32 being a float TIFF; by default those of IN, and 32 of a volume. In a float TIFF white is 1, but
        volumes and integers other than 8 or 16 bits without a sign keep their unit.
    --clip : flag
        Write OUT even if more than a tenth of its pixels are clipped.
    --rescale : flag
        Make the least value of OUT black and the largest white.
    --anyway : flag
        Write OUT even if it, or the PSF that --blind estimates, is not to be trusted.
    --force : flag
        Replace OUT if it is there (never IN or another input).
    --views : out, optional
        A picture (.png) of a volume before and after: maximum projections and slices through its middle.
    -q, --quiet : flag
        Print nothing but errors.
    """
    _check_arguments(args)
    source, kernel, _ = args.psf or (args.psf_grid or "", None, None)
    # Every option of the library has its name here; an argument that may name a file is (text, value).
    given = {name: getattr(args, name, None) for name in defaults()}
    options: Any = {name: value for name, value in given.items() if value is not None}
    options |= {name: options[name][1] for name in ("mask", "weights") if name in options}
    folder, targets = args.output, _targets(args)
    (args.input, args.output), *more = targets.items()
    if args.views and (more or Path(args.views).suffix != ".png" or args.views == args.output):
        raise ValueError(f"--views {args.views}: it must be a .png besides OUT, and IN one volume")
    if tiles.wants(args, kernel):
        return tiles.reconstruct(args, partial(volumes.fitted, args.psf), options)
    if not more:
        image.check_readable(args.input)
    inputs = [*targets, source, *(given[0] for given in (args.mask, args.weights) if given)]
    for target in [*targets.values(), *filter(None, [args.views])]:
        image.check_writable(target, args.force, inputs=inputs)
    reports: list[str] = []
    failed: dict[str, str] = {}
    kept: dict[Any, Deblurrer] | None = {} if more else None
    try:
        with terminal.progress("deblur", not args.quiet) as show:

            def counted(*_: int, note: str = "") -> None:
                if show and more:
                    show(len(reports) + len(failed), len(targets), f"{Path(args.input).name} {note}")

            listener = counted if show and more else show
            for args.input, args.output in targets.items():
                counted()
                try:
                    with terminal.warnings_in_words(args.input if more else ""):
                        reports.append(_restored(args, kernel, dict(options), kept, listener))
                except _MISTAKES as error:
                    failed[args.input], last = _in_terms(args, error), error
    finally:  # also after Ctrl-C
        if reports and not args.quiet:
            total = [f"restored    {len(reports)} of {len(targets)} images into {folder}"] if more else []
            terminal.report("\n".join(reports + total))
    if not reports and len(set(failed.values())) == 1:
        raise last  # the request is at fault, or there is one image
    for path, why in failed.items():
        _fail(why if why.startswith(path) else f"{path}: {why}", 1)
    return 1 if failed else 0


def _targets(args: argparse.Namespace) -> dict[str, str]:
    """Where each image is written: OUT or, of several and where OUT is a folder, under its own name in OUT."""
    out, one = Path(args.output), len(args.input) == 1
    stores = [name for name in (args.output, *args.input) if Path(name).suffix == ".zarr" or is_store(name)]
    if stores and not one:
        raise ValueError(f"{stores[0]} is a zarr store, which is restored by itself: name one IN and one OUT")
    folder = os.path.isdir(args.input[0]) or os.path.isdir(out) or args.output.endswith("/")
    if stores or (one and not folder):
        return {args.input[0]: args.output}
    sources: dict[str, str] = {}
    for name in args.input:
        for path in _images_in(Path(name)) if os.path.isdir(name) else [Path(name)]:
            writable = path.suffix.lower() in image.FORMATS
            target = str(out / (path.name if writable else f"{path.stem}.png"))
            other = sources.setdefault(target, str(path))
            if other != str(path):
                why = f"{other} and {path} would both become {target}"
                raise ValueError(f"{why}: rename one, or use two folders")
    if not out.is_dir() and (out.exists() or out.suffix.lower() in image.FORMATS):
        raise NotADirectoryError(f"{out} is the name of a file, and several images need a folder: name one")
    out.mkdir(parents=True, exist_ok=True)
    return {path: target for target, path in sources.items()}


def _images_in(folder: Path) -> list[Path]:
    """The images in a folder, by their suffixes, in the order of their names."""
    kinds = {p: mimetypes.guess_type(p.name, strict=False)[0] or "" for p in sorted(folder.iterdir())}
    found = [p for p, kind in kinds.items() if kind.startswith("image/") or p.suffix.lower() in image.FORMATS]
    if not found:
        raise FileNotFoundError(f"{folder} is a folder without images; name images, or a folder with some")
    return found


def _restored(args: argparse.Namespace, kernel: Any, options: Any, kept: dict[Any, Deblurrer] | None, show: Any) -> str:
    """Restore an image and write it; returns the report, which is short where there are several (`kept`)."""
    if np.ndim(kernel) == 3:
        return volumes.restored(args, options | {"callback": terminal.iterations(show)})
    terminal.keep_memory()
    stored, metadata, where = volumes.opened(args, kernel)
    raw = stored[where].reshape(-1, *stored.shape[len(where) :]) if where else stored
    bits = volumes.bits_of(args, raw)
    if args.psf:
        volumes.check_is_psf(args.input, raw, *args.psf[:2])
    kernel, resampled = volumes.fitted(args.psf, metadata) if args.psf else (kernel, [])
    colour = image.is_colour(raw)
    stack = raw.ndim - colour == 3
    axes: Any = {"channel_axis": raw.ndim - 1 if colour else None, "stack_axis": 0 if stack else None}
    visible = _visible(args, raw, metadata)
    options["callback"] = terminal.iterations(show)
    if args.psf_grid:
        options["psfs"] = psf.upright(psf.load_grid(args.psf_grid, args.grid), metadata.orientation)
    # A large picture of levels takes several times its memory as numbers: it becomes levels again part by part.
    in_parts = raw.dtype in (np.uint8, np.uint16) and bits != 32 and not (args.rescale or args.blind)
    levels, report, begun = image.Levels(args.output, raw, bits) if in_parts else None, "", time.process_time()
    if args.blind:
        if options["method"] == "auto":
            del options["method"]  # the one that suits an estimated PSF
        report_phase("PSF")
        size = None if args.blind == "auto" else args.blind
        found = blind(visible, size, args.lam, grid=args.grid, progress=show, **axes, **options)
        result, status = found.result, found.psf.status
        estimate = _written(args.output, found.psf.psf, metadata.orientation)
        if not (status.ok or args.anyway):
            raise ConvergenceError(
                f"the PSF estimated from {args.input} is {status.value}: {found.psf.why}. Try another size, or a part "
                f"of the image with strong edges; --anyway writes the image. The PSF so far is in {estimate}",
                result,
            )
        report = f"{found.psf}\nwritten     {estimate}\n\n"
    else:
        axes |= {"check": not args.anyway, "kept": kept}
        result = solve_into(levels, visible, kernel, args.lam, options, **axes)
    taken = time.process_time() - begun
    hints = _hints(args, raw, metadata, float(result.image.min()) if levels is None else levels.least)
    several = kept is not None
    remarks = [f"{result.method}, λ = {result.lam:.3g}"] if several else []
    if levels is not None:
        del raw, visible
    lines = volumes.written(args, levels or result.image, None if levels else raw, metadata, bits, remarks)
    lines = [*resampled, *lines, *hints]
    return "\n".join(lines if several else [f"{report}{result}", *lines, *_suggestion(result, taken)])


def _written(output: str, kernel: np.ndarray, orientation: int) -> Path:
    """Write a PSF beside the output, as a picture of 16 bits that --psf reads."""
    names = (Path(output).with_suffix(f".psf{n or ''}.png") for n in itertools.count())
    path = next(name for name in names if not os.path.lexists(name))
    image.write(path, psf.upright(kernel / kernel.max(), inverse(orientation)), bits=16)
    return path


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuse arguments that exclude each other or do nothing, where the library does not refuse them itself."""
    if sum(x is not None for x in (args.psf, args.blind, args.psf_grid)) != 1:
        raise ValueError("exactly one of --psf, --blind and --psf-grid is required")
    if args.clip and args.rescale:
        raise ValueError("--clip is not allowed with --rescale")
    if args.grid and not (args.psf_grid or args.blind):
        raise ValueError("--grid belongs to --psf-grid and --blind")
    linear = args.method == "auto" or METHODS[args.method].linear
    uses_noise = isinstance(args.lam, str) and (args.lam == "auto" or RULES[args.lam].noise or not linear)
    if args.noise is not None and not uses_noise and args.data != "huber":
        raise ValueError(f"--noise does nothing here: --lam {args.lam} does not use it; leave it out")


def _visible(args: argparse.Namespace, raw: np.ndarray, metadata: image.Metadata) -> np.ndarray:
    """The image, with pixels masked that are wholly transparent, of weight 0 or hidden by a file; no other may be NaN.

    A method of the linear formula, if one is named, takes transparent pixels, whose colours are arbitrary, as they are.
    """
    linear = args.method != "auto" and METHODS[args.method].linear
    hide = [metadata.alpha == 0] if metadata.alpha is not None and not linear else []
    hide += [args.weights[1] == 0] if args.weights else []
    hide += [args.mask[1]] if args.mask and not isinstance(args.mask[1], str) else []
    visible: np.ndarray = np.ma.masked_array(raw, np.zeros(raw.shape, bool)) if hide else raw
    for part in hide:
        part = part[..., None] if image.is_colour(raw) and part.ndim < raw.ndim else part
        with suppress(ValueError):  # another shape, which the library refuses
            visible[np.broadcast_to(part, raw.shape)] = np.ma.masked
    if raw.dtype.kind == "f":
        needed = "hide such pixels: --mask FILE, an image that is not black there, or --weights FILE, which is 0 there"
        check_finite(np.ma.filled(visible, 0), args.input, needed)
    return visible


def _hints(args: argparse.Namespace, raw: np.ndarray, metadata: image.Metadata, least: float) -> list[str]:
    """Options that suit this image, one line each; `least` is the least restored value."""
    lines = []
    if metadata.orientation != 1:
        lines.append(
            f"rotated     upright from orientation {metadata.orientation} of {args.input}, and a PSF file with it"
        )
    if raw.ndim - image.is_colour(raw) == 3:
        lines.append(f"axes        {in_words(metadata, raw.shape[1:], 2)}")
    if args.bounds is None and raw.dtype != np.uint8:
        levels = np.nanquantile(raw, (0, 0.5, 1), method="nearest")
        darkest, sky, brightest = image.as_float(levels).tolist()
        depth = darkest - least
        # Ringing of a photograph is small against its own shades; around a star or a lamp the sky is all but black.
        if depth > max(10 * (sky - darkest), 0.01 * (brightest - darkest)):
            lines.append(
                f"hint        the restored values go down to {darkest - depth:.4g} and the image to {darkest:.4g}, as "
                f"around stars and lamps: try --background {sky:.4g} --bounds nonnegative --data poisson"
            )
    if raw.dtype.kind == "u" and not measured(raw) and metadata.camera and args.gamma is None:
        lines.append(
            f"hint        taken with a camera ({metadata.camera}): --gamma srgb restores light, which is what "
            "a lens blurs, and not its numbers"
        )
    return lines


def _suggestion(result: Result, taken: float) -> list[str]:
    """Methods that restore a photograph better than a quadratic one, and how long they take, in one line.

    `taken` is the processor time of this restoration; what the process took beside it, to import and read, it will take
    again. Where a mask or weights made it long, the others take half of that at least: they find the noise and λ alike.
    """
    pixels = result.problem.frames * int(np.prod(result.problem.operator.image_shape))
    times = {name: max(expected_seconds(name, pixels), taken / (2 * cores())) for name in _offers(result.problem)}
    words = "; ".join(f"--method {name}: {_about(time.process_time() - taken + s)}" for name, s in times.items())
    return [f"suggestion  {words}"] if words else []


def _offers(problem: Problem) -> list[str]:
    """The methods that suit photographs better than a quadratic problem, and serve it otherwise; none for others."""
    other = partial(replace, problem, formula="tikhonov", inverse=False)
    methods = (METHODS[name] for name in ("tv", "collaborative"))
    return [m.name for m in methods if problem.quadratic and m.refuses(other(regularizer=m.regularizer)) is None]


def _about(seconds: float) -> str:
    """A prediction in words, as coarse as it is."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s" if seconds >= 1 else "less than a second"


# ---------------------------------------------------------------------------------------------
# choose
# ---------------------------------------------------------------------------------------------


def choose(args: argparse.Namespace) -> int:
    """Show which method auto would take, and why.

    Also how long each method takes for an image of this size, and why the others cannot serve.

    Parameters
    ----------
    --shape : size
        Size of the image.
    --psf : psf
        What one point became by the blur.
    --channels : count = 1
        3 for colour.
    --lam : lam = auto
        How much is smoothed.
    --boundary : boundary = unknown
    --formula : {tikhonov, hht}
    --dtype : {float32, float64} = float64
    """
    blur = Blur(args.psf[1], args.shape, args.boundary)
    choice = choose_method(blur, args.lam, dtype=args.dtype, frames=args.channels, formula=args.formula)
    offers = _offers(Problem(blur, 0.0, dtype=np.dtype(args.dtype), frames=args.channels))
    pixels, serving = args.channels * int(np.prod(args.shape)), (choice.method, *choice.others)
    times = {name: _about(expected_seconds(name, pixels)) for name in (*serving, *offers)}
    print(choice)
    for title, rows in (
        ("expected time of a call on this machine", {n: times[n] for n in serving}),
        ("better images, for longer", {n: times[n] for n in offers}),
        ("cannot serve", choice.refused),
    ):
        if rows:
            print(f"\n{title}", *(f"  {name:<14}{words}" for name, words in rows.items()), sep="\n")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # λ is not in every encoding
    args = argparse.Namespace()
    try:
        with terminal.interruptible(), terminal.warnings_in_words():
            args = _parser().parse_args(argv)
            code: int = args.run(args)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except BrokenPipeError:
        terminal.abandon_stdout()
        return 128 + 13  # as if SIGPIPE had ended it
    except _MISTAKES as error:
        return _fail(_in_terms(args, error), 1 if isinstance(error, ConvergenceError) else 2)
    except KeyboardInterrupt:
        print(terminal.INTERRUPTED, file=sys.stderr)
        return 130


def _in_terms(args: argparse.Namespace, error: BaseException) -> str:
    """The text of an error, on one line, with Python's options written as those of the command."""
    text = re.sub(r"\b\w+=True(?:, (--[\w-]+)| \((--[\w-]+)\))", r"\1\2", " ".join(str(error).split()))
    names = "|".join(vars(args)) or "$"
    for known in (rf"\b({names})(=)", rf"^({names})()(?=,| must| is | has | holds )"):
        text = re.sub(known, lambda m: f"--{m[1].replace('_', '-')}{' ' * len(m[2])}", text)
    return text or type(error).__name__


def _fail(text: str, code: int) -> int:
    print(f"deblur: {text}", file=sys.stderr)
    return code
