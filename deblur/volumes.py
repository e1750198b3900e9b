"""Volumes on the command line: axes named and selected, and each volume of a file restored by the same plan."""

from __future__ import annotations

import argparse
import io
import itertools
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf
from .arguments import axes_chooser
from .device import require_memory
from .errors import warn
from .frames import min_float_dtype
from .image.axes import in_order, in_words
from .image.stores import import_zarr, is_store, largest_level, ome_attributes
from .pipeline import Deblurrer
from .progress import report_phase
from .psf_command import upright


def voxel_of(text: str) -> dict[str, float]:
    """The micrometres of a voxel of a PSF, along Z, Y and X, if its file or its form gives them."""
    if image.located(text)[0].exists():
        return (
            image.read_with_metadata(text)[1].spacing
            if is_store(text) or Path(text).suffix[:4] == ".tif"
            else {}
        )
    name, _, rest = text.partition(":")
    if name.strip().lower() not in ("microscope", "confocal", "lightsheet"):
        return {}
    lengths = [float(word) for word in rest.split(",")[1].lower().split("x")]
    return {"Z": lengths[0], "Y": lengths[-1], "X": lengths[-1]}


def fitted(kernel: np.ndarray, text: str, metadata: image.Metadata) -> np.ndarray:
    """The PSF in the voxels of the image, where the sizes of both are known; a warning says that it was resampled."""
    own, letters = voxel_of(text), "ZYX"[3 - kernel.ndim :]
    scale = [own[a] / metadata.spacing[a] if a in own and a in metadata.spacing else 1.0 for a in letters]
    if all(math.isclose(s, 1, rel_tol=0.01) for s in scale):
        return kernel
    sizes = ", ".join(f"{own[a]:.4g} and {metadata.spacing[a]:.4g} µm along {a}" for a in letters if a in own)
    warn(
        f"the voxels of the PSF {text} and of the image are {sizes}: the PSF is resampled to the image's",
        UserWarning,
    )
    return psf.resample(kernel, scale)


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
    letters = metadata.axes
    kernel = fitted(upright(args.psf, metadata.orientation), args.psf[0], metadata)
    to_store = Path(args.output).suffix == ".zarr"
    metadata = in_order(metadata)[0] if to_store else metadata
    spans = {a: range(s.start, s.stop) for a, s in zip(letters, where, strict=True)}
    channels, times = spans.get("C", range(1)), spans.get("T", range(1))
    source = stored.dtype
    like = np.broadcast_to(source.type(0), (math.prod(metadata.sizes), *frame))
    bits = 32 if to_store else image.check_format(args.output, like, args.bits or 32)
    dtype = np.dtype(options.get("dtype") or min_float_dtype(source)) if to_store else np.dtype(np.float32)
    if bits == 32 and (args.clip or args.rescale):
        raise ValueError("--clip and --rescale do nothing here: floats hold every number; leave them out")
    fixed = not isinstance(args.lam, str) and args.boundary != "auto"
    reports: list[str] = []
    remark, restore, number = "", None, itertools.count(1)
    with (_stored if to_store else _held)(args.output, metadata, frame, dtype, source) as out:
        for c, t in itertools.product(channels, times):
            report_phase(f"volume {next(number)} of {len(channels) * len(times)}")
            at = {"C": c, "T": t}
            block = np.asarray(stored[tuple(at.get(a, slice(None)) for a in letters)])
            if restore is None or (t == times[0] and not fixed):
                restore = Deblurrer(kernel, block.shape[:3], args.lam, **options)
            result = restore.solve(block, channel_axis=3 if block.ndim == 4 else None, check=not args.anyway)
            volume, remark = result.image, ""
            if bits == 32:
                volume, remark = image.fit_to_levels(args.output, volume, block, 32, counts=True)
            at = {"C": c - channels[0], "T": t - times[0]}
            out[tuple(at.get(a, slice(None)) for a in metadata.axes)] = volume
            if not reports and args.views:
                _write_views(args, metadata, {"before": block, "after": result.image})
            if t == times[0]:
                name = metadata.labels[at["C"]] if metadata.labels else str(c)
                reports.append(f"channel     {name}\n{result}" if len(channels) > 1 else str(result))
        dropped, clipped = [], 0
        if not to_store:
            levels, changes = np.reshape(out, like.shape), {"clip": args.clip, "rescale": args.rescale}
            if bits < 32:
                given = np.reshape(stored[where], like.shape)
                levels, remark = image.fit_to_levels(args.output, levels, given, bits, **changes)
            clipped = image.write(args.output, levels, bits=bits, overwrite=args.force, metadata=metadata)
            dropped = image.left_out(args.output, levels, bits, metadata)
    remarks = [remark] if remark else []
    remarks += (
        [f"{100 * clipped / out.size:.3g} % of the values clipped to black or white"] if clipped else []
    )
    lines = [f"axes        {in_words(metadata, frame, 3)}"]
    changed = f" ({'; '.join(remarks)})" if remarks else ""
    lines.append(f"written     {args.output}{changed}")
    lines += [f"dropped     metadata that {args.output} cannot hold: {', '.join(dropped)}"] if dropped else []
    return "\n".join([*reports, *lines])


@contextmanager
def _held(
    _: str, metadata: image.Metadata, frame: tuple[int, ...], dtype: np.dtype, __: Any
) -> Iterator[np.ndarray]:
    """An array for what a file will hold."""
    shape = (*metadata.sizes, *frame)
    needed = 2 * math.prod(shape) * dtype.itemsize
    instead = "write a .zarr, which takes one volume at a time, or restore fewer time points (--time)"
    require_memory(needed, np, f"a file of {' x '.join(map(str, shape))} floats", instead)
    yield np.empty(shape, dtype)


@contextmanager
def _stored(
    path: str, metadata: image.Metadata, frame: tuple[int, ...], dtype: np.dtype, source: Any
) -> Iterator[Any]:
    """The array of a new OME-Zarr 0.5, which takes its name once it is complete."""
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    shape = (*metadata.sizes, *frame)
    chunks = (
        *(1 for _ in shape[:-3]),
        *(min(n, side) for n, side in zip(shape[-3:], (16, 256, 256), strict=True)),
    )
    try:
        group = import_zarr().create_group(partial, attributes=ome_attributes(metadata, source))
        names = [*f"{metadata.axes}YX".lower()]
        yield group.create_array("0", shape=shape, dtype=dtype, chunks=chunks, dimension_names=names)
        image.replace_store(path)
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_views(args: argparse.Namespace, metadata: image.Metadata, volumes: dict[str, np.ndarray]) -> None:
    """A picture of the first volume before and after: its projections and its slices."""
    from . import plot

    spacing = [metadata.spacing.get(a, 1.0) for a in "ZYX"]
    content = io.BytesIO()
    plot.volumes(volumes, spacing).savefig(content, format="png")
    image.write_whole(args.views, content.getvalue(), args.force)
