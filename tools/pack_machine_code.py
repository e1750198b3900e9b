"""Pack machine code of the kernels for usual cards, which the wheel brings: ``python tools/pack_machine_code.py``.

It takes NVRTC, through CuPy, and no GPU; ``make wheel`` does it first. Where NVRTC is missing the wheel is built
without machine code, and each kernel is compiled when it is first launched, as in a checkout. Code for one card runs on
newer ones of its generation, too: that for sm_80 on 8.6 and 8.9.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from deblur import cuda_sources, kernels
from deblur.threads import usable_cores

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")  # Ampere and Ada, Hopper, Blackwell's two generations


def pack(path: Path, architectures: Sequence[str] = ARCHITECTURES) -> None:
    """Compile every kernel for `architectures` and write the machine code to `path`."""
    pieces = [
        (stem, kernel, np.dtype(real), arch)
        for arch in architectures
        for stem in cuda_sources.stems()
        for kernel in cuda_sources.signatures(stem)
        for real in (np.float32, np.float64)
    ]
    with (
        ProcessPoolExecutor(usable_cores(), get_context("spawn")) as pool,
        zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive,
    ):
        compiled = pool.map(
            kernels.compile_source,
            [cuda_sources.alone(*unit) for *unit, _ in pieces],
            [f"{stem}.cu" for stem, *_ in pieces],
            [arch for *_, arch in pieces],
        )
        for piece, (code, _) in zip(pieces, compiled, strict=True):
            archive.writestr(kernels.packed_name(*piece), code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=cuda_sources.source_folder() / kernels.PACKED)
    parser.add_argument("architectures", nargs="*", default=ARCHITECTURES, help="such as sm_80")
    args = parser.parse_args()
    args.output.unlink(missing_ok=True)
    try:
        from cupy.cuda import nvrtc

        known = nvrtc.getSupportedArchs()
    except (ImportError, OSError, RuntimeError) as error:
        print(f"no machine code is packed, kernels are compiled when first launched: NVRTC is missing ({error})")
        return
    architectures = [arch for arch in args.architectures if int(arch.strip("sm_af")) in known]
    pack(args.output, architectures)
    size = args.output.stat().st_size / 1e6
    print(f"{size:.1f} MB of machine code for {', '.join(architectures)}: {args.output}")


if __name__ == "__main__":
    main()
