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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import demo, image, psf, psf_command, terminal
from .blind import blind
from .costs import file_seconds
from .errors import ConvergenceError, NoGPUError
from .image.light import GAMMAS, measured
from .masks import saturated
from .methods import METHODS, better, choose_method, seconds_in_words
from .operators.blur import Blur
from .operators.boundary import BOUNDARIES
from .options import DETECTORS, PRIORS, Options, check_lam, defaults
from .pipeline import solve_into
from .problem import FORMULAS, Problem
from .terminal import rows_by_columns
from .terms import FITS
from .tiles import command as tiles
from .tuning import RULES
from .version import __version__

#: Shares of clipped pixels between which hiding them may help: fewer spoil little, and white paper is no clipped lamp.
_CLIPPED = 1e-4, 0.2


class _Given(NamedTuple):
    """An option's text, which may name a file that must not be written over, and what it stands for."""

    text: str
    value: Any


def _lam(text: str) -> float | str:
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    try:
        return check_lam(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _psf(text: str) -> _Given:
    try:
        return _Given(text, psf.parse(text))
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mask(text: str) -> _Given:
    if text in DETECTORS:
        return _Given(text, text)
    try:
        mask = image.read(text, as_float=False) > 0
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return _Given(text, np.any(mask, axis=-1) if image.is_colour(mask) else mask)


def _bounds(text: str) -> tuple[float, float] | str:
    if text == "nonnegative":
        return text
    try:
        lo, hi = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"two numbers such as 0,1 are needed, not {text!r}") from None
    return lo, hi


