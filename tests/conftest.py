"""Fixtures that the whole suite shares."""

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


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """One test body, two array libraries: NumPy always, CuPy where there is a GPU."""
    return np if request.param == "numpy" else request.getfixturevalue("cupy")


@pytest.fixture
def rng():
    """A generator with a fixed seed, so that a failure can be seen again."""
    return np.random.default_rng(20261121)
