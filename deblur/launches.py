"""What calls launch on a GPU, so that a first call compiles it side by side, while the host begins to work.

``launches.json`` has it for each method, seen on a GPU by ``tools/record_launches.py``: file, kernel, and the dtype
where it is not the image's. NVRTC reads the texts of several threads one after the other, but does most of its work
side by side.
"""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from . import cuda_sources, kernels
from .device import cupy
from .threads import usable_cores

RECORD = Path(__file__).parent / "launches.json"


@functools.cache
def begin(call: str, dtype: np.dtype, device: int) -> None:
    """Begin to compile what a call launches for an image of that dtype, if no machine code came with the package.

    `call` is the name of a method, with " auto" after it if a rule is to choose λ.
    """
    if (cuda_sources.source_folder() / kernels.PACKED).exists():
        return
    with cupy.cuda.Device(device):
        arch = kernels.architecture()
    # Whatever OMP_NUM_THREADS grants: that is about threads that compute as long as a program runs.
    pool = ThreadPoolExecutor(min(8, usable_cores()))
    for stem, kernel, *real in json.loads(RECORD.read_text()).get(call, ()):
        unit = stem, kernel, np.dtype(*real or [dtype]), arch
        kernels.begun[unit] = pool.submit(kernels.machine_code, *unit)
    pool.shutdown(wait=False)
