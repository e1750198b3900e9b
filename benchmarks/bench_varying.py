"""What a PSF that varies brings, and in how many iterations; about three minutes with six workers.

An elliptical Gaussian whose widths and direction change across the frame. `camera`, halved to 256 x 256, is blurred by
the exact operator, written as a sum over the PSF's pixels, and restored by conjugate gradients with each operator in
turn: one PSF, PSFs by regions, eigen-PSFs, the exact operator. Then the iterations beside those of one PSF, where both
need them. Then fields of a telescope with coma and defocus, whose PSFs are measured from 100 stars; what measures them
was tuned on other fields. Writes benchmarks/results/varying.json.

And seconds, four minutes on two cores: total variation at 2048 x 2048 in float32 with the mean PSF alone and with six
eigen-PSFs, and one product at 512 x 512 with 25 PSFs, beside PyLops. Writes benchmarks/results/varying_speed.json.

    python benchmarks/bench_varying.py [--parts quality speed] [--workers N] [--side N, of total variation]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import asked, each, save, table, time_together
from cases import mirrored

import deblur
from deblur.operators.operator import LinearMap
from deblur.problem import Problem, Stop
from deblur.solvers import admm, quadratic

SIZE, REACH, LAM, NOISE = 256, 8, 1e-2, 0.001
CASES = {
    "one PSF": (1, None),
    "3 x 3 regions": (3, None),
    "5 x 5 regions": (5, None),
    "mean + 3 eigen-PSFs": (9, 3),
    "mean + 5 eigen-PSFs": (9, 5),
    "mean + 11 eigen-PSFs": (9, 11),
}
FIELDS = range(101, 107)  # seeds of the telescope's


def psf_at(u: np.ndarray, v: np.ndarray, reach: int = REACH) -> np.ndarray:
    """The PSF at (u, v) in [0, 1]², (..., 2 reach + 1, 2 reach + 1): σ from 0.9 to 2.2, longest along one axis at one
    end and along the other at the other."""
    u, v = (np.asarray(a, float)[..., None, None] for a in (u, v))
    along, across, angle = 0.9 + 1.3 * u, 2.2 - 1.3 * u, 0.5 * np.pi * (v - 0.5)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    p, q = np.cos(angle) * y + np.sin(angle) * x, np.cos(angle) * x - np.sin(angle) * y
    h = np.exp(-0.5 * ((p / along) ** 2 + (q / across) ** 2))
    return h / h.sum(axis=(-2, -1), keepdims=True)


class Exact(LinearMap):
    """Every pixel of the image sees the scene through its own PSF; reflecting edges."""

    shift_invariant = None

    def __init__(self, size: int) -> None:
        at = (np.arange(size) + 0.5) / size
        self.h = psf_at(*np.meshgrid(at, at, indexing="ij"))
        self.mean_blur = deblur.Blur(self.h.mean(axis=(0, 1)), (size, size), "reflect")
        self.image_shape = self.scene_shape = (size, size)
        self.crop, self.boundary = self.mean_blur.crop, self.mean_blur.boundary
        self.norm_bound = self.dc_gain = 1.0
        self.nonnegative = True

    def power(self, torus: Any) -> np.ndarray:
        return torus.power(self.mean_blur.psf)

    def forward(self, f: np.ndarray) -> np.ndarray:
        m, n = f.shape[-2:]
        f = np.pad(f, [(0, 0)] * (f.ndim - 2) + [(REACH, REACH)] * 2, mode="symmetric")
        size = 2 * REACH + 1
        return sum(
            self.h[:, :, size - 1 - i, size - 1 - j] * f[..., i : i + m, j : j + n]
            for i in range(size)
            for j in range(size)
        )

    def adjoint(self, g: np.ndarray, overwrite: bool = False) -> np.ndarray:
        m, n = g.shape[-2:]
        size = 2 * REACH + 1
        out = np.zeros((*g.shape[:-2], m + 2 * REACH, n + 2 * REACH))
        for i in range(size):
            for j in range(size):
                out[..., i : i + m, j : j + n] += self.h[:, :, size - 1 - i, size - 1 - j] * g
        for axis in (-2, -1):
            out = self.boundary.fold(out, axis, REACH, REACH)
        return out


def grid(k: int, size: int) -> np.ndarray:
    at = (np.arange(k) + 0.5) / k
    return psf_at(*np.meshgrid(at, at, indexing="ij"))


def operator(regions: int, eigen: int | None, size: int, boundary: str = "reflect") -> deblur.VaryingBlur:
    """By regions, or with so many eigen-PSFs: the tolerance that gives them."""
    h = grid(regions, size)
    if eigen is None:
        return deblur.VaryingBlur(h, (size, size), boundary)
    low, high = 1e-9, 0.9
    for _ in range(60):
        middle = (low * high) ** 0.5
        found = deblur.VaryingBlur(h, (size, size), boundary, tolerance=middle)
        if found.terms == eigen + 1:
            return found
        low, high = (middle, high) if found.terms > eigen + 1 else (low, middle)
    raise RuntimeError(f"no tolerance gives {eigen} eigen-PSFs")


def restored(op: Any, g: np.ndarray, lam: float = LAM) -> tuple[np.ndarray, int]:
    solution = quadratic.prepare(Problem(op, lam, stop=Stop(rtol=1e-6))).solve(g[None, None])
    return solution.scene[0, 0], solution.iterations


def halved() -> np.ndarray:
    camera = deblur.data.load("camera").astype(float)
    return camera.reshape(SIZE, camera.shape[0] // SIZE, SIZE, -1).mean(axis=(1, 3))


def quality() -> list[dict[str, Any]]:
    """PSNR with each operator, of an image made by the exact one."""
    scene, exact = halved(), Exact(SIZE)
    clean = exact.forward(scene)
    g = clean + NOISE * np.random.default_rng(0).standard_normal(clean.shape)
    rows = [{"operator": "blurred", "terms": None, "error": None, "iterations": None, "psnr": psnr(scene, g)}]
    for name, (regions, eigen) in CASES.items():
        op = operator(regions, eigen, SIZE)
        f, n = restored(op, g)
        error = float((op.forward(scene) - clean).std() / clean.std())
        rows.append({"operator": name, "terms": op.terms, "error": error, "iterations": n, "psnr": psnr(scene, f)})
    f, n = restored(exact, g)
    rows.append({"operator": "exact", "terms": None, "error": 0.0, "iterations": n, "psnr": psnr(scene, f)})
    return rows


def psnr(truth: np.ndarray, f: np.ndarray) -> float:
    return float(deblur.metrics.psnr(truth, f))


def aberrated(u: float, v: float, reach: int) -> np.ndarray:
    """Ever larger discs, ever further from the axis: a comet whose tail points outwards."""
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    out, r, angle = np.zeros(x.shape), np.hypot(u - 0.5, v - 0.5), np.arctan2(u - 0.5, v - 0.5)
    steps = np.linspace(0, 1, 12)
    middle = np.average(steps, weights=1.2 - steps)  # the PSFs from stars are centred on their light
    for t in steps:
        away, sigma = 6 * r * (t - middle), 1.0 + 0.8 * r + 1.5 * r * t
        dy, dx = y - away * np.sin(angle), x - away * np.cos(angle)
        out += (1.2 - t) * np.exp(-(dy**2 + dx**2) / (2 * sigma**2)) / sigma**2
    return out / out.sum()


def comets(reach: int) -> np.ndarray:
    at = (np.arange(9) + 0.5) / 9
    return np.array([[aberrated(u, v, reach) for v in at] for u in at])


def iterations() -> list[dict[str, Any]]:
    """Of conjugate gradients, with a PSF that varies and with one; the scene goes on beyond the frame."""
    rows = []
    for name, psfs in (("elliptical Gaussian", grid(9, SIZE)), ("telescope", comets(10))):
        varying = deblur.VaryingBlur(psfs, (SIZE, SIZE), "unknown", tolerance=0.01)
        scene = np.pad(halved(), psfs.shape[-1] // 2, mode="symmetric")
        g = varying.forward(scene) + 0.003 * np.random.default_rng(0).standard_normal((SIZE, SIZE))
        for lam in (1e-1, 1e-2, 1e-3):
            many, one = (restored(op, g, lam)[1] for op in (varying, varying.mean_blur))
            rows.append(
                {"psf": name, "lam": lam, "terms": varying.terms, "varying": many, "one": one, "ratio": many / one}
            )
    return rows


def telescope(seed: int) -> dict[str, Any]:
    """A field with coma and defocus: its PSFs measured from 100 stars, and what is gained with them."""
    n, reach, rng = 512, 10, np.random.default_rng(seed)
    true = comets(reach)
    blur = deblur.VaryingBlur(true, (n, n), "unknown")
    sky = np.zeros(blur.scene_shape)
    sky[tuple((reach + 12 + (n - 24) * rng.random((2, 100))).astype(int))] = 20 + 80 * rng.random(100)
    stars = blur.forward(sky) + 0.01 * rng.standard_normal((n, n))
    found = deblur.psf.from_points(stars, size=2 * reach + 1, grid=(5, 5))
    camera = np.pad(deblur.data.load("camera").astype(float), reach, mode="symmetric")
    g = blur.forward(camera) + 0.003 * rng.standard_normal((n, n))
    truth = camera[blur.crop]
    gains = {
        name: psnr(truth, deblur.reconstruct(g, one, psfs=many, boundary="unknown")) - psnr(truth, g)
        for name, one, many in (
            ("true PSFs", None, true),
            ("PSFs measured from stars", None, found.map),
            ("one PSF measured from stars", found.psf, None),
        )
    }
    return {
        "seed": seed,
        "stars": int(found.details["points"]),
        "blurred": psnr(truth, g),
        "gain": gains,
        "kept": gains["PSFs measured from stars"] / gains["true PSFs"],
    }


# ---------------------------------------------------------------- seconds


def total_variation(side: int, boundary: str) -> dict[str, Any]:
    """Processor seconds of tv with λ given: six eigen-PSFs beside one PSF, each restoring what it blurred."""
    camera = deblur.data.load("camera").astype(np.float32)
    varying = operator(9, 6, side, boundary)
    out: dict[str, Any] = {"boundary": boundary, "side": side}
    for name, op in (("one PSF", varying.mean_blur), ("six eigen-PSFs", varying)):
        g = op.forward(mirrored(camera, *op.scene_shape))
        g += np.float32(NOISE) * np.random.default_rng(1).standard_normal(g.shape, np.float32)
        start = time.process_time()  # of all threads: other programs do not count
        solution = admm.prepare(Problem(op, 2e-3, "tv", dtype=np.dtype(np.float32))).solve(g[None, None])
        seconds = time.process_time() - start
        out[name] = {"seconds": seconds, "iterations": solution.iterations, "converged": solution.converged}
    return out | {"ratio": out["six eigen-PSFs"]["seconds"] / out["one PSF"]["seconds"]}


def products() -> dict[str, Any]:
    """Seconds of one product H f, beside PyLops' operator where it is installed."""
    n = 512
    h, f = grid(5, n), np.random.default_rng(2).random((n, n))
    blur = deblur.VaryingBlur(h, (n, n), "zero")
    run = {"VaryingBlur": lambda: blur.forward(f)}
    at = tuple(n // 10 + n // 5 * np.arange(5))
    for engine in ("numpy", "numba"):
        try:
            from pylops.signalprocessing import NonStationaryConvolve2D

            theirs = NonStationaryConvolve2D(dims=(n, n), hs=h, ihx=at, ihz=at, engine=engine)
            theirs @ f.ravel()
        except Exception as error:  # PyLops or its engine is not installed
            print(f"PyLops with {engine}: {error}")
            continue
        run[f"PyLops ({engine})"] = lambda op=theirs: op @ f.ravel()
    return time_together(run, repeats=3)


# ---------------------------------------------------------------- tables


def quality_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    title = (
        "**A PSF that varies.** `camera` at 256 × 256, blurred by an elliptical Gaussian whose widths change from 0.9 "
        "to 2.2 across the frame, each pixel by its own, and restored with λ = 0.01 and the same formula by each "
        "operator; *error* is that of H f over the deviation of H f."
    )
    columns = {"operator": "{operator}", "convolutions": "{terms}", "error": "{error:.1e}"}
    columns |= {"iterations": "{iterations}", "PSNR": "{psnr:.2f}"}
    second = (
        "Iterations of conjugate gradients to a residual of 1e-6, where the scene goes on beyond the frame; the "
        "eigen-PSFs are taken to a tolerance of 1 %."
    )
    counts = {"PSF": "{psf}", "λ": "{lam:g}", "convolutions": "{terms}", "iterations": "{varying}"}
    counts |= {"with the mean PSF alone": "{one}", "ratio": "{ratio:.1f}"}
    fields = r["telescope"]
    gains = ", ".join(
        f"{sum(f['gain'][name] for f in fields) / len(fields):+.2f} dB with {name}" for name in fields[0]["gain"]
    )
    kept = sorted(100 * f["kept"] for f in fields)
    notes = (
        "A telescope's field with coma and defocus, 512 × 512, restored without options, in the mean of "
        f"{len(fields)} fields: {gains}. The PSFs were measured from {min(f['stars'] for f in fields)} to "
        f"{max(f['stars'] for f in fields)} of 100 stars with noise, and keep {kept[0]:.0f} to {kept[-1]:.0f} % of the "
        "gain with the true ones."
    )
    return [table(title, columns, r["table"]), table(second, counts, r["iterations"], notes)]


def speed_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    products = "; ".join(f"{name} {1e3 * cell['median_s']:.0f} ms" for name, cell in r["product"].items())
    cells = "{{{0}[seconds]:.1f}} s, {{{0}[iterations]}} iterations"
    columns = {"boundary": "{boundary}", "the mean PSF alone": cells.format("one PSF")}
    columns |= {"and six eigen-PSFs": cells.format("six eigen-PSFs"), "times": "{ratio:.1f}"}
    side = r["tv"][0]["side"]
    title = f"**Seconds with a PSF that varies.** `tv` at {side} × {side} in float32, in seconds of one core:"
    return [table(title, columns, r["tv"], f"One product at 512 × 512 with 25 PSFs: {products}.")]


def main() -> None:
    options = asked(__doc__, parts=("quality", "speed"), workers=None, side=2048)
    if "quality" in options.parts:
        found = {"table": quality(), "iterations": iterations()}
        found["telescope"] = each(telescope, [(seed,) for seed in FIELDS], options.workers)
        save("varying", found, quality_tables(found))
    if "speed" in options.parts:
        tv = [total_variation(options.side, boundary) for boundary in ("unknown", "reflect")]
        results = {"product": products(), "tv": tv}
        save("varying_speed", results, speed_tables(results), lam=2e-3, noise=NOISE)


if __name__ == "__main__":
    main()
