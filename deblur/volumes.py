"""Volumes on the command line: each of a file restored by the same plan, into a file or an OME-Zarr."""

from __future__ import annotations

import argparse
import io
import itertools
import math
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf
from .arguments import axes_chooser
from .device import require_memory
from .frames import min_float_dtype
from .image.axes import in_order, in_words
from .image.stores import import_zarr, is_store, largest_level, ome_attributes
from .pipeline import Deblurrer
from .progress import report_phase
from .psf_command import upright


def fitted(given: tuple[str, np.ndarray], metadata: image.Metadata) -> np.ndarray:
    """The PSF of --psf turned with the image, and in its voxels if the PSF's file or form gives the size of its own."""
    text, kernel = given[0].removeprefix("volume:"), upright(given, metadata.orientation)
    name, _, rest = text.partition(":")
    own: Any = {}
    if name in ("microscope", "confocal", "lightsheet"):
        lengths = [float(word) for word in rest.split(",")[1].lower().split("x")]
        own = {"Z": lengths[0], "Y": lengths[-1], "X": lengths[-1]}
    elif is_store(text) or text.endswith((".tif", ".tiff")):
        own = image.read_with_metadata(text)[1].spacing
    own, its = ([sizes.get(a, 0.0) for a in "ZYX"[3 - kernel.ndim :]] for sizes in (own, metadata.spacing))
    return psf.for_voxels(kernel, own, its if all(its) else None) if all(own) else kernel


def restored(args: argparse.Namespace, options: Any) -> str:
    """Restore each volume of IN, all time points of a channel by one plan, and write OUT; returns the report."""
    report_phase("reading")
    if is_store(args.input):
        _, stored, metadata = largest_level(args.input)
        frame = stored.shape[-2:]
    else:
        stored, metadata = image.read_with_metadata(args.input)
        frame = stored.shape[-2 - image.is_colour(stored) :]
        stored = stored.reshape(*metadata.sizes, *frame)
    metadata, where = axes_chooser(args, args.psf[1])(metadata)
    kernel, letters = fitted(args.psf, metadata), metadata.axes
    ranges = {a: range(s.start, s.stop) for a, s in zip(letters, where, strict=True)}
    channels, times = ranges.get("C", range(1)), ranges.get("T", range(1))
    to_store = Path(args.output).suffix == ".zarr"
    metadata = in_order(metadata)[0] if to_store else metadata
    shape, dtype = (*metadata.sizes, *frame), np.dtype(options.get("dtype") or min_float_dtype(stored.dtype))
    pages = math.prod(metadata.sizes), *frame
    bits = (
        32 if to_store else image.check_format(args.output, np.broadcast_to(dtype.type(), pages), args.bits)
    )
    if bits == 32 and (args.clip or args.rescale):
        raise ValueError(
            "--clip and --rescale do nothing here: a float file holds every number; leave them out"
        )
    volume = math.prod(n for a, n in zip(f"{metadata.axes}YXS", shape, strict=False) if a not in "TC")
    needed = volume * (
        stored.dtype.itemsize + 4 * dtype.itemsize
    )  # at least: as read, as floats, Hf, f and a spectrum
    require_memory(
        needed, np, f"restoring a volume of {args.input}", "cut it into parts: tiles take images in 2-D alone"
    )
    partial = Path(os.path.realpath(args.output)).with_name(f".{secrets.token_hex(8)}.tmp")
    reports: list[str] = []
    fixed, restore = not isinstance(args.lam, str) and args.boundary != "auto", None
    try:
        out = _store(partial, metadata, shape, dtype, stored.dtype) if to_store else _array(shape, dtype)
        for c, t in itertools.product(channels, times):
            report_phase(f"volume {t - times[0] + 1} of {len(times)}, channel {c}")
            block = np.asarray(stored[tuple({"C": c, "T": t}.get(a, slice(None)) for a in letters)])
            if restore is None or (t == times[0] and not fixed):
                restore = Deblurrer(kernel, block.shape[:3], args.lam, **options)
            result = restore.solve(block, channel_axis=3 if block.ndim == 4 else None, check=not args.anyway)
            at = {"C": c - channels[0], "T": t - times[0]}
            found = result.image
            if to_store:
                found, _ = image.fit_to_levels(args.output, found, block, 32, counts=True)
            out[tuple(at.get(a, slice(None)) for a in metadata.axes)] = found
            if t == times[0]:
                name = (
                    [f"channel     {(metadata.labels or range(c + 1))[at['C']]}"] if len(channels) > 1 else []
                )
                reports += [*name, str(result)]
            if args.views and not any(at.values()):
                _write_views(args, metadata, {"before": block, "after": result.image})
        if to_store:
            image.replace_store(args.output)
            os.rename(partial, args.output)
            lines = [f"written     {args.output}"]
        else:
            source = np.reshape(stored[where], pages)
            lines = written(args, np.reshape(out, pages), source, metadata, bits, counts=bits == 32)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return "\n".join([*reports, f"axes        {in_words(metadata, frame, 3)}", *lines])


def _array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for what a file will hold."""
    instead = "write a .zarr, which takes one volume at a time, or restore fewer time points (--time)"
    require_memory(
        2 * math.prod(shape) * dtype.itemsize, np, f"a file of {' x '.join(map(str, shape))} floats", instead
    )
    return np.empty(shape, dtype)


def _store(
    path: Path, metadata: image.Metadata, shape: tuple[int, ...], dtype: np.dtype, source: np.dtype
) -> Any:
    """The array of a new OME-Zarr 0.5."""
    group = import_zarr().create_group(path, attributes=ome_attributes(metadata, source))
    chunks = (
        *(1 for _ in shape[:-3]),
        *(min(n, side) for n, side in zip(shape[-3:], (16, 256, 256), strict=True)),
    )
    names = [*f"{metadata.axes}YX".lower()]
    return group.create_array("0", shape=shape, dtype=dtype, chunks=chunks, dimension_names=names)


def _write_views(args: argparse.Namespace, metadata: image.Metadata, volumes: dict[str, np.ndarray]) -> None:
    """A picture of the first volume before and after: its projections and its slices."""
    from . import plot

    content = io.BytesIO()
    plot.volumes(volumes, [metadata.spacing.get(a, 1.0) for a in "ZYX"]).savefig(content, format="png")
    image.write_whole(args.views, content.getvalue(), args.force)


def written(
    args: argparse.Namespace,
    restored: np.ndarray | image.Levels,
    source: Any,
    metadata: image.Metadata,
    bits: int,
    remarks: Sequence[str] = (),
    counts: bool = False,
) -> list[str]:
    """Write a restored image to OUT; returns lines that say so, and what was changed or dropped."""
    report_phase("writing")
    if isinstance(restored, image.Levels):
        picture, remark = restored.samples, ""
        if not args.clip:
            restored.check()
    else:
        changes = {"clip": args.clip, "rescale": args.rescale, "counts": counts}
        picture, remark = image.fit_to_levels(args.output, restored, source, bits, **changes)
    clipped = image.write(args.output, picture, bits=bits, overwrite=args.force, metadata=metadata)
    clipped = restored.clipped if isinstance(restored, image.Levels) else clipped
    remarks = [*remarks, remark] if remark else [*remarks]
    if clipped:
        remarks.append(f"{100 * clipped / picture.size:.3g} % of the values clipped to black or white")
    lines = [f"written     {args.output}" + (f" ({'; '.join(remarks)})" if remarks else "")]
    if dropped := image.left_out(args.output, picture, bits, metadata):
        lines.append(f"dropped     metadata that {args.output} cannot hold: {', '.join(dropped)}")
    return lines
