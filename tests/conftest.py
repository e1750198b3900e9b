"""Fixtures of the whole suite.

The functions that ``slow.txt`` names take more than two seconds for one case or five in all, or share a fixture that
does. They are marked `slow`, and ``make test-slow`` runs them: they are half of the suite's time. Those marked `gpu`
need an NVIDIA GPU and are skipped elsewhere.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from deblur import graphs

SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().split())

# The time of an example depends on the load of the machine, so it is not limited.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker("slow")


@pytest.fixture
def cupy():
    """CuPy, or a skip that says what is missing. Each test begins without cached graphs."""
    module = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        if module.cuda.runtime.getDeviceCount() < 1:
            pytest.skip("no CUDA device")
    except module.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no usable CUDA device ({error})")
    graphs.forget()
    return module


@pytest.fixture
def on_four_streams(cupy):
    """A function that returns all results of `work(0)` to `work(3)`, each called `times` times in a thread."""

    def done(work, times):
        def mine(i):
            with cupy.cuda.Stream(non_blocking=True):
                return [work(i) for _ in range(times)]

        cupy.cuda.Device().synchronize()
        with ThreadPoolExecutor(4) as threads:
            return [one for of_thread in threads.map(mine, range(4)) for one in of_thread]

    return done


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """One test body, two array libraries: NumPy always, CuPy where there is a GPU."""
    return np if request.param == "numpy" else request.getfixturevalue("cupy")


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    """Both precisions; a test that serves others, too, has parameters of this name instead."""
    return request.param


@pytest.fixture
def rng():
    """A generator with a fixed seed, so that a failure can be seen again."""
    return np.random.default_rng(20261121)
