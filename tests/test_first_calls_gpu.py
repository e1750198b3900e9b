"""What the first call of a process on a GPU compiles: each of CuPy's operations costs it a tenth of a second."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROGRAM = """
import json, re, sys
import numpy as np, cupy, deblur
from cupy.cuda import nvrtc
cupy.zeros(1).sum().item()
sources, create = [], nvrtc.createProgram
def seen(text, *more):
    sources.append(text)
    return create(text, *more)
nvrtc.createProgram = seen
g = cupy.asarray(deblur.data.load("camera")[:96, :96].astype(np.float32))
deblur.reconstruct(g, deblur.psf.gaussian(7, 1.5), **json.loads(sys.argv[1]))
print(json.dumps([name for text in sources for name in re.findall(r"void (cupy_\\w+)", text)]))
"""


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 25),
        ({"method": "tv", "lam": 1e-2}, 20),
        ({"method": "collaborative", "lam": 1e-2}, 25),
        ({"method": "pnp", "lam": 1e-2, "denoiser": "collaborative"}, 25),
    ],
)
def test_few_of_cupys_operations_are_compiled(cupy, tmp_path, options, most):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(options)],
        env=os.environ | {"CUPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout.splitlines()[-1])
    assert compiled  # the program sees what is compiled
    assert len(compiled) <= most, compiled
