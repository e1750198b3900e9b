"""The command ``deblur``.

Exit codes: 0, done; 1, the work was done and the answer cannot be trusted
(nothing is written); 2, a mistake in the request, said in one line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, image, metrics, psf
from .blur import BOUNDARIES, Blur
from .compare import command as compare
from .data import load, names
from .degrade import degrade
from .errors import ConvergenceError, MethodError, NoGPUError
from .methods import METHODS, choose_method
from .pipeline import check_lam, solve
from .regularization import RULES
from .solvers.base import FORMULAS
from .variational import METHODS as VARIATIONAL
from .variational import RULES as TUNING_RULES
from .variational.terms import DATA_TERMS


def _lam(text: str) -> float | str:
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    try:
        return check_lam(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _psf(text: str) -> np.ndarray:
    try:
        return psf.parse(text)
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mask(text: str) -> np.ndarray | str:
    if text == "auto":
        return text
    try:
        mask = image.read(text, as_float=False) > 0
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return np.any(mask, axis=-1) if image.is_colour(mask) else mask


def _bounds(text: str) -> tuple[float, float] | str:
    if text == "nonnegative":
        return text
    try:
        lo, hi = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"two numbers such as 0,1 are needed, not {text!r}") from None
    return lo, hi


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
    rec.add_argument("input", metavar="IN", help="blurred image: PNG, JPEG or TIFF, grey, colour or a stack")
    rec.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="restored image: .png, .jpg or .tif"
    )
    rec.add_argument("--psf", metavar="PSF", required=True, type=_psf, help="for example gaussian:9,1.2")
    rec.add_argument(
        "--lam",
        metavar="L",
        type=_lam,
        default="auto",
        help=f"regularisation parameter λ: a number or a rule ({', '.join(RULES)}; for the variational methods "
        f"{', '.join(TUNING_RULES)}); default auto, which is gcv, or the rule that is sound for the data term",
    )
    rec.add_argument(
        "--noise", type=float, metavar="S", help="standard deviation of the noise, 1 being white"
    )
    rec.add_argument(
        "--method", default="auto", choices=["auto", *METHODS, *VARIATIONAL], metavar="M", help=_method_help()
    )
    rec.add_argument(
        "--boundary",
        default="unknown",
        choices=BOUNDARIES,
        metavar="B",
        help=f"how the scene goes on beyond the frame: {', '.join(BOUNDARIES)}; default unknown, as in a photograph",
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
        choices=("zero", "smooth"),
        help="draw the scene towards zero, or towards the smoothed image (default with boundary unknown)",
    )
    rec.add_argument(
        "--mask",
        type=_mask,
        metavar="auto|FILE",
        help="pixels to hide: auto detects impulses, or an image of IN's rows and columns, not black where to hide",
    )
    rec.add_argument(
        "--data",
        choices=DATA_TERMS,
        metavar="D",
        help=f"noise model: {', '.join(DATA_TERMS)}; default gaussian",
    )
    rec.add_argument(
        "--bounds",
        type=_bounds,
        metavar="LO,HI|nonnegative",
        help="least and largest value of the scene, such as 0,1",
    )
    rec.add_argument(
        "--background", type=float, default=0.0, metavar="B", help="light that was not blurred; default 0"
    )
    rec.add_argument("--denoiser", metavar="NAME", help="for method pnp, such as nlm")
    rec.add_argument("--rtol", type=float, metavar="R", help="relative residual at which an iteration stops")
    rec.add_argument("--max-iterations", type=int, metavar="N", help="most iterations")
    rec.add_argument(
        "--bits", type=int, choices=(8, 16, 32), help="bits of OUT (32 is a float TIFF); default as IN has"
    )
    rec.add_argument("--force", action="store_true", help="replace OUT if it is there (never IN)")
    rec.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    rec.set_defaults(run=_reconstruct)

    demo = commands.add_parser(
        "demo",
        help="blur a photograph, restore it by every method, print the table",
        description="Blur a photograph that comes with deblur, restore it by every method, print a table of "
        "seconds, MSE, PSNR and residual, and write the pictures.",
    )
    demo.add_argument(
        "--image", default="camera64", choices=names(), help="which photograph; default camera64"
    )
    demo.add_argument(
        "--size", type=int, metavar="N", help="side of the crop in pixels; default 64, or as much as there is"
    )
    demo.add_argument("--psf", type=_psf, default="gaussian:7,1.2", help="default gaussian:7,1.2")
    demo.add_argument("--lam", type=_lam, default="gcv", help="default gcv")
    demo.add_argument("--noise", type=float, default=0.005, help="standard deviation; default 0.005")
    demo.add_argument("--seed", type=int, default=0, help="of the noise; default 0")
    demo.add_argument("--output", default="demo_output", metavar="DIR", help="folder for the pictures")
    demo.add_argument("--force", action="store_true", help="replace pictures that are there")
    demo.set_defaults(run=_demo)

    compare.add_parser(commands, _lam)

    choose = commands.add_parser(
        "choose",
        help="say which method auto would take, and why",
        description="Say which method would be taken for an image of this size, what each would cost by the "
        "cost model, and why the others cannot serve.",
    )
    choose.add_argument("--shape", required=True, metavar="ROWSxCOLUMNS", help="size of the image")
    choose.add_argument("--psf", type=_psf, required=True)
    choose.add_argument("--lam", type=float, default=1e-3, help="default 1e-3")
    choose.add_argument("--boundary", default="unknown", choices=BOUNDARIES, help="default unknown")
    choose.add_argument("--formula", default="tikhonov", choices=FORMULAS)
    choose.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    choose.set_defaults(run=_choose)
    return parser


def _method_help() -> str:
    rows = [f"{m.name}: {m.summary}" for table in (METHODS, VARIATIONAL) for m in table.values()]
    return "auto (default) or " + "; ".join(rows)


@contextmanager
def _progress(what: str, enabled: bool) -> Any:
    """A callback for iterations that shows a bar on a terminal, and nothing in a pipe."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit=" iterations", leave=False) as bar:

        def callback(iteration: int, residual: float) -> None:
            bar.update(iteration - bar.n)
            bar.set_postfix_str(f"residual {residual:.1e}", refresh=False)

        yield callback


