"""The command ``deblur``.

Exit codes: 0, done; 1, the work was done and the answer cannot be trusted
(nothing is written); 2, a mistake in the request, said in one line; 130,
interrupted by Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf, psf_command, terminal
from .arguments import Parser, add_arguments, add_command
from .blind import blind
from .demo import demo
from .device import CPU
from .errors import ConvergenceError, NoGPUError
from .image.light import measured
from .masks import saturated
from .methods import METHODS, choose_method, expected_seconds
from .operators.blur import Blur
from .options import defaults
from .pipeline import solve_into
from .problem import Problem
from .progress import report_phase
from .result import Result
from .tiles import command as tiles
from .tuning import RULES
from .version import __version__


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
    psf_command.add_parser(commands)
    commands.add_parser(
        "compare", help="Compare methods on the same images: tables and a page"
    ).fill = _compare
    return parser


def _compare(parser: Parser) -> None:
    from .compare import command  # and with it every package that is compared with

    command.fill(parser)


# ---------------------------------------------------------------------------------------------
# reconstruct
# ---------------------------------------------------------------------------------------------


def reconstruct(args: argparse.Namespace) -> int:
    """Restore a blurred image file.

    The point spread function (PSF) is given by --psf, or as one that varies by --psf-grid, or estimated by --blind.
    If OUT is a .zarr, IN is a zarr array, OME-Zarr or an uncompressed TIFF, restored tile by tile; --tolerance and the
    options after it belong to that.

    Parameters
    ----------
    input : in
        Blurred image: PNG, JPEG, TIFF or FITS, grey, colour or a stack; /dev/stdin for a pipe; or a .zarr.
    -o, --output : out
        Restored image: .png, .jpg, .tif, .fits or .zarr.
    --psf : psf, optional
        What one point became by the blur, such as gaussian:9,1.2.
    --blind : size, optional
        Camera shake blurred the image and the PSF is unknown: estimate it from the image itself. The size is the
        largest that it may have; a third more than it has does no harm.
    --psf-grid : path, optional
        PSFs that vary across the image: a folder with a file for each position, row by row; an .npy file (rows,
        columns, m, n), an .npz that deblur psf points --grid wrote; or an image of stars or beads, from which they are
        measured.
    --grid : size, optional
        Positions of --psf-grid, for example 5x5.
    --lam : lam = auto
        How much is smoothed; auto is gcv, or the rule that is sound for the noise model.
    --noise : brightness
    --method : method
    --boundary : boundary|auto
    --formula : {tikhonov, hht}
    --prior : {auto, zero, smooth, natural}
    --mask : mask
    --gamma : {srgb}
    --data : {gaussian, poisson, l1, huber}
    --bounds : bounds
    --background : brightness
    --dtype : {float32, float64}
    --denoiser : text
    --rtol : number
    --max-iterations : int
    --bits : {8, 16, 32}, optional
        Bits of OUT, 32 being a float TIFF; by default those of IN. In a float TIFF white is 1, but integers other than
        8 or 16 bits without a sign keep their unit.
    --clip : flag
        Write OUT even if more than a tenth of its pixels are clipped.
    --rescale : flag
        Make the least value of OUT black and the largest white.
    --force : flag
        Replace OUT if it is there (never IN or another input).
    -q, --quiet : flag
        Print nothing but errors.
    """
    _check_arguments(args)
    source, kernel = args.psf or (args.psf_grid or "", None)
    # Every option of the library has its name here; an argument that may name a file is (text, value).
    options: Any = {name: getattr(args, name) for name in defaults() if hasattr(args, name)}
    options["mask"] = args.mask and args.mask[1]
    if tiles.wants(args):
        return tiles.reconstruct(args, kernel, options)
    image.check_readable(args.input)
    inputs = [args.input, source, *([args.mask[0]] if args.mask else [])]
    image.check_writable(args.output, args.force, inputs=inputs)
    with terminal.progress("deblur", not args.quiet) as show:
        report_phase("reading")
        raw, metadata = image.read_with_metadata(args.input)
        bits = image.check_format(args.output, raw, args.bits)
        if bits == 32 and (args.clip or args.rescale):
            option = "--clip" if args.clip else "--rescale"
            raise ValueError(f"{option} does nothing here: a float file holds every number; leave it out")
        if args.psf:
            _check_is_psf(args.input, raw, *args.psf)
        colour = image.is_colour(raw)
        stack = raw.ndim - colour == 3
        axes: Any = {"channel_axis": raw.ndim - 1 if colour else None, "stack_axis": 0 if stack else None}
        visible = _without_transparent(raw, metadata, args.method)
        options["callback"] = terminal.iterations(show)
        if args.psf_grid:
            options["psfs"] = psf.load_grid(args.psf_grid, args.grid)
        grey_levels = raw.dtype in (np.uint8, np.uint16) and not colour
        # A stack of levels may be large: it becomes levels again part by part.
        in_parts = stack and grey_levels and bits != 32 and not (args.rescale or args.blind)
        levels, report = image.Levels(args.output, raw, bits) if in_parts else None, ""
        if args.blind:
            if options["method"] == "auto":
                del options["method"]  # the one that suits an estimated PSF
            report_phase("PSF")
            found = blind(visible, args.blind, args.lam, progress=show, **axes, **options)
            result, status = found.result, found.psf.status
            if not status.ok:
                raise ConvergenceError(
                    f"the PSF estimated from {args.input} is {status.value}: {found.psf.why}. Try another size, or a "
                    "part of the image with strong edges; deblur psf blurred --anyway writes the PSF",
                    result,
                )
            report = f"{found.psf}\n\n"
        else:
            result = solve_into(levels, visible, kernel, args.lam, options, **axes)
        hints = _hints(args, raw, metadata)
        report_phase("writing")
        if levels is None:
            changes = {"clip": args.clip, "rescale": args.rescale}
            picture, remark = image.fit_to_levels(args.output, result.image, raw, bits, **changes)
        else:
            picture, remark = levels.samples, ""
            if not args.clip:
                levels.check()
            del raw, visible
        clipped = image.write(args.output, picture, bits=bits, overwrite=args.force, metadata=metadata)
        clipped = clipped if levels is None else levels.clipped
    if not args.quiet:
        remarks = [remark] if remark else []
        if clipped:
            remarks.append(f"{100 * clipped / picture.size:.3g} % of the values clipped to black or white")
        written = f"{args.output} ({'; '.join(remarks)})" if remarks else args.output
        lines = [f"{report}{result}", f"written     {written}"]
        if metadata.orientation != 1:
            lines.append(f"rotated     upright from orientation {metadata.orientation} of {args.input}")
        lines += [*hints, *_suggestion(result)]
        if dropped := image.left_out(args.output, picture, bits, metadata):
            lines.append(f"dropped     metadata that {args.output} cannot hold: {', '.join(dropped)}")
        terminal.report("\n".join(lines))
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuse arguments that exclude each other or do nothing, where the library does not refuse them itself."""
    if sum(x is not None for x in (args.psf, args.blind, args.psf_grid)) != 1:
        raise ValueError("exactly one of --psf, --blind and --psf-grid is required")
    if args.clip and args.rescale:
        raise ValueError("--clip is not allowed with --rescale")
    if args.grid and not args.psf_grid:
        raise ValueError("--grid belongs to --psf-grid")
    linear = args.method == "auto" or METHODS[args.method].linear
    if args.prior != "auto" and not linear:
        raise ValueError("--prior does nothing here: it belongs to the linear formula; leave it out")
    uses_noise = isinstance(args.lam, str) and (args.lam == "auto" or RULES[args.lam].noise or not linear)
    if args.noise is not None and not uses_noise and args.data != "huber":
        raise ValueError(f"--noise does nothing here: --lam {args.lam} does not use it; leave it out")


