"""The command ``deblur demo``: blur a photograph and restore it by every method."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import image
from .data import info
from .methods import METHODS
from .operators.boundary import BOUNDARIES
from .terminal import progress


def demo(args: argparse.Namespace) -> int:
    """Blur a photograph, restore it by every method, and print the tables.

    The photograph comes with deblur. The tables show PSNR, seconds, SSIM and residual. Three files are written: an HTML
    page with all images, which also shows the MSE, and the blurred and the restored image of the default method. It
    takes half a minute.

    Parameters
    ----------
    --image : sample = camera64
        The photograph.
    --size : count, optional
        Side of the crop in pixels; by default 64, or less if the photograph is smaller.
    --psf : psf = gaussian:7,1.2
        Image of one point after the blur.
    --lam : lam = gcv
        Strength of the smoothing.
    --noise : number = 0.005
        Standard deviation of the noise, on a scale where white is 1.
    --seed : whole = 0
        Seed of the noise.
    --output : folder = demo_output
        Folder for the images.
    --force : flag
        Replace files that exist.
    """
    folder, (source, h, _) = Path(args.output), args.psf
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the pictures with --output")
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / name for name in ("demo.html", "blurred.png", "restored.png")]
    page, blurred, restored = (image.check_writable(path, args.force, inputs=[source]) for path in targets)
    room = min(n - m + 1 for n, m in zip(info(args.image).shape, h.shape, strict=False))
    size = min(64, room) if args.size is None and room > 0 else args.size
    from .compare import Comparison, run
    from .compare.adapters.own import OWN_BOUNDARY

    settings: Any = {"size": size, "seed": args.seed, "repeats": 0, "memory": False, "time_limit": 600.0}
    # First the linear methods, each under the boundary that suits it, all with one λ. Then, under the unknown boundary
    # of a real photograph, the default method and the methods that are not linear.

    methods: dict[str, list[str]] = {boundary: [] for boundary in BOUNDARIES if boundary != "unknown"}
    for method in METHODS.values():
        boundary = OWN_BOUNDARY.get(method.name, "zero") if method.linear else "unknown"
        methods.setdefault(boundary, ["auto"]).append(method.name)
    parts: list[Comparison] = []
    for boundary, names in methods.items():
        settings |= {"lam": "gcv" if boundary == "unknown" else args.lam}
        with progress(f"demo, boundary {boundary}", True) as show:
            parts.append(run(args.image, source, args.noise, boundary, names, progress=show, **settings))
        print(f"{parts[-1]}\n", flush=True)
    rows = [row for part in parts for row in part.rows]
    pictures = {name: picture for part in parts for name, picture in part.pictures.items()}
    cases = [case for part in parts for case in part.cases]
    whole = Comparison(rows, cases, parts[0].settings, parts[0].sessions, pictures=pictures)
    whole.to_html(page, overwrite=args.force)
    key = next(row.key for row in parts[-1].rows if row.method == "auto")
    image.write(blurred, cases[-1].blurred, overwrite=args.force)
    image.write(restored, pictures[f"{key}-restored"], overwrite=args.force)
    print(f"written: {page}, {blurred}, {restored}")
    return int(any(row.status == "failed" for row in rows))
