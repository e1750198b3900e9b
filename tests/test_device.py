"""Reductions on either device, and a GPU whose memory is full."""

import numpy as np
import pytest

import deblur
from deblur.device import all_true


def test_all_true_is_all(xp):
    for of in (np.ones((3, 4), bool), np.eye(3, dtype=bool), np.zeros((0, 2), bool)):
        assert all_true(xp.asarray(of)) is bool(of.all())


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["fft", "tv"])
def test_a_full_gpu_is_refused_with_figures(cupy, method):
    memory, g = cupy.cuda.MemoryPool(), cupy.ones((512, 512), np.float32)
    memory.set_limit(size=1 << 20)
    full = pytest.raises(deblur.InsufficientMemoryError, match=r"is full: .* free \(Out of memory.*\); free some")
    with cupy.cuda.using_allocator(memory.malloc), full:
        deblur.solve(g, deblur.psf.gaussian(7, 1.5), 1e-2, boundary="periodic", method=method)
