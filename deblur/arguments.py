"""Build the parsers of the command from docstrings.

The docstring of the function that runs a command declares the arguments, in the form of numpydoc:

    --size : size, optional
        Rows and columns of the PSF.

A name with dashes is an option; any other name is positional. The text after the colon begins with the kind of the
value: a row of `KINDS`, a set of choices such as {8, 16, 32}, or "flag". It may go on with "optional", with "several"
(at least one value), with "repeated" (the option may be given more than once), or with "= " and the default. An option
with none of these is required. An entry without a description is an option of the library: its description and default
are those that `deblur.options.Options` declares.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from . import data, image, psf
from .degradation import NOISES
from .errors import nearest
from .image.axes import chosen
from .methods import METHODS
from .operators.boundary import BOUNDARIES
from .options import DETECTORS, Options, check_lam, defaults
from .psf.forms import parse_with_voxel
from .tuning import RULES


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that reports an error in one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf)")  # matches -1,1 and -1e-3 too

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments; an unknown argument is an error of the subcommand that met it."""
        parsed, rest = super().parse_known_args(*args, **kwargs)
        if rest and rest[0].startswith("-"):
            known = {option: option for option in self._option_string_actions}
            self.error(f"there is no option {rest[0]}{nearest(rest[0].partition('=')[0], known)}")
        if rest:
            self.error(f"unexpected {rest[0]!r}: name all files in one place; an option takes the word after it")
        return parsed, rest

    def _parse_optional(self, arg_string: str) -> Any:
        """As argparse has it, but a name that is no option and begins with a dash is that of a file, if it is there."""
        known = arg_string.partition("=")[0] in self._option_string_actions
        return None if os.path.exists(arg_string) and not known else super()._parse_optional(arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise an error that suggests the nearest choice; a command is also recognised by its verb."""
        if action.choices is None or value in action.choices:
            return
        meant = {str(choice).lower(): str(choice) for choice in action.choices}
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                meant.setdefault((parser.description or "").split(" ")[0].lower(), name)
            if "reconstruct" in meant and (os.path.exists(value) or re.search(r"[./\\]", value)):
                meant[value.lower()] = f"reconstruct {value} --output OUT --psf PSF"
            meant = {word: f"{self.prog} {words}" for word, words in meant.items()}
        listed = ", ".join(map(str, action.choices))
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{nearest(value, meant)} (choose from {listed})")

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and the message in one line; argparse would print the whole usage."""
        message += "; before a name that begins with a dash write ./" * message.endswith("expected one argument")
        self.exit(2, f"deblur: {' '.join(message.split())} (usage: {self.prog} --help)\n")


class _Once(argparse.Action):
    """Store the value of an option, and report an error if the option occurs twice."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not self.default:
            first, second = (v[0] if isinstance(v, tuple) and isinstance(v[0], str) else v for v in (before, values))
            parser.error(f"{option_string} was given twice, as {first} and as {second}: leave one out")
        setattr(namespace, self.dest, values)


def entries(docstring: str) -> dict[str, tuple[str, str]]:
    """Return the entries of a numpydoc docstring: {name, or names with commas: (text after the colon, description)}."""
    found: dict[str, tuple[str, str]] = {}
    names = ""
    for line in inspect.cleandoc(docstring).splitlines():
        entry = re.fullmatch(r"(-{0,2}\w[\w-]*(?:, -{0,2}\w[\w-]*)*) : (.+)", line)
        if entry:
            names = entry[1]
            found[names] = entry[2], ""
        elif names and line.startswith(" "):
            found[names] = found[names][0], f"{found[names][1]} {line.strip()}".strip()
        elif line:
            names = ""
    return found


@functools.cache
def _library() -> dict[str, str]:
    """Return the description of each option in `Options`, without the backquotes."""
    described = entries(Options.__doc__ or "").items()
    return {name: text.replace("`", "") for names, (_, text) in described for name in names.split(", ")}


def add_command(commands: Any, function: Callable[..., Any]) -> Parser:
    """Add a subcommand that runs `function`, whose docstring gives the help and the arguments."""
    if function.__doc__ is None:
        raise ImportError("the command reads its arguments from docstrings, which -OO removes: run Python without -OO")
    about = inspect.cleandoc(function.__doc__).partition("\n\nParameters\n")[0]
    summary = about.partition("\n")[0].removesuffix(".")
    parser: Parser = commands.add_parser(function.__name__, help=summary, description=about)
    parser.set_defaults(run=function)
    add_arguments(parser, function)
    return parser


def add_arguments(parser: Parser, function: Callable[..., Any]) -> None:
    """Add the arguments that the docstring of a function declares."""
    for names, (declared, text) in entries(function.__doc__ or "").items():
        flags = names.split(", ")
        about, _, default = declared.partition(" = ")
        kind, _, number = re.sub(r",(?=[^{]*\})", ";", about).partition(", ")
        if kind == "flag":
            parser.add_argument(*flags, action="store_true", help=text)
            continue
        more: dict[str, Any] = {"default": default or None, "action": _Once}
        if not text:
            name = flags[-1].lstrip("-").replace("-", "_")
            text, number = _library()[name], "optional"
            more["default"] = default or defaults()[name]
        if more["default"] is not None:
            text = f"{text.removesuffix('.')} (default {more['default']})"
        if kind.startswith("{"):
            choices: list[Any] = kind.strip("{}").split("; ")
            more["choices"] = [int(c) if c.isdigit() else c for c in choices]
            more["type"] = type(more["choices"][0])
        else:
            read, more["metavar"], note = KINDS[kind]
            more |= {"type": read} if callable(read) else {"choices": read}
            if note and note not in (parser.epilog or ""):
                parser.epilog = f"{parser.epilog or ''} {note}.".strip()
        if number in ("several", "repeated"):
            more |= {"nargs": "+"} if number == "several" else {"action": "append"}
            more["default"] = [more.get("type", str)(default)] if default else None
        if flags[0].startswith("-"):
            more["required"] = not (number or default)
        elif more["metavar"] == "FILE":
            more["metavar"] = names.upper()
        parser.add_argument(*flags, help=text.replace("%", "%%"), **more)


# ---------------------------------------------------------------------------------------------
# Values from text
# ---------------------------------------------------------------------------------------------


def _reader(
    read: Callable[[str], Any], needed: str = "", valid: Callable[[Any], bool] = lambda value: True
) -> Callable[[str], Any]:
    """Return `read` with its errors as `argparse.ArgumentTypeError`, the only error whose text argparse shows."""

    def value(text: str) -> Any:
        try:
            found = read(text)
            if not valid(found):
                raise ValueError
        except (ValueError, OverflowError, OSError) as error:
            words = f"{needed} is needed, not {text!r}" if needed else str(error)
            raise argparse.ArgumentTypeError(words) from None
        return found

    return value


def _lam(text: str) -> float | str:
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    return check_lam(value)


def _mask(text: str) -> tuple[str, Any]:
    if text in DETECTORS:
        return text, text
    mask = image.read(text, as_float=False) > 0
    return text, np.any(mask, axis=-1) if image.is_colour(mask) else mask


def _weights(text: str) -> tuple[str, Any]:
    weights = image.read_with_metadata(text)[0]
    return text, np.where(np.isnan(weights), 0, weights)


def _bounds(text: str) -> tuple[float, float] | str:
    if text == "nonnegative":
        return text
    lo, hi = (float(part) for part in text.split(","))
    return lo, hi


def _size(text: str) -> tuple[int, ...]:
    sides = tuple(int(side) for side in text.lower().split("x"))
    size = sides * 2 if len(sides) == 1 else sides  # three sides: a volume
    if not (1 <= min(size) <= max(size) < 2**31 and len(size) < 4):
        raise ValueError
    return size


def axes_chooser(args: argparse.Namespace, psf: Any) -> Callable[[image.Metadata], Any]:
    """Return a function that calls `image.axes.chosen` with the arguments --axis, --time, --channel and --planes."""
    given = {name: getattr(args, name) for name in ("axis", "time", "planes")}

    def choose(metadata: image.Metadata) -> Any:
        channel = args.channel and _channel(args.channel, metadata.labels, args.input)
        return chosen(metadata, args.input, np.ndim(psf) or 2, channel=channel, **given)

    return choose


def _channel(text: str, names: tuple[str, ...], source: str) -> range:
    """Return the channels that a number, N:M or a name selects; a text that is no valid number is taken as a name."""
    places = range(0)
    with contextlib.suppress(ValueError):
        places = _places(text)
    found = [i for i, name in enumerate(names) if name == text]
    found = found or [i for i, name in enumerate(names) if name.lower() == text.lower()]
    if places and places.start >= 0 and not found:
        return places
    if 0 <= places.start < places.stop <= len(names) and found != [*places]:
        raise ValueError(f"--channel {text} is also the name of channel {found[0]} of {source}: give the number as N:M")
    if len(found) == 1:
        return range(found[0], found[0] + 1)
    listed = f"its channels are {', '.join(names)}" if names else "it names none"
    if found:
        raise ValueError(f"--channel {text} is the name of {len(found)} channels of {source} ({listed}): give a number")
    near = nearest(text, {name.lower(): name for name in names})
    raise ValueError(f"--channel {text}: {source} has no such channel{near}; {listed}; a number counts from 0")


def _region(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _axes(text: str) -> str:
    letters = text.upper().removesuffix("YX")
    if len(letters) != len(text) - 2 or not set(letters) <= set("TCZ") or len(set(letters)) != len(letters):
        raise ValueError
    return letters


def _places(text: str) -> range:
    first, several, end = text.partition(":")
    return range(int(first), int(end) if several else int(first) + 1)


def _names_a_file(text: str) -> bool:
    return text not in ("", "-") and "\0" not in text


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if match is None:
        raise ValueError
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " "))


_FORMS = f"PSF is one of {'; '.join(psf.FORMS)}; sizes are in pixels, angles in degrees"
_RULES = f"LAMBDA, the regularisation parameter λ, is a number or one of the rules {', '.join(RULES)}"
_METHODS = "METHOD is auto or one of " + "; ".join(f"{m.name}: {m.summary}" for m in METHODS.values())
_BOUNDARIES = f"BOUNDARY is one of {', '.join(BOUNDARIES)}"
_NOISES = "NOISE is none, or one of " + "; ".join(f"{name}:LEVEL, {about}" for name, about in NOISES.items())
_BLACK = "0 is black and 1 the largest number of an integer image (255 of 8 bits); floats have their own unit"

#: Kind of value: (reader or choices, placeholder in the help, note at the end of the help). The reader of a mask or of
#: weights returns (text, value). The reader of a PSF returns (text, PSF, voxel sides or None).
KINDS: dict[str, tuple[Any, str, str]] = {
    "in": (_reader(lambda text: "/dev/stdin" if text == "-" else text, "the name of a file", _names_a_file), "IN", ""),
    "out": (_reader(str, "the name of a file", _names_a_file), "OUT", ""),
    "path": (_reader(str, "the name of a file", _names_a_file), "FILE", ""),
    "folder": (_reader(str, "the name of a folder", _names_a_file), "FOLDER", ""),
    "text": (str, "TEXT", ""),
    "count": (_reader(int, "a whole number from 1", lambda n: 1 <= n < 2**31), "N", ""),
    "whole": (_reader(int, "a whole number from 0", lambda n: 0 <= n < 2**31), "N", ""),
    "number": (_reader(float, "a number"), "X", ""),
    "brightness": (_reader(float, "a number"), "X", f"On the scale of the image {_BLACK}"),
    "level": (_reader(lambda x: (_bounds if "," in x else float)(x), "a number, or two as 2,0.01,"), "X|GAIN,READ", ""),
    "size": (_reader(_size, "ROWSxCOLUMNS such as 15x17, or 15 for both,"), "ROWSxCOLUMNS", ""),
    "axes": (_reader(_axes, "letters such as ZYX or TCZYX, of T, C and Z each once at most, YX last,"), "AXES", ""),
    "channel": (_reader(str, "a number or a name", bool), "N|N:M|NAME", ""),
    "places": (_reader(_places, "a number from 0, or 2:5 for 2, 3 and 4,", lambda r: r and r.start >= 0), "N|N:M", ""),
    "size|auto": (_reader(lambda x: x if x == "auto" else _size(x), "auto, or 15x17 pixels,"), "ROWSxCOLUMNS|auto", ""),
    "region": (_reader(_region, "four whole numbers, as 1,9,2,8", lambda r: len(r) == 4), "TOP,BOTTOM,LEFT,RIGHT", ""),
    "bytes": (_reader(_bytes, "a size such as 8GB or 512MiB", lambda n: n > 0), "BYTES", ""),
    "share": (_reader(float, "a fraction of the range, between 0 and 1", lambda x: 0 < x < 1), "X", ""),
    "bounds": (_reader(_bounds, "nonnegative, or two numbers such as 0,1"), "LOW,HIGH|nonnegative", ""),
    "mask": (_reader(_mask), f"{'|'.join(DETECTORS)}|FILE", "A mask FILE hides the pixels where it is not black"),
    "weights": (_reader(_weights), "FILE", "NaN in a weights FILE counts as 0"),
    "lam": (_reader(_lam), "LAMBDA", _RULES),
    "psf": (_reader(lambda text: (text, *parse_with_voxel(text))), "PSF", _FORMS),
    "method": (("auto", *METHODS), "METHOD", _METHODS),
    "boundary": (BOUNDARIES, "BOUNDARY", _BOUNDARIES),
    "boundary|auto": (("auto", *BOUNDARIES), "BOUNDARY", _BOUNDARIES),
    "sample": (data.names(), "NAME", f"NAME is one of {', '.join(data.names())}"),
    "image": (str, "IMAGE", f"IMAGE is a file or one of {', '.join(data.names())}"),
    "noise": (str, "NOISE", _NOISES),
    "entrant": (str, "METHOD", f"{_METHODS}. An unknown METHOD lists those of other packages, too"),
    "psf unread": (str, "PSF", _FORMS),
}
