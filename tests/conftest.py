"""Fixtures that the whole suite shares."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from deblur import graphs

# How long an example takes tells how busy the machine is, and nothing of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def _cupy_or_reason():
    try:
        import cupy
    except ImportError:
        return None, "CuPy is not installed"
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return None, "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return None, f"no usable CUDA device ({error})"
    return cupy, ""


@pytest.fixture
def cupy():
    """CuPy, or a skip that says what is missing. No test meets what another one left on the device."""
    module, reason = _cupy_or_reason()
    if module is None:
        pytest.skip(reason)
    graphs.forget()
    return module


@pytest.fixture
def on_four_streams(cupy):
    """From a piece of work, given 0 to 3, to all that it returns when four threads do it over and over at once."""

    def done(work, times):
        def mine(i):
            with cupy.cuda.Stream(non_blocking=True):
                return [work(i) for _ in range(times)]

        cupy.cuda.Device().synchronize()  # what the work reads is there
        with ThreadPoolExecutor(4) as threads:
            return [one for of_thread in threads.map(mine, range(4)) for one in of_thread]

    return done


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """One test body, two array libraries: NumPy always, CuPy where there is a GPU."""
    return np if request.param == "numpy" else request.getfixturevalue("cupy")


@pytest.fixture
def rng():
    """A generator with a fixed seed, so that a failure can be seen again."""
    return np.random.default_rng(20261121)