def _check_is_psf(source: str, picture: np.ndarray, text: str, kernel: np.ndarray) -> None:
    """Refuse the blurred image itself as its PSF, from the same file or with the same values."""
    same = Path(text).is_file() and Path(source).is_file() and Path(text).samefile(source)
    if not same and kernel.shape == picture.shape:
        total = picture.sum(dtype=np.float64)
        same = total != 0 and np.allclose(kernel, picture / total, rtol=1e-6, atol=0)
    if same:
        raise ValueError(
            f"--psf {text} is the blurred picture itself; the PSF is what a point became by the blur, such as "
            "gaussian:9,1.2 or the cut-out picture of a star"
        )


def _without_transparent(raw: np.ndarray, metadata: image.Metadata, method: str) -> np.ndarray:
    """The image with wholly transparent pixels masked, whose colours are arbitrary.

    A method of the linear formula, if one is named, takes them as they are.
    """
    if metadata.alpha is None or (method != "auto" and METHODS[method].linear) or metadata.alpha.all():
        return raw
    alpha = metadata.alpha[..., None] if image.is_colour(raw) else metadata.alpha
    return np.ma.masked_array(raw, np.broadcast_to(alpha == 0, raw.shape))


def _hints(args: argparse.Namespace, raw: np.ndarray, metadata: image.Metadata) -> list[str]:
    """Options that suit this image, one line each."""
    lines = []
    levels = raw.dtype.kind == "u" and not measured(raw)
    if levels and metadata.camera and args.gamma is None:
        lines.append(
            f"hint        taken with a camera ({metadata.camera}): --gamma srgb restores light, which is what "
            "a lens blurs, and not its numbers"
        )
    # Masking fewer clipped pixels helps little, and more of them are white paper.
    if levels and args.mask is None and float((raw == raw.max()).mean()) > 1e-4:
        share = float(saturated(np.moveaxis(raw, -1, 0) if image.is_colour(raw) else raw).mean())
        if 1e-4 < share < 0.2:
            lines.append(
                f"hint        {100 * share:.2g} % of the pixels are clipped to white or next to such: --mask saturated "
                "leaves them out, best with --method tv --bounds nonnegative"
            )
    return lines


