"""Every kernel file compiles for both dtypes, and for an old and a new device, without a warning and without spills.

No GPU is needed, but a compiler: nvcc, or NVRTC through CuPy. NVRTC compiles all. nvcc would take minutes: it compiles
each file for one dtype, in turn, and for the other without optimising, which shows the warnings.
"""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from deblur import cuda_sources, kernels, launches, pixelwise

# Each file with each dtype and each architecture, once; `make wheel` compiles all combinations.
CASES = [
    (stem, real, ("80", "90a")[(i // 2 + j) % 2], i % 2 == j)
    for i, stem in enumerate(cuda_sources.stems())
    for j, real in enumerate(("float32", "float64"))
]

RECORDED = [row for rows in json.loads(launches.RECORD.read_text()).values() for row in rows]
PIXELWISE = sorted({tuple(arguments) for stem, *arguments in RECORDED if stem == "pixelwise"})


def _nvcc(text, stem, arch, folder, whole):
    """The compiler's messages; raises with them if it refuses the text or warns."""
    path = folder / f"{stem}.cu"
    path.write_text(text)
    command = [
        "nvcc", "-std=c++17", f"-arch={'sm' if whole else 'compute'}_{arch}", "-Werror", "all-warnings",
        *(("-Xptxas", "-v", "-cubin") if whole else ("-G", "-ptx")), "-o", os.devnull, str(path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def _nvrtc(text, stem, arch, folder, whole):
    _, log = kernels.compile_source(text, f"{stem}.cu", f"sm_{arch}", options=("--ptxas-options=-v",))
    assert "warning" not in log, log
    return log


@pytest.fixture(scope="module")
def compiler():
    if shutil.which("nvcc"):
        return _nvcc
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"neither nvcc nor NVRTC is there ({error})")
    return _nvrtc


@pytest.mark.parametrize(("stem", "real", "arch", "whole"), CASES)
def test_compiles_without_warning_or_spill(compiler, tmp_path, stem, real, arch, whole):
    report = compiler(cuda_sources.source(stem, np.dtype(real)), stem, arch, tmp_path, whole)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", report)]
    if "Compiling entry" in report:  # NVRTC need not report, and a file may have no kernel for a device
        assert spills
    assert not any(spills), report


@pytest.mark.parametrize("arguments", PIXELWISE, ids=str)
def test_operations_on_pixels_compile_without_warning(compiler, tmp_path, arguments):
    compiler(pixelwise.recorded(np.dtype(np.float32), *arguments), "pixelwise", "80", tmp_path, True)
