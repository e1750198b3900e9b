"""Restore volumes on the command line: all volumes of a file by the same plan, into a file or an OME-Zarr."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import secrets
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import image, psf
from .arguments import axes_chooser
from .device import require_memory
from .errors import naming
from .frames import min_float_dtype
from .image.axes import in_order, in_words
from .image.outputs import replace_store, write_whole
from .image.stores import import_zarr, is_store, largest_level, ome_attributes, read_part
from .image.writing import left_out
from .operators.matrix import by
from .pipeline import Deblurrer
from .progress import report_phase
from .psf_command import upright


def fitted(given: tuple[str, np.ndarray, Any], metadata: image.Metadata) -> tuple[np.ndarray, list[str]]:
    """Return the PSF of --psf, rotated with the image and resampled to its voxels, and lines that report a resampling.

    The PSF is resampled only along axes whose voxel sizes its file or formula gives. A warning is issued if the image
    has voxel sizes and a PSF in a TIFF has none.
    """
    kernel = upright(given, metadata.orientation)
    if given[2] is None and not given[0].lower().endswith((".tif", ".tiff")):
        return kernel, []
    new = psf.for_voxels(kernel, given[2], metadata.voxel(kernel.ndim))
    if new.shape == kernel.shape and np.allclose(new, kernel, atol=0):
        return new, []
    return new, [f"psf         {by(kernel.shape)} of its own voxels, {by(new.shape)} of the image's"]


def check_is_psf(source: str, picture: np.ndarray, text: str, kernel: np.ndarray) -> None:
    """Raise ValueError if the PSF is the blurred image itself: the same file, or the same values."""
    same = Path(text).is_file() and Path(source).is_file() and Path(text).samefile(source)
    if not same and kernel.shape == picture.shape:
        total = picture.sum(dtype=np.float64)
        same = total != 0 and np.allclose(kernel, picture / total, rtol=1e-6, atol=0)
    if same:
        raise ValueError(
            f"--psf {text} is the blurred picture itself; the PSF is the image of one point after the blur, such as "
            "gaussian:9,1.2 or the picture of a star"
        )


def opened(
    args: argparse.Namespace, kernel: Any, lazily: bool = False
) -> tuple[Any, image.Metadata, tuple[slice, ...]]:
    """Return IN with all its axes, the metadata of the part to restore, and the slices of that part along the page
    axes.
    """
    report_phase("reading")
    if lazily and is_store(args.input):
        _, stored, metadata = largest_level(args.input)
    else:
        stored, metadata = image.read_with_metadata(args.input)
        stored = stored.reshape(*metadata.sizes, *stored.shape[min(1, len(metadata.sizes)) :])
    return stored, *axes_chooser(args, kernel)(metadata)


def bits_of(args: argparse.Namespace, like: np.ndarray) -> int:
    """Return the bits of OUT for an image of this shape and dtype; raise ValueError if an option has no effect with
    them.
    """
    bits = image.check_format(args.output, like, args.bits)
    if bits == 32 and (args.clip or args.rescale):
        option = "--clip" if args.clip else "--rescale"
        raise ValueError(f"{option} does nothing here: a float file holds every number; leave it out")
    return bits


def restored(args: argparse.Namespace, options: Any) -> str:
    """Restore each volume of IN, with one plan for all time points of a channel, write OUT, and return the report."""
    stored, metadata, where = opened(args, args.psf[1], lazily=True)
    (kernel, resampled), letters, frame = fitted(args.psf, metadata), metadata.axes, stored.shape[len(where) :]
    to_store = Path(args.output).suffix == ".zarr"
    metadata = in_order(metadata)[0] if to_store else metadata
    shape, pages = (*metadata.sizes, *frame), (math.prod(metadata.sizes), *frame)
    dtype = np.dtype(options.get("dtype") or min_float_dtype(stored.dtype))
    bits = 32 if to_store else bits_of(args, np.broadcast_to(dtype.type(), pages))
    spans = {a: range(s.start, s.stop) for a, s in zip(letters, where, strict=True)}
    channels, times = spans.get("C", range(1)), spans.get("T", range(1))
    # At least one volume in the dtype of IN and four of floats; for a file, also all volumes together.
    each = math.prod(shape) // (len(channels) * len(times)) * (stored.dtype.itemsize + 4 * dtype.itemsize)
    whole = 2 * math.prod(shape) * dtype.itemsize * (not to_store)
    instead = f"{'restore it' if to_store else 'write a .zarr, one volume at a time, or'} in tiles (--memory 2GB)"
    require_memory(each + whole, np, f"restoring {args.input}", instead)
    fixed, restore, reports = not isinstance(args.lam, str) and args.boundary != "auto", None, list[str]()
    unfinished = Path(os.path.realpath(args.output)).with_name(f".{secrets.token_hex(8)}.tmp")

    def volume(letters: str, c: int, t: int) -> tuple[Any, ...]:
        return tuple({"C": c, "T": t}.get(a, slice(None)) for a in letters)

    try:
        with naming(args.output):
            out = _store(unfinished, metadata, shape, dtype, stored.dtype) if to_store else np.empty(shape, dtype)
        for (i, c), (j, t) in itertools.product(enumerate(channels), enumerate(times)):
            report_phase(f"volume {j + 1} of {len(times)}, channel {c}")
            g = read_part(stored, volume(letters, c, t), args.input)
            if j == 0:
                check_is_psf(args.input, g, *args.psf[:2])
            if restore is None or (j == 0 and not fixed):
                restore = Deblurrer(kernel, g.shape[:3], args.lam, **options)
            frames = restore._frames(g, 3 if g.ndim == 4 else None, None)
            result = restore._solve(frames, not args.anyway, one_image=j == 0)
            f = result.image
            if args.views and not reports:
                from . import plot

                views = plot.volumes({"before": g, "after": f}, [metadata.spacing.get(a, 1.0) for a in "ZYX"])
                write_whole(args.views, partial(views.savefig, format="png"), args.force)
            if to_store:
                f, _ = image.fit_to_levels(args.output, f, g, 32, counts=True)
            with naming(args.output):
                out[volume(metadata.axes, i, j)] = f
            if j == 0:
                reports += [f"channel     {(metadata.labels or channels)[i]}"] * (len(channels) > 1)
                reports.append(str(result))
        if to_store:
            replace_store(args.output)
            os.rename(unfinished, args.output)
            lines = [f"written     {args.output}", *_dropped(args, out, bits, metadata)]
        else:
            source = np.reshape(stored[where], pages)
            lines = written(args, np.reshape(out, pages), source, metadata, bits, counts=bits == 32)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return "\n".join([*reports, *resampled, f"axes        {in_words(metadata, frame, 3)}", *lines])


def _store(path: Path, metadata: image.Metadata, shape: tuple[int, ...], dtype: np.dtype, source: np.dtype) -> Any:
    """Return the array of a new OME-Zarr 0.5."""
    group = import_zarr().create_group(path, attributes=ome_attributes(metadata, source))
    chunks = (*(1 for _ in shape[:-3]), *map(min, shape[-3:], (16, 256, 256)))
    names = [*f"{metadata.axes}YX".lower()]
    return group.create_array("0", shape=shape, dtype=dtype, chunks=chunks, dimension_names=names)


def written(
    args: argparse.Namespace,
    restored: np.ndarray | image.Levels,
    source: Any,
    metadata: image.Metadata,
    bits: int,
    remarks: Sequence[str] = (),
    counts: bool = False,
) -> list[str]:
    """Write a restored image to OUT; return lines that report this, and what was changed or dropped."""
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
    how = f" ({'; '.join(remarks)})" if remarks else ""
    return [f"written     {args.output}{how}", *_dropped(args, picture, bits, metadata)]


def _dropped(args: argparse.Namespace, picture: Any, bits: int, metadata: image.Metadata) -> list[str]:
    """Return a line about the metadata that OUT cannot hold, or no line."""
    lost = ", ".join(left_out(args.output, picture, bits, metadata))
    return [f"dropped     metadata that {args.output} cannot hold: {lost}"] if lost else []