def _parser() -> argparse.ArgumentParser:
    parser = terminal.Parser(
        prog="deblur",
        description="Restore blurred images: the blur is a matrix, and deblur inverts it with care.",
        epilog="`deblur COMMAND --help` says more of each command.",
    )
    parser.add_argument("--version", action="version", version=f"deblur {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    rec = commands.add_parser(
        "reconstruct",
        help="restore an image file",
        description="Restore a blurred image file, given the point spread function (PSF).",
        epilog="PSF forms: " + "; ".join(psf.FORMS) + ". Sizes are in pixels, angles in degrees.",
    )
    rec.add_argument(
        "input",
        metavar="IN",
        help="blurred image: PNG, JPEG, TIFF or FITS, grey, colour or a stack; /dev/stdin for a pipe; or a .zarr",
    )
    rec.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="restored image: .png, .jpg, .tif or .fits"
    )
    blur = rec.add_mutually_exclusive_group(required=True)
    blur.add_argument("--psf", metavar="PSF", type=_psf, help="for example gaussian:9,1.2")
    blur.add_argument(
        "--blind",
        metavar="SIZE",
        type=rows_by_columns,
        help="a trembling hand blurred IN, nobody knows how: estimate the PSF from IN itself; SIZE, such as 25, is "
        "what it has at most, and a third more than it has does no harm",
    )
    blur.add_argument(
        "--psf-grid",
        metavar="PATH",
        help="PSFs that vary across the picture: a folder with a file for each place, row by row; an .npy file (rows, "
        "columns, m, n), an .npz that deblur psf points --grid wrote; or a picture of stars or beads, from which they "
        "are measured",
    )
    rec.add_argument(
        "--grid", metavar="ROWSxCOLUMNS", type=rows_by_columns, help="places of --psf-grid, for example 5x5"
    )
    rec.add_argument(
        "--lam",
        metavar="L",
        type=_lam,
        default="auto",
        help=f"regularisation parameter λ: a number or a rule ({', '.join(RULES)}); default auto, which is gcv, or the "
        "rule that is sound for the data term",
    )
    rec.add_argument(
        "--noise",
        type=float,
        metavar="S",
        help="standard deviation of the noise, in the unit of --bounds: 1 is white",
    )
    rec.add_argument("--method", default="auto", choices=["auto", *METHODS], metavar="M", help=_method_help())
    rec.add_argument(
        "--boundary",
        default="auto",
        choices=["auto", *BOUNDARIES],
        metavar="B",
        help=f"how the scene goes on beyond the frame: {', '.join(BOUNDARIES)}; default auto, which reads it off the "
        "picture",
    )
    rec.add_argument(
        "--formula",
        default="tikhonov",
        choices=FORMULAS,
        metavar="F",
        help="tikhonov (default), or hht as the thesis writes it (needs a boundary other than unknown)",
    )
    rec.add_argument(
        "--prior",
        default="auto",
        choices=PRIORS,
        help="draw the scene towards the smoothed image (natural: with neighbouring pixels alike, the default where "
        "λ is not given and there is noise), or towards zero (default where another boundary than unknown is named and "
        "there is none)",
    )
    rec.add_argument(
        "--mask",
        type=_mask,
        metavar=f"{'|'.join(DETECTORS)}|FILE",
        help="pixels to hide: auto detects impulses, saturated what the sensor clipped; or an image of IN's rows and "
        "columns, not black where to hide",
    )
    rec.add_argument(
        "--gamma",
        choices=GAMMAS,
        metavar="G",
        help=f"{', '.join(GAMMAS)}: undo the curve by which a camera's numbers stand for light, restore the light, put "
        "it back; right for what a lens or a shaking hand blurred, not for what a program did",
    )
    rec.add_argument(
        "--data",
        choices=FITS,
        metavar="D",
        help=f"noise model: {', '.join(FITS)}; default gaussian",
    )
    rec.add_argument(
        "--bounds",
        type=_bounds,
        metavar="LO,HI|nonnegative",
        help="least and largest value of the scene, such as 0,1; 0 is black and 1 the largest number of an integer "
        "IN (255 of 8 bits), a float IN has its own unit",
    )
    rec.add_argument(
        "--background",
        type=float,
        default=0.0,
        metavar="B",
        help="light that was not blurred, in the unit of --bounds; default 0",
    )
    rec.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        help="what is computed in; default float32 where it is enough, as for 8 and 16 bits",
    )
    rec.add_argument("--denoiser", metavar="NAME", help="for method pnp, such as nlm")
    rec.add_argument("--rtol", type=float, metavar="R", help="relative residual at which an iteration stops")
    rec.add_argument("--max-iterations", type=int, metavar="N", help="most iterations")
    rec.add_argument(
        "--bits",
        type=int,
        choices=(8, 16, 32),
        help="bits of OUT, 32 being a float TIFF; default as IN has. In a float TIFF white is 1, "
        "but of integers other than 8 or 16 bits without a sign it keeps the unit",
    )
    beyond = rec.add_mutually_exclusive_group()
    beyond.add_argument(
        "--clip", action="store_true", help="write OUT even if more than a tenth of its pixels are clipped"
    )
    beyond.add_argument(
        "--rescale", action="store_true", help="make the least value of OUT black and the largest white"
    )
    rec.add_argument(
        "--force", action="store_true", help="replace OUT if it is there (never IN or another input)"
    )
    rec.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    tiles.add_arguments(rec)
    rec.set_defaults(run=_reconstruct)

    demo.add_parser(commands, _psf, _lam)
    commands.add_parser(
        "compare", help="compare methods on the same pictures; tables and a page to look at"
    ).fill = _fill_compare
    tiles.add_parser(commands, _psf)

    psf_command.add_parser(commands, _psf)

    choose = commands.add_parser(
        "choose",
        help="say which method auto would take, and why",
        description="Say which method would be taken for an image of this size, what each would cost by the "
        "cost model, and why the others cannot serve.",
    )
    choose.add_argument("--shape", required=True, metavar="ROWSxCOLUMNS", help="size of the image")
    choose.add_argument("--psf", type=_psf, required=True)
    choose.add_argument("--channels", type=int, default=1, metavar="N", help="3 for colour; default 1")
    choose.add_argument(
        "--lam", type=_lam, default="auto", help="λ, or the rule that chooses it; default auto"
    )
    choose.add_argument("--boundary", default="unknown", choices=BOUNDARIES, help="default unknown")
    choose.add_argument("--formula", default="tikhonov", choices=FORMULAS)
    choose.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "float64"),
        help="default float32, as for 8 and 16 bits",
    )
    choose.set_defaults(run=_choose)
    return parser


def _fill_compare(parser: argparse.ArgumentParser) -> None:
    from .compare import command  # and with it every package that is compared with

    command.add_arguments(parser, _lam)


def _method_help() -> str:
    return "auto (default) or " + "; ".join(f"{m.name}: {m.summary}" for m in METHODS.values())


# ---------------------------------------------------------------------------------------------
# reconstruct
# ---------------------------------------------------------------------------------------------


def _layout(img: np.ndarray) -> tuple[int | None, int | None]:
    """(channel_axis, stack_axis) of an image as `image.read` gives it."""
    channel_axis = img.ndim - 1 if image.is_colour(img) else None
    stack_axis = 0 if img.ndim - (channel_axis is not None) == 3 else None
    return channel_axis, stack_axis


def _options(args: argparse.Namespace) -> Options:
    """What the command line says of the library's options: each row has its option's name."""
    given: Any = {name: getattr(args, name) for name in defaults() if hasattr(args, name)}
    return {name: value.value if isinstance(value, _Given) else value for name, value in given.items()}  # type: ignore[return-value]


