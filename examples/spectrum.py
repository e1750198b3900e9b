"""A spectrum, restored from its line-spread function: signals of one axis.

python examples/spectrum.py

The synthetic spectrum has a continuum with an edge and forty emission lines, some of them in close pairs. The
spectrograph's line-spread function has a core and a tail to one side. The noise has three levels.
"""

import numpy as np

import deblur

PIXELS = 1200
NOISES = (0.002, 0.01, 0.05)
METHODS = {
    "linear formula": {},
    "total variation": {"method": "tv"},
    "Richardson-Lucy": {"method": "richardson-lucy"},
}


def spectrum(seed: int = 0) -> np.ndarray:
    """Emission lines on a continuum with an edge."""
    rng = np.random.default_rng(seed)
    x = np.arange(float(PIXELS))
    flux = 0.3 + 0.1 * np.sin(x / 300) + 0.2 * (x > 0.6 * PIXELS)
    for place, height in zip(rng.uniform(0, PIXELS, 40), rng.uniform(0.2, 1.0, 40), strict=True):
        flux += height * np.exp(-(((x - place) / 1.5) ** 2) / 2)
    return flux


def line_spread() -> np.ndarray:
    """A Gaussian core of three pixels, and a tail towards longer wavelengths."""
    x = np.arange(-15.0, 16.0)
    h = np.exp(-((x / 3) ** 2) / 2) + 0.15 * np.exp(-x / 5) * (x > 0)
    return h / h.sum()


def table() -> dict[str, list[float]]:
    """Mean square errors of the measured spectrum and of each method, by level of noise."""
    truth, h = spectrum(), line_spread()
    inside = deblur.Blur(h, [PIXELS - len(h) + 1], "unknown").crop
    found: dict[str, list[float]] = {name: [] for name in ("measured", *METHODS)}
    for noise in NOISES:
        seen = deblur.degrade(truth, h, noise=noise, boundary="unknown", seed=1)
        found["measured"].append(deblur.metrics.mse(truth[inside], seen))
        for name, options in METHODS.items():
            light = np.maximum(seen, 0) if name == "Richardson-Lucy" else seen
            found[name].append(deblur.metrics.mse(truth[inside], deblur.reconstruct(light, h, **options)))
    return found


if __name__ == "__main__":
    print(f"{'noise':17}" + "".join(f"{noise:>12g}" for noise in NOISES))
    for name, errors in table().items():
        print(f"{name:17}" + "".join(f"{error:12.2e}" for error in errors))
