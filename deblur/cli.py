"""The command ``deblur``.

Exit codes: 0, done; 1, an image was restored, but the result is unreliable and was not written; 2, an invalid request,
reported in one line; 130, interrupted by Ctrl-C.
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
from .compare_command import compare
from .demo import demo
from .device import check_finite
from .errors import ConvergenceError, NoGPUError
from .image.axes import in_words
from .image.light import measured
from .image.metadata import inverse
from .image.stores import is_store
from .image.writing import FORMATS
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

#: The errors that `main` reports in one line. SingularMatrixError is among them, since a LinAlgError is a ValueError.
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
    add_command(commands, compare)
    return parser


# ---------------------------------------------------------------------------------------------
# reconstruct
# ---------------------------------------------------------------------------------------------


def reconstruct(args: argparse.Namespace) -> int:
    """Restore a blurred image file, or several with one PSF.

    Each of several images is restored independently: λ and the boundary, if they are not given, are chosen for each
    image. If an image fails, the others are restored all the same; the command names it at the end and exits with 1.

    The point spread function (PSF) comes from one of three options: --psf names it, --psf-grid names PSFs that vary
    across the image, and --blind estimates it. If OUT is a .zarr, IN is restored tile by tile; IN is then a zarr array,
    an OME-Zarr or a TIFF. A volume is restored tile by tile if --tile, or an option listed after it, is given. These
    options apply to tiles only.

    Parameters
    ----------
    input : in, several
        Blurred image, grey, colour or a stack: PNG, JPEG, TIFF, FITS (a.fits[SCI] names one of its images) or .zarr;
        /dev/stdin for a pipe. Several images may be named, or a folder, which stands for all images in it.
    -o, --output : out
        Restored image: .png, .jpg, .webp, .tif, .fits or .zarr. For several images, a folder, in which they keep their
        names.
    --psf : psf, optional
        Image of one point after the blur, such as gaussian:9,1.2. A PSF given by a formula refers to IN as a viewer
        shows it. A PSF in a file refers to the sensor: if the camera was held sideways, it is rotated with IN.
    --blind : size|auto, optional
        Estimate the unknown PSF of a camera shake from the image itself, and write it as an image beside OUT. The
        value is the largest size that the PSF may have; a far too large one makes a failure more likely.
    --psf-grid : path, optional
        PSFs that vary across the image: a folder with a file for each position, row by row; an .npy file (rows,
        columns, m, n), an .npz that deblur psf points --grid wrote; or an image of stars or beads, from which they are
        measured.
    --grid : size, optional
        Number of PSFs in --psf-grid, for example 5x5; with --blind, the number of parts of the image, each of which
        gets its own PSF.
    --axis : axes, optional
        Axes of IN, if the file names none or wrong ones: T time, C channel, Z depth, then Y and X. ZYX is a volume, TYX
        a film, TCZYX several volumes of several channels.
    --time : places, optional
        Restore one time point N only, counted from 0, or, as N:M, the time points N to M - 1.
    --channel : channel, optional
        Restore one channel only, named by its number or by its name in the file, or several, as N:M.
    --planes : flag
        Restore each plane of a volume independently, with a 2-D PSF. A 3-D PSF restores whole volumes.
    --lam : lam = auto
        Strength of the smoothing; auto is gcv, or the rule that suits the noise model.
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
        Bits of OUT; 32 is a float TIFF. By default the bits of IN, and 32 for a volume. In a float TIFF white is 1, but
        volumes, and integers that are not unsigned with 8 or 16 bits, keep their unit.
    --clip : flag
        Write OUT even if more than a tenth of its pixels are clipped.
    --rescale : flag
        Scale OUT: its smallest value becomes black and its largest white.
    --anyway : flag
        Write OUT even if it, or the PSF that --blind estimates, is unreliable.
    --force : flag
        Replace OUT if it exists (never IN or another input).
    --views : out, optional
        Image (.png) of a volume before and after: maximum projections, and slices through the centre.
    -q, --quiet : flag
        Print nothing but errors.
    """
    _check_arguments(args)
    source, kernel, _ = args.psf or (args.psf_grid or "", None, None)
    # Each option of the library has the same name here. --mask and --weights, which may name a file, are (text, value).
    given = {name: getattr(args, name, None) for name in defaults()}
    options: Any = {name: value for name, value in given.items() if value is not None}
    options |= {name: options[name][1] for name in ("mask", "weights") if name in options}
    folder, targets = args.output, _targets(args)
    (args.input, args.output), *more = targets.items()
    if args.views and (more or Path(args.views).suffix != ".png" or args.views == args.output):
        raise ValueError(f"--views {args.views}: it must be a .png besides OUT, and IN one volume")
    if tiles.wants(args, kernel):
        return tiles.reconstruct(args, partial(volumes.fitted, args.psf), options)
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
        raise last  # there is one image, or all failed alike: the request is at fault
    for path, why in failed.items():
        _fail(why if why.startswith(path) else f"{path}: {why}", 1)
    return 1 if failed else 0


def _targets(args: argparse.Namespace) -> dict[str, str]:
    """Return {input: output}. An output is OUT itself, or, if OUT is a folder or there are several images, a file in
    OUT.
    """
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
            target = str(out / (path.name if path.suffix.lower() in FORMATS else f"{path.stem}.png"))
            other = sources.setdefault(target, str(path))
            if other != str(path):
                raise ValueError(f"{other} and {path} would both become {target}: rename one, or use two folders")
    if not out.is_dir() and (out.exists() or out.suffix.lower() in FORMATS):
        raise NotADirectoryError(f"{out} is the name of a file, and several images need a folder: name one")
    out.mkdir(parents=True, exist_ok=True)
    return {path: target for target, path in sources.items()}


def _images_in(folder: Path) -> list[Path]:
    """Return the images in a folder, recognised by their suffixes, in alphabetical order."""
    kinds = {p: mimetypes.guess_type(p.name, strict=False)[0] or "" for p in sorted(folder.iterdir())}
    found = [p for p, kind in kinds.items() if kind.startswith("image/") or p.suffix.lower() in FORMATS]
    if not found:
        raise FileNotFoundError(f"{folder} is a folder without images; name images, or a folder with some")
    return found


def _restored(args: argparse.Namespace, kernel: Any, options: Any, kept: dict[Any, Deblurrer] | None, show: Any) -> str:
    """Restore an image, write it, and return the report; the report is short if there are several images (`kept`)."""
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
    # As floats an integer image takes several times its memory, so its result becomes integers again part by part.
    in_parts = raw.dtype in (np.uint8, np.uint16) and bits != 32 and not (args.rescale or args.blind)
    levels, report, begun = image.Levels(args.output, raw, bits) if in_parts else None, "", time.process_time()
    if args.blind:
        if options["method"] == "auto":
            del options["method"]  # `blind` chooses the method that suits an estimated PSF
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
    """Write a PSF beside the output, as a 16-bit image that --psf reads, and return its path."""
    names = (Path(output).with_suffix(f".psf{n or ''}.png") for n in itertools.count())
    path = next(name for name in names if not os.path.lexists(name))
    image.write(path, psf.upright(kernel / kernel.max(), inverse(orientation)), bits=16)
    return path


def _check_arguments(args: argparse.Namespace) -> None:
    """Raise an error for arguments that exclude each other or have no effect, where the library does not check this."""
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
    """Return the image with a mask over pixels that are transparent, of weight 0 or hidden by a file.

    Any other pixel that is NaN or infinite is an error. If a linear method is named, transparent pixels are not hidden,
    although their colours are arbitrary: the linear formula allows no mask.
    """
    linear = args.method != "auto" and METHODS[args.method].linear
    hide = [metadata.alpha == 0] if metadata.alpha is not None and not linear else []
    hide += [args.weights[1] == 0] if args.weights else []
    hide += [args.mask[1]] if args.mask and not isinstance(args.mask[1], str) else []
    visible: np.ndarray = np.ma.masked_array(raw, np.zeros(raw.shape, bool)) if hide else raw
    for part in hide:
        part = part[..., None] if image.is_colour(raw) and part.ndim < raw.ndim else part
        with suppress(ValueError):  # another shape, which the library rejects
            visible[np.broadcast_to(part, raw.shape)] = np.ma.masked
    if raw.dtype.kind == "f":
        needed = "hide them: --mask FILE, not black there, or --weights FILE, 0 there (with --method auto or tv)"
        check_finite(np.ma.filled(visible, 0), args.input, needed)
    return visible


def _hints(args: argparse.Namespace, raw: np.ndarray, metadata: image.Metadata, least: float) -> list[str]:
    """Return options that suit this image, one line each; `least` is the smallest restored value."""
    lines, turned = [], metadata.orientation
    if turned != 1:
        lines.append(f"rotated     upright from orientation {turned} of {args.input}, and a PSF file with it")
    if raw.ndim - image.is_colour(raw) == 3:
        lines.append(f"axes        {in_words(metadata, raw.shape[1:], 2)}")
    if args.bounds is None and raw.dtype != np.uint8:
        levels = np.nanquantile(raw, (0, 0.5, 1), method="nearest")
        darkest, sky, brightest = image.as_float(levels).tolist()
        depth = darkest - least
        # The ringing of a photograph is small against its own shades; around a star or a lamp the sky is almost black.
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
    """Return one line with methods that restore a photograph better than a quadratic one, and their expected times.

    `taken` is the processor time of this restoration in seconds. The rest of the process's time, for imports and files,
    is added to each prediction. If a mask or weights made this restoration slow, another method takes at least half as
    long, since it estimates noise and λ in the same way.
    """
    pixels = result.problem.frames * int(np.prod(result.problem.operator.image_shape))
    times = {name: max(expected_seconds(name, pixels), taken / (2 * cores())) for name in _offers(result.problem)}
    words = "; ".join(f"--method {name}: {_about(time.process_time() - taken + s)}" for name, s in times.items())
    return [f"suggestion  {words}"] if words else []


def _offers(problem: Problem) -> list[str]:
    """Return the methods that suit photographs better than a quadratic one and can solve the problem; none if it is not
    quadratic.
    """
    other = partial(replace, problem, formula="tikhonov", inverse=False)
    methods = (METHODS[name] for name in ("tv", "collaborative"))
    return [m.name for m in methods if problem.quadratic and m.refuses(other(regularizer=m.regularizer)) is None]


def _about(seconds: float) -> str:
    """Return a predicted time in words, with no more digits than the prediction deserves."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s" if seconds >= 1 else "less than a second"