def _check_used(args: argparse.Namespace, bits: int) -> None:
    """Refuse options that would do nothing, and that the library does not refuse itself."""
    direct = args.method != "auto" and not METHODS[args.method].iterative
    for idle, option, why in (
        (
            args.denoiser is not None and args.method not in ("auto", "pnp"),
            "--denoiser",
            f"it belongs to --method pnp, not to {args.method}",
        ),
        (
            args.prior != "auto" and args.method != "auto" and not METHODS[args.method].linear,
            "--prior",
            "it belongs to the linear formula",
        ),
        (
            args.noise is not None and not _looks_at_noise(args),
            "--noise",
            f"--lam {args.lam} does not look at it",
        ),
        (args.rtol is not None and direct, "--rtol", f"{args.method} does not iterate"),
        (args.max_iterations is not None and direct, "--max-iterations", f"{args.method} does not iterate"),
        (args.clip and bits == 32, "--clip", "a float file holds every number"),
        (args.rescale and bits == 32, "--rescale", "a float file holds every number"),
    ):
        if idle:
            raise ValueError(f"{option} does nothing here: {why}; leave it out")


def _looks_at_noise(args: argparse.Namespace) -> bool:
    if args.data == "huber":
        return True
    linear = args.method == "auto" or METHODS[args.method].linear
    if args.lam == "auto":
        return not linear or any((args.mask, args.bounds, args.background, args.denoiser, args.data))
    return isinstance(args.lam, str) and (RULES[args.lam].noise or not linear)


def _check_is_psf(given: _Given, source: str, picture: np.ndarray) -> None:
    """Refuse the blurred picture itself in the place of its PSF."""
    same = Path(given.text).is_file() and Path(source).is_file() and Path(given.text).samefile(source)
    if not same and given.value.shape == picture.shape:
        total = picture.sum(dtype=np.float64)
        same = total != 0 and np.allclose(given.value, picture / total, rtol=1e-6, atol=0)
    if same:
        raise ValueError(
            f"--psf {given.text} is the blurred picture itself; the PSF is what a point became by the blur, such as "
            "gaussian:9,1.2 or the cut-out picture of a star"
        )


def _seen(raw: np.ndarray, metadata: image.Metadata, method: str) -> np.ndarray:
    """The picture without the pixels that are wholly transparent: what colour they have, nobody knows.

    A method of the linear formula, if one is named, takes them as they are.
    """
    if metadata.alpha is None or (method != "auto" and METHODS[method].linear):
        return raw
    hidden = metadata.alpha == 0
    if not hidden.any():
        return raw
    return np.ma.masked_array(
        raw, np.broadcast_to(hidden[..., None] if image.is_colour(raw) else hidden, raw.shape)
    )


def _hints(args: argparse.Namespace, raw: np.ndarray, metadata: image.Metadata) -> list[str]:
    """What would have suited this picture better, one line each."""
    lines = []
    levels = raw.dtype.kind == "u" and not measured(raw)
    if levels and metadata.camera and args.gamma is None:
        lines.append(
            f"hint        taken with a camera ({metadata.camera}): --gamma srgb restores light, which is what "
            "a lens blurs, and not its numbers"
        )
    if levels and args.mask is None and float((raw == raw.max()).mean()) > _CLIPPED[0]:
        channels = np.moveaxis(raw, -1, 0) if image.is_colour(raw) else raw
        share = float(saturated(channels).mean())
        if _CLIPPED[0] < share < _CLIPPED[1]:
            lines.append(
                f"hint        {100 * share:.2g} % of the pixels are clipped to white or next to such: --mask saturated "
                "hides them, best with --method tv --bounds nonnegative"
            )
    return lines


def _levels(
    args: argparse.Namespace, raw: np.ndarray, channel_axis: int | None, stack_axis: int | None, bits: int
) -> image.Levels | None:
    """Where a stack of grey levels goes that becomes levels again; None where a picture is made whole."""
    stack = stack_axis is not None and channel_axis is None and raw.dtype in (np.uint8, np.uint16)
    return image.Levels(args.output, raw, bits) if stack and bits != 32 and not args.rescale else None