# ---------------------------------------------------------------------------------------------
# reconstruct
# ---------------------------------------------------------------------------------------------


def _layout(img: np.ndarray) -> tuple[int | None, int | None]:
    """(channel_axis, stack_axis) of an image as `image.read` gives it."""
    channel_axis = img.ndim - 1 if image.is_colour(img) else None
    stack_axis = 0 if img.ndim - (channel_axis is not None) == 3 else None
    return channel_axis, stack_axis


def _variational(args: argparse.Namespace) -> bool:
    """Whether the linear formula is not what is asked for."""
    asked = (
        args.mask is not None,
        args.bounds is not None,
        args.data not in (None, "gaussian"),
        args.denoiser,
    )
    return args.method in VARIATIONAL or args.background != 0 or any(asked)


def _reconstruct(args: argparse.Namespace) -> int:
    image.check_readable(args.input)
    image.check_writable(args.output, args.force, inputs=[args.input])
    raw = image.read(args.input, as_float=False)
    bits = image.check_format(args.output, raw, args.bits)
    channel_axis, stack_axis = _layout(raw)
    prior = args.prior or "auto"
    if args.prior is None and args.boundary == "unknown" and not _variational(args):
        prior = "smooth"
    with _progress("deblur", not args.quiet) as callback:
        result = solve(
            raw,
            args.psf,
            args.lam,
            method=args.method,
            boundary=args.boundary,
            formula=args.formula,
            prior=prior,
            noise=args.noise,
            rtol=args.rtol,
            max_iterations=args.max_iterations,
            callback=callback,
            mask=args.mask,
            data=args.data,
            bounds=args.bounds,
            background=args.background,
            denoiser=args.denoiser,
            channel_axis=channel_axis,
            stack_axis=stack_axis,
        )
    clipped = image.write(args.output, result.image, bits=bits, overwrite=args.force)
    if not args.quiet:
        print(result)
        share = 100 * clipped / result.image.size
        print(
            f"written     {args.output}"
            + (f" ({share:.2g} % of the values clipped to [0, 1])" if clipped else "")
        )
    return 0


# ---------------------------------------------------------------------------------------------
# demo
# ---------------------------------------------------------------------------------------------

#: The boundary under which a method that serves only one is shown.
_OWN_BOUNDARY = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}


