"""What the first call of a process on a GPU compiles: each of CuPy's operations costs it a tenth of a second."""

import json
import os
import subprocess
import sys

import pytest

from deblur.launches import RECORD

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
g = cupy.asarray(deblur.data.load("camera")[:128, :128].astype(np.float32))
deblur.reconstruct(g, deblur.psf.gaussian(7, 1.5), **json.loads(sys.argv[1]))
names = [name for text in sources for name in re.findall(r"void (cupy_\\w+)", text)]
print(json.dumps([len(sources), names, [[stem, name] for stem, name, *_ in deblur.kernels._kernels]]))
"""


@pytest.mark.parametrize("method", ["auto", "tv", "collaborative", "pnp", "laplacian"])
def test_few_of_cupys_operations_are_compiled_and_our_kernels_were_expected(cupy, tmp_path, method):
    options = {} if method == "auto" else {"method": method, "boundary": "unknown", "lam": 1e-2}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(options)],
        env=os.environ | {"CUPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    texts, compiled, launched = json.loads(done.stdout.splitlines()[-1])
    assert texts  # the program sees what is compiled
    assert len(compiled) <= 10, compiled
    known = json.loads(RECORD.read_text())[method + " auto" * (method == "auto")]
    late = [one for one in launched if one not in [[stem, kernel] for stem, kernel, *_ in known]]
    assert len(late) <= min(2, len(launched) - 5), late  # other pictures may take other ways
