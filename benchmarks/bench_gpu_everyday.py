"""Milliseconds of the everyday methods on a GPU, beside what their transforms alone cost there.

    python benchmarks/bench_gpu_everyday.py          writes benchmarks/results/gpu_everyday.json

"cold" is a whole `deblur.solve` with a PSF and an image that were not seen before, in a warm process; "kept" a
`Deblurrer` that has its factor. The device is waited for at both ends. Floors are measured in the same run: the
transforms that a method cannot do without, by CuPy. The CPU's column is the same call on NumPy arrays.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import print_table, save

import deblur

REPEATS = 7
#: (method, rows, options, lam, transforms of the image's size that it cannot do without)
CELLS: list[tuple[str, int, dict[str, Any], float | str, int]] = [
    ("fft", 1024, {"boundary": "periodic"}, 1e-2, 2),
    ("fft", 4096, {"boundary": "periodic"}, 1e-2, 2),
    ("dct", 4096, {"boundary": "reflect"}, 1e-2, 2),
    ("kronecker", 2048, {"boundary": "zero"}, 1e-2, 0),
    ("pcg", 1024, {"boundary": "unknown"}, 1e-2, 10),
    ("pcg", 4096, {"boundary": "unknown"}, 1e-2, 10),
    ("gradient", 1024, {"boundary": "unknown"}, 1e-2, 60),
    ("tv", 256, {"boundary": "unknown"}, 2e-3, 120),
    ("tv", 1024, {"boundary": "unknown"}, 2e-3, 120),
    ("tv2", 1024, {"boundary": "unknown"}, 2e-3, 120),
    ("richardson-lucy", 1024, {"boundary": "unknown", "rtol": 1e-12, "max_iterations": 100}, 0.0, 400),
    ("auto", 1024, {"boundary": "unknown"}, "gcv", 10),
]


def psf_for(method: str, i: int) -> np.ndarray:
    """A PSF that the method serves, another one for each i."""
    if method in ("dct", "kronecker"):
        return deblur.psf.gaussian(15, 2.0 + 0.01 * i)
    return deblur.psf.camera_shake(17, 3 + i)


def milliseconds(
    call: Callable[[int], Any], wait: Callable[[], None], repeats: int = REPEATS
) -> dict[str, float]:
    """Median and spread of `call(0)`, `call(1)` ..., after one that is not counted."""
    call(repeats)
    found = []
    for i in range(repeats):
        wait()
        start = time.perf_counter()
        call(i)
        wait()
        found.append(1e3 * (time.perf_counter() - start))
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


def measured(
    method: str, side: int, extra: dict[str, Any], lam: float | str, transforms: int
) -> dict[str, Any]:
    """One row of the table."""
    import cupy
    import cupyx.scipy.fft as fft

    wait = cupy.cuda.Device().synchronize
    camera = deblur.data.load("camera").astype(np.float32)
    sharp = np.tile(camera, (8, 8))[:side, :side]
    blurred = deblur.degrade(sharp, psf_for(method, 0), noise=0.01, boundary="reflect", seed=0)
    host = blurred.clip(0, 1).astype(np.float32)
    g = cupy.asarray(host)
    images = [g + np.float32(1e-3 * i) for i in range(REPEATS + 1)]
    given = {"method": method, "check": False, **extra}

    def solved(i: int, image: Any) -> Any:
        return deblur.solve(image, psf_for(method, i), lam, **given)

    def transformed(i: int) -> Any:
        return fft.dctn(images[i], norm="ortho") if method == "dct" else fft.rfft2(images[i])

    kept = deblur.Deblurrer(
        psf_for(method, 0), g.shape, lam, dtype=np.float32, gpu=True, method=method, **extra
    )
    row: dict[str, Any] = {"method": method, "side": side, "iterations": solved(0, g).iterations}
    cold = milliseconds(lambda i: solved(i, images[i]), wait)
    warm = milliseconds(lambda i: kept.solve(images[i], check=False), wait)
    for name, found in (("cold", cold), ("kept", warm)):
        row |= {f"{name}_{part}": found[part] for part in ("median", "least", "most")}
    row["transforms"] = transforms * milliseconds(transformed, wait)["median"]
    row["cpu"] = milliseconds(lambda i: solved(i, host), wait, 1)["median"] if side <= 1024 else None
    return row


def main() -> None:
    rows = []
    for cell in CELLS:
        rows.append(measured(*cell))
        print(rows[-1], flush=True)
    print_table(rows)
    print(f"written: {save('gpu_everyday', rows, repeats=REPEATS, dtype='float32', unit='milliseconds')}")


if __name__ == "__main__":
    main()
