"""Nothing of an image's size crosses the bus, except what comes in and goes out: copies are counted by their size."""

import json
import warnings

import numpy as np
import pytest

import deblur

pytestmark = pytest.mark.gpu

SIDE = 640

CASES = {
    "fft": (1e-2, {"boundary": "periodic"}),
    "dct": (1e-2, {"boundary": "reflect"}),
    "dst": (1e-2, {"boundary": "zero"}),
    "kronecker": (1e-2, {"boundary": "zero"}),
    "banded": (1e-2, {"boundary": "zero"}),
    "pcg": (1e-2, {"boundary": "unknown"}),
    "hybrid-lsqr": (1e-2, {"boundary": "unknown"}),
    "gradient": (1e-2, {"boundary": "unknown"}),
    "tv": (2e-3, {"boundary": "unknown"}),
    "tv2": (2e-3, {"boundary": "zero", "bounds": (0.0, 1.0)}),
    "richardson-lucy": (0.0, {"boundary": "unknown", "max_iterations": 20}),
    "auto": ("gcv", {"boundary": "unknown"}),
    "collaborative": (2e-3, {"boundary": "unknown"}),
    "pnp": (1e-3, {"boundary": "unknown", "denoiser": "collaborative", "max_iterations": 3}),
}
#: Methods with a PSF that varies across the picture.
VARYING = ("hybrid-lsqr", "gradient", "tv", "richardson-lucy")


def psf_for(method, i):
    if method in ("dst", "banded"):
        return deblur.psf.gaussian(3, 0.6 + i / 10)
    if method in ("dct", "kronecker"):
        return deblur.psf.gaussian(15, 2 + i / 10)
    return deblur.psf.camera_shake(9, 3 + i)


@pytest.mark.parametrize(
    ("method", "varying"), [*((name, False) for name in CASES), *((name, True) for name in VARYING)]
)
def test_no_copy_between_host_and_device_is_of_the_images_size(cupy, method, varying, tmp_path):
    profiler = pytest.importorskip("torch.profiler")
    lam, options = CASES[method]
    image = cupy.asarray(np.tile(deblur.data.load("camera"), (2, 2))[:SIDE, :SIDE].astype(np.float32))

    def restored(i):
        one = psf_for(method, i)
        grid = {"psfs": np.array([[one, one[::-1], one[:, ::-1]], [one, one.T, one[::-1].T]])} if varying else {}
        psf = None if varying else one
        deblur.solve(image, psf, lam, method=method, check=False, **grid, **options)

    restored(0)  # libraries load their own tables
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's own
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as recorded:
            restored(1)
            cupy.cuda.Device().synchronize()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    copies = [
        (e["args"]["bytes"], e["name"])
        for e in events
        if e.get("cat") == "gpu_memcpy" and any(way in e["name"] for way in ("HtoD", "DtoH"))
    ]
    assert copies  # a result reads numbers back
    # In bytes, an eighth of a float32 image: tables go with the PSF and with a side, and the mean power of windows of
    # 256 x 256 pixels is read, from which the error of the PSF follows.
    assert max(copies)[0] < SIDE * SIDE // 2, sorted(copies)[-5:]