# ---------------------------------------------------------------------------------------------
# choose
# ---------------------------------------------------------------------------------------------


def choose(args: argparse.Namespace) -> int:
    """Show the method that `deblur reconstruct` takes if none is named, and the reason.

    Also show how long each method takes for an image of this size, and why the other methods cannot solve the problem.

    Parameters
    ----------
    --shape : size
        Size of the image.
    --psf : psf
        Image of one point after the blur.
    --channels : count = 1
        3 for colour.
    --lam : lam = auto
        Strength of the smoothing.
    --boundary : boundary = unknown
        How the scene continues beyond the frame. Without an image it cannot be detected.
    --formula : {tikhonov, hht}
    --dtype : {float32, float64} = float64
        Precision of the computation.
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
        ("cannot be used", choice.refused),
    ):
        if rows:
            print(f"\n{title}", *(f"  {name:<14}{words}" for name, words in rows.items()), sep="\n")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
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
    """Return the text of an error in one line, with Python's options written as those of the command."""
    text = re.sub(r"\b\w+=True(?:, (--[\w-]+)| \((--[\w-]+)\))", r"\1\2", " ".join(str(error).split()))
    names = "|".join(vars(args)) or "$"
    for known in (rf"\b({names})(=)", rf"^({names})()(?=,| must| is | has | holds )"):
        text = re.sub(known, lambda m: f"--{m[1].replace('_', '-')}{' ' * len(m[2])}", text)
    return text or type(error).__name__


def _fail(text: str, code: int) -> int:
    print(f"deblur: {text}", file=sys.stderr)
    return code