def _suggestion(result: Result) -> list[str]:
    """Methods that restore a photograph better than the linear formula, and how long they take, in one line."""
    if not METHODS[result.method].linear:
        return []
    offers = _offers(result.problem)
    words = [f"--method {name}" + (f": {_about(s)}" if s is not None else "") for name, s in offers.items()]
    return [f"suggestion  {'; '.join(words)}"] if words else []


def _offers(problem: Problem) -> dict[str, float | None]:
    """The methods beyond the linear formula that suit photographs and serve the problem, with their seconds."""
    pixels = problem.frames * int(np.prod(problem.operator.image_shape))
    offered = {}
    for name in ("tv", "collaborative"):
        other = replace(problem, regularizer=METHODS[name].regularizer, formula="tikhonov", inverse=False)
        if METHODS[name].refuses(other) is None:
            offered[name] = expected_seconds(name, pixels, problem.device)
    return offered


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
    --channels : int = 1
        3 for colour.
    --lam : lam = auto
        How much is smoothed.
    --boundary : boundary = unknown
    --formula : {tikhonov, hht}
    --dtype : {float32, float64} = float64
    """
    if args.channels < 1:
        raise ValueError(f"--channels must be at least 1, not {args.channels}")
    blur = Blur(args.psf[1], args.shape, args.boundary)
    choice = choose_method(blur, args.lam, dtype=args.dtype, frames=args.channels, formula=args.formula)
    usual = Problem(blur, 0.0, dtype=np.dtype(args.dtype), frames=args.channels)
    pixels = args.channels * int(np.prod(args.shape))
    serving = (choice.method, *choice.others)
    print(choice)
    for title, rows in (
        ("expected time of a call on this machine", {n: expected_seconds(n, pixels, CPU) for n in serving}),
        ("better images, for longer", _offers(usual)),
    ):
        print(f"\n{title}")
        for name, seconds in rows.items():
            print(f"  {name:<14}{'not known' if seconds is None else _about(seconds)}")
    if choice.refused:
        print("\ncannot serve")
        for name, why in choice.refused.items():
            print(f"  {name:<14}{why}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # λ is not in every encoding
    try:
        with terminal.interruptible(), terminal.warnings_in_words():
            args = _parser().parse_args(argv)
            run: Callable[[argparse.Namespace], int] = args.run
            code = run(args)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except ConvergenceError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        terminal.abandon_stdout()
        return 128 + 13  # as if SIGPIPE had ended it
    except (ValueError, TypeError, OSError, MemoryError, NoGPUError, ImportError) as error:
        # numpy.linalg.LinAlgError, and with it SingularMatrixError, is a ValueError.
        return _fail(error, 2)
    except KeyboardInterrupt:
        print(terminal.INTERRUPTED, file=sys.stderr)
        return 130


def _fail(error: BaseException, code: int) -> int:
    print(f"deblur: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return code
