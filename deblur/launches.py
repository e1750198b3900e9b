"""Compile the kernels of a method in parallel at its first call, while the host begins to work.

``launches.json`` lists the kernels of each method: file, kernel, and the dtype if it is not that of the image; or
"pixelwise" and what `deblur.pixelwise.recorded` takes.
``tools/record_launches.py`` records the list on a GPU. NVRTC reads the texts of several threads one after the other,
but does most of its work in parallel.
"""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from . import cuda_sources, kernels, pixelwise
from .device import cupy
from .threads import usable_cores

RECORD = Path(__file__).parent / "launches.json"


@functools.cache
def begin(call: str, dtype: np.dtype, device: int) -> None:
    """Begin to compile the kernels of a call for an image of that dtype, unless the package contains machine code.

    `call` is the name of a method, followed by " auto" if a rule chooses λ.
    """
    packed = (cuda_sources.source_folder() / kernels.PACKED).exists()
    with cupy.cuda.Device(device):
        arch = kernels.architecture()
    # OMP_NUM_THREADS does not apply: these threads end when the kernels are compiled.
    pool = ThreadPoolExecutor(min(8, usable_cores()))
    for stem, kernel, *kind in json.loads(RECORD.read_text()).get(call, ()):
        if stem == "pixelwise":
            unit = pixelwise.recorded(dtype, kernel, *kind), kernel, arch
        elif packed:
            continue
        else:
            unit = cuda_sources.alone(stem, kernel, np.dtype(*kind or [dtype])), f"{stem}.{kernel}", arch
        kernels.begun[unit] = pool.submit(kernels.machine_code, *unit)
    pool.shutdown(wait=False)