def _about(seconds: float) -> str:
    """A prediction in words, as coarse as it is."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s" if seconds >= 1 else "less than a second"


def _reconstruct(args: argparse.Namespace) -> int:
    given = args.psf or _Given(args.psf_grid or "", None)
    if args.grid and not args.psf_grid:
        raise ValueError("--grid belongs to --psf-grid")
    if tiles.wants(args):
        if args.psf_grid:
            raise ValueError("--psf-grid is not served by tiles: restore the picture whole")
        if args.blind:
            raise ValueError(
                "--blind is not served by tiles: estimate the PSF first (deblur psf blurred IN --size N -o psf.npy), "
                "and pass it with --psf"
            )
        return tiles.reconstruct(args, given.value, _options(args))
    inputs = [args.input, given.text, *([args.mask.text] if args.mask else [])]
    image.check_readable(args.input)
    image.check_writable(args.output, args.force, inputs=inputs)
    with terminal.progress("deblur", not args.quiet) as shown:
        shown.phase("reading")
        raw, metadata = image.read_with_metadata(args.input)
        bits = image.check_format(args.output, raw, args.bits)
        _check_used(args, bits)
        if args.psf:
            _check_is_psf(args.psf, args.input, raw)
        channel_axis, stack_axis = _layout(raw)
        seen = _seen(raw, metadata, args.method)
        options: Options = {**_options(args), "callback": shown.iterated}
        if args.psf_grid:
            options["psfs"] = psf.load_grid(args.psf_grid, args.grid)
        axes: Any = {"channel_axis": channel_axis, "stack_axis": stack_axis}
        writing = file_seconds("write", Path(args.output).suffix.lower(), raw.size * bits / 8)
        shown.after(writing)
        estimate = levels = None
        if args.blind:
            if options["method"] == "auto":
                del options["method"]  # the one that suits an estimated PSF
            told = lambda i, n: shown.phase(f"PSF, {i} of {n} done")  # noqa: E731
            found = blind(seen, args.blind, args.lam, progress=told, **axes, **options)
            estimate, result = found.psf, found.result
            if not estimate.status.ok:
                raise ConvergenceError(
                    f"the PSF estimated from {args.input} is {estimate.status.value}: {estimate.why}. Try another "
                    "size, or a part of the picture with strong edges; deblur psf blurred --anyway writes the PSF",
                    result,
                )
        else:
            levels = _levels(args, raw, channel_axis, stack_axis, bits)  # a stack may be large
            result = solve_into(levels, seen, given.value, args.lam, options, **axes)
        hints = _hints(args, raw, metadata)
        shown.phase("writing", writing)
        if levels is None:
            picture, remark = image.fit_to_levels(
                args.output, result.image, raw, bits, clip=args.clip, rescale=args.rescale
            )
        else:
            picture, remark = levels.samples, ""
            if not args.clip:
                levels.check()
            del raw, seen
        clipped = image.write(args.output, picture, bits=bits, overwrite=args.force, metadata=metadata)
        if levels is not None:
            clipped = levels.clipped
    if not args.quiet:
        remarks = [remark] if remark else []
        if clipped:
            remarks.append(f"{100 * clipped / picture.size:.3g} % of the values clipped to black or white")
        lines = [] if estimate is None else [f"{estimate}\n"]
        lines += [str(result), f"written     {args.output}" + (f" ({'; '.join(remarks)})" if remarks else "")]
        if metadata.orientation != 1:
            lines.append(
                f"turned      upright, as the camera's mark in {args.input} says (orientation {metadata.orientation}); "
                f"{args.output} needs none"
            )
        lines += hints
        if METHODS[result.method].linear and (
            others := better(result.problem, args.lam, args.boundary == "auto")
        ):
            offers = "; ".join(f"--method {name}: {_about(seconds)}" for name, seconds in others.items())
            lines.append(f"better      {offers}")
        left_out = image.left_out(args.output, picture, bits, metadata)
        if left_out:
            lines.append(f"left out    {', '.join(left_out)}: not kept in {args.output}")
        terminal.report("\n".join(lines))
    return 0


# ---------------------------------------------------------------------------------------------
# choose
# ---------------------------------------------------------------------------------------------


def _choose(args: argparse.Namespace) -> int:
    try:
        rows, columns = (int(n) for n in args.shape.lower().split("x"))
    except ValueError:
        raise ValueError(f"--shape must be ROWSxCOLUMNS such as 480x640, not {args.shape!r}") from None
    if args.channels < 1:
        raise ValueError(f"--channels must be at least 1, not {args.channels}")
    blur = Blur(args.psf.value, (rows, columns), args.boundary)
    options: Any = {"dtype": args.dtype, "frames": args.channels, "formula": args.formula}
    choice = choose_method(blur, args.lam, **options)
    print(choice)
    print("\npredicted time of a call on this machine")
    for name, seconds in choice.seconds.items():
        print(f"  {name:<14}{seconds_in_words(seconds):>10}")
    print("\nbetter pictures, for longer")
    usual = Problem(blur, 0.0, dtype=np.dtype(args.dtype), frames=args.channels)
    for name, seconds in better(usual, args.lam, False).items():
        print(f"  {name:<14}{seconds_in_words(seconds):>10}")
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