def _demo(args: argparse.Namespace) -> int:
    folder = Path(args.output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the pictures with --output")
    folder.mkdir(parents=True, exist_ok=True)
    figure = image.check_writable(folder / "demo.png", args.force)
    pictures = {
        name: image.check_writable(folder / f"{name}.png", args.force) for name in ("blurred", "restored")
    }
    photograph = load(args.image)
    margin = np.array(args.psf.shape) - 1
    most = int((np.array(photograph.shape[:2]) - margin).min())
    size = min(64, most) if args.size is None else args.size
    if not max(args.psf.shape) <= size <= most:
        raise ValueError(
            f"--size must lie between {max(args.psf.shape)}, the PSF's size, and {most} for {args.image!r}, not {size}"
        )

    # The same window of the photograph under every boundary. What lies beyond it is real in the case
    # "unknown"; for the others the scene is made to go on as the boundary assumes.
    top, left = ((np.array(photograph.shape[:2]) - size - margin) // 2).tolist()
    scene = photograph[top : top + size + margin[0], left : left + size + margin[1]]
    origin = [(m - 1) // 2 for m in args.psf.shape]
    at = [int(m) - o for m, o in zip(margin, origin, strict=True)]
    sharp = scene[at[0] : at[0] + size, at[1] : at[1] + size]
    print(
        f"{args.image}, {size} x {size} pixels, PSF {args.psf.shape[0]} x {args.psf.shape[1]}, "
        f"noise {args.noise:g}, λ {args.lam}"
    )

    header = (
        f"{'method':<17}{'boundary':<13}{'seconds':>9}{'lambda':>11}{'MSE':>11}{'PSNR dB':>9}{'residual':>11}"
    )
    print(header)
    print("-" * len(header))
    cases = [(name, _OWN_BOUNDARY.get(name, "zero")) for name in METHODS] + [("auto", "unknown")]
    shown: dict[str, Any] = {}
    blurred_by: dict[str, np.ndarray] = {}
    lam_by: dict[str, float] = {}
    failures = 0
    for name, boundary in cases:
        if boundary not in blurred_by:
            source = scene if boundary == "unknown" else sharp
            blurred = degrade(source, args.psf, noise=args.noise, boundary=boundary, seed=args.seed)
            blurred_by[boundary] = blurred
            _row("blurred", boundary, None, None, sharp, blurred, None)
        blurred = blurred_by[boundary]
        try:
            with _progress(name, True) as callback:
                # One λ for all methods of one boundary: they solve the same problem.
                result = solve(
                    blurred,
                    args.psf,
                    lam_by.get(boundary, args.lam),
                    method=name,
                    boundary=boundary,
                    callback=callback,
                )
        except MethodError as error:
            print(f"{name:<17}{boundary:<13}not for this PSF: {str(error).partition(': ')[2]}")
            continue
        except ConvergenceError as error:
            print(f"{name:<17}{boundary:<13}failed: {error}")
            failures += 1
            continue
        lam_by.setdefault(boundary, result.lam)
        label = f"auto: {result.method}" if name == "auto" else name
        _row(label, boundary, result.seconds, result.lam, sharp, result.image, result.residual)
        shown[f"{label}\n{boundary}"] = result.image
    best = shown[next(reversed(shown))] if shown else None
    if best is not None:
        image.write(pictures["blurred"], blurred_by["unknown"], overwrite=args.force)
        image.write(pictures["restored"], best, overwrite=args.force)
        _demo_figure(figure, sharp, blurred_by["unknown"], shown)
        print(f"\nwritten: {figure}, {pictures['blurred']}, {pictures['restored']}")
    print(
        "residual: of the linear system, measured with the blur itself. The first λ of each boundary is chosen "
        "by the rule and used for all its methods."
    )
    return 1 if failures else 0


def _row(
    name: str,
    boundary: str,
    seconds: float | None,
    lam: float | None,
    sharp: np.ndarray,
    picture: np.ndarray,
    residual: float | None,
) -> None:
    cells = [
        f"{seconds:9.3f}" if seconds is not None else " " * 9,
        f"{lam:11.2e}" if lam is not None else " " * 11,
        f"{metrics.mse(sharp, picture):11.2e}{metrics.psnr(sharp, picture):9.2f}",
        f"{residual:11.1e}" if residual is not None else "",
    ]
    print(f"{name:<17}{boundary:<13}" + "".join(cells), flush=True)


def _demo_figure(path: Path, sharp: np.ndarray, blurred: np.ndarray, shown: dict[str, np.ndarray]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {"sharp": sharp, "blurred\nunknown": blurred} | shown
    columns = 5
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, (title, picture) in zip(axes, panels.items(), strict=False):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        note = "" if picture is sharp else f"  {metrics.psnr(sharp, picture):.1f} dB"
        ax.set_title(title + note, fontsize=9)
    figure.savefig(path, dpi=120)


# ---------------------------------------------------------------------------------------------
# choose
# ---------------------------------------------------------------------------------------------


def _choose(args: argparse.Namespace) -> int:
    try:
        rows, columns = (int(n) for n in args.shape.lower().split("x"))
    except ValueError:
        raise ValueError(f"--shape must be ROWSxCOLUMNS such as 480x640, not {args.shape!r}") from None
    if not isinstance(check_lam(args.lam), float):
        raise ValueError("--lam must be a number here")
    choice = choose_method(
        Blur(args.psf, (rows, columns), args.boundary), args.lam, formula=args.formula, dtype=args.dtype
    )
    print(choice)
    print("\npredicted seconds (cost model of one machine, to rank by)")
    for name, seconds in choice.seconds.items():
        print(f"  {name:<14}{seconds:10.2g}")
    if choice.refused:
        print("\ncannot serve")
        for name, why in choice.refused.items():
            print(f"  {name:<14}{why}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except ConvergenceError as error:
        print(f"deblur: {error}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError, MemoryError, NoGPUError, ImportError) as error:
        # numpy.linalg.LinAlgError, and with it SingularMatrixError, is a ValueError.
        print(f"deblur: {error or type(error).__name__}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("deblur: interrupted; nothing was written", file=sys.stderr)
        return 130
