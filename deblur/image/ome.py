"""Read and write voxel size, channels and axes of microscope images, in the XML of OME-TIFF or in ImageJ's settings."""

from __future__ import annotations

import functools
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree


def standard(unit: str) -> float | None:
    """Return the size of a unit in micrometres or seconds, by its name in OME, OME-Zarr or ImageJ; None if it is
    unknown.
    """
    powers = {"": 6, "c": 4, "m": 3, "µ": 0, "μ": 0, "u": 0, "n": -3, "p": -6}
    powers |= {"centi": 4, "milli": 3, "micro": 0, "nano": -3, "pico": -6}
    others = dict.fromkeys(("micron", "microns", "\\u00B5m"), 1.0) | dict.fromkeys(("Å", "angstrom"), 1e-4)
    others |= {"min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0, "sec": 1.0}
    parts = re.fullmatch(r"(.*?)(?:(m|met(?:er|re)s?)|s|seconds?)", unit)
    if parts is None or parts[1] not in powers:
        return others.get(unit)  # units of ImageJ, and others
    return 10.0 ** (powers[parts[1]] - 6 * (not parts[2]))


@functools.lru_cache(maxsize=256)
def files_of_set(path: Path, changed: int) -> list[Path]:
    """Return the files that an OME-TIFF names as parts of the same image; `changed` is its time of modification."""
    import tifffile

    with suppress(Exception), tifffile.TiffFile(path) as tiff:
        uuids = parsed(tiff.ome_metadata).iterfind(".//{*}UUID")
        return [path.parent / name for uuid in uuids if (name := uuid.get("FileName"))]
    return []


def parsed(text: str | None) -> ElementTree.Element:
    """Return the root of OME's XML; an element without content if there is no XML or it is damaged."""
    try:
        return ElementTree.fromstring(text or "")
    except ElementTree.ParseError:
        return ElementTree.Element("")


def steps_and_labels(ome: str, imagej: dict[str, Any] | None) -> dict[str, Any]:
    """Return the attributes `spacing` and `labels` of `Metadata`, from the XML of an OME-TIFF or from ImageJ's
    settings.
    """
    found: dict[str, tuple[Any, float | None]] = {}
    labels: list[str] = []
    if imagej is not None:
        unit, second = standard(str(imagej.get("unit", ""))), standard(str(imagej.get("tunit", "s")))
        across, down = imagej["resolution"]
        found = {"X": (across and 1 / across, unit), "Y": (down and 1 / down, unit)}
        found |= {"Z": (imagej.get("spacing"), unit), "T": (imagej.get("finterval"), second)}
    for pixels in parsed(ome).findall("{*}Image/{*}Pixels")[:1]:
        for letter in "ZYXT":
            name, base = (f"PhysicalSize{letter}", "µm") if letter != "T" else ("TimeIncrement", "s")
            found[letter] = pixels.get(name), standard(pixels.get(f"{name}Unit", base))
        labels = [channel.get("Name", "") for channel in pixels.iterfind("{*}Channel")]
    steps = {}
    for letter, (step, unit) in found.items():
        with suppress(TypeError, ValueError):  # missing, or not a number
            steps[letter] = float(step) * (unit or 0.0)
    spacing = {a: step for a, step in steps.items() if 0 < step < math.inf}
    return {"spacing": spacing, "labels": tuple(labels) if any(labels) else ()}


def planes(pixels: ElementTree.Element) -> int:
    """Return the number of planes that an element Pixels describes; a plane of a colour image has several samples."""
    channel = pixels.find("{*}Channel")
    samples = 1 if channel is None else int(channel.get("SamplesPerPixel", 1))
    return math.prod(int(pixels.attrib[f"Size{axis}"]) for axis in "ZCT") // samples


def described(ome: str, space: tuple[int, ...], sizes: tuple[int, ...], bits: int) -> str:
    """Return the XML of an OME-TIFF for the same scene with other values; empty if it does not describe such an image.

    Objective, channels and pixel size do not change. The description of the file is replaced: the type of a sample, and
    the order of the planes.
    """
    count = math.prod(sizes)
    root = parsed(ome)
    try:
        (pixels,) = root.iterfind("{*}Image/{*}Pixels")
        there = *(int(pixels.attrib[name]) for name in ("SizeY", "SizeX")), planes(pixels)
    except (KeyError, ValueError):
        return ""
    if there != (*space, count):
        return ""
    namespace = pixels.tag.removesuffix("Pixels")
    ElementTree.register_namespace("", namespace.strip("{}"))
    for element, name in ((root, "UUID"), (pixels, "SignificantBits"), (pixels, "Interleaved")):
        element.attrib.pop(name, None)
    pixels.attrib |= {"Type": {8: "uint8", 16: "uint16", 32: "float"}[bits], "BigEndian": "false"}
    for name in ("TiffData", "BinData", "MetadataOnly"):
        for old in pixels.findall(f"{namespace}{name}"):
            pixels.remove(old)
    whole = ElementTree.Element(f"{namespace}TiffData", IFD="0", PlaneCount=str(count))
    pixels.insert(len(pixels.findall(f"{namespace}Channel")), whole)
    return ElementTree.tostring(root, "unicode", xml_declaration=False)


def settings(axes: str, spacing: dict[str, float], labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of `tifffile.imwrite` that describe axes, voxel size and channels as OME does."""
    said: dict[str, Any] = {f"PhysicalSize{a}": step for a, step in spacing.items() if a != "T"}
    said |= {f"{name}Unit": "µm" for name in said}
    if "T" in spacing:
        said |= {"TimeIncrement": spacing["T"], "TimeIncrementUnit": "s"}
    said |= {"axes": axes} | ({"Channel": {"Name": list(labels)}} if labels else {})
    return {"ome": True, "metadata": said}
