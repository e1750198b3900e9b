"""Fit the weights of `deblur.denoise.network`: a denoiser, then the last steps of `deblur.solvers.collaborative`.

    python tools/fit_network.py --pictures FOLDER --out FILE.npz [--denoiser S] [--steps S] [--pairs S] [--near S]
                                     [--start FILE.npz]

(S: seconds.) The folder holds pictures in the public domain or dedicated to it (CC0), of which no benchmark
reports what the network makes:

- from SciPy (`scipy.datasets`; pixnio.com, public domain): face.png, ascent.png; from scikit-image: eagle.png (CC0,
  Dayane Machado); from matplotlib: grace_hopper.png (public domain, United States Navy);
- photographs of github.com/BuddiesOfBudgie/budgie-backgrounds (CC0; backgrounds/*.jpg of all its branches and tags);
- those of github.com/elementary/wallpapers that its debian/copyright says to be CC0 or in the public domain;
- three of external/wesaturate/500px in github.com/libjxl/testdata (CC0).

PHOTOGRAPHS names them. To these come dead leaves, made here: discs and polygons of all sizes and greys, some striped,
the nearer hiding the farther. Pictures of more than SIDE pixels a side are averaged down to less.

First, for --denoiser, the network sees crops with white noise of 0.001 to 0.25 of full scale and no estimate of the
picture. Then, for --steps, crops are blurred by PSFs drawn at random, with noise of 0.0005 to 0.05, and restored by
eight steps between data and network, through which the logarithm of the squared error is followed back. Meanwhile,
for --pairs, other processes restore crops by the collaborative filter without its network, on the GPU; last, for
--near, the steps begin at those answers, which the network is shown, as `deblur.solvers.collaborative` does, and every
fourth batch is white noise again. Adam, the rate falling as a cosine; the mean of the weights over the last steps is
kept, in 16 bits. What the answers of TESTED pictures gain is told, and never fitted to.

The shipped weights are of four runs on an H200, each of which began with the weights of the one before. The first
three, of 195, 500 and 165 seconds of the three kinds, were an earlier version's, with fewer pairs of convolutions and
without the photographs of the three repositories; the first of them also saw, of scikit-image, grass (CC0, DeviantArt
linolafett), gravel (CC0, CC0Textures), retina (CC0, Mikael Häggström), cell (CC0, Paul Müller), hubble_deep_field
(public domain, NASA) and clock (public domain, Stéfan van der Walt). Then came --denoiser 42 --steps 32 --pairs 95
--near 140 --seed 1, for three steps of the network. Needs PyTorch and CuPy.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import each

import deblur
from deblur.solvers import collaborative

LAST_STEPS = collaborative._LAST_STEPS  # which `answers` sets to none
WIDTHS, PAIRS = (32, 64, 96), (1, 2, 6)
CROP, CROP_STEPS, CROP_NEAR = 96, 128, 256  # pixels a side
BATCH, BATCH_STEPS, BATCH_NEAR = 96, 32, 12
RATE, RATE_STEPS, RATE_NEAR = 6e-4, 5e-4, 6e-4
# The steps that begin with the image itself: how many, their first strength, the last over the noise's deviation.
STEPS, FIRST, LAST = 8, 0.15, 0.6
COLOURED = ("face", "eagle", "grace_hopper")  # whose differences of colours are fitted to as well
PHOTOGRAPHS = (
    *("ascent", *COLOURED),
    *("abstract-spiral", "accelerated-green", "apollo-11-earth", "beacon-street-sunset", "blue-periwinkle"),
    *("budgie-branch", "canyon-wren", "cave-opening", "colorful-wall", "dragonfly-on-lavender"),
    *("fragrant-chamomile", "high-trestle-trail", "lake-sherburne", "midsummer-sunrise", "motherboard-circuits"),
    *("noche-bogota", "oakland-zoo-otters", "ocean-waves", "orange-hallway", "piazza-gae-aulenti", "rich-port"),
    *("roman-colosseum", "serene", "singaporean-cityscape", "solaris-grapes", "spiral-firework", "sunset-beach"),
    *("taipei-city", "tea-gardens", "the-spices-of-life", "tunnel-zion-park", "ufo-galaxy"),
    *("Ashim DSilva", "Carmine De Fazio", "Jay Ruzesky", "Jonas Nilsson Lee", "Mr. Lee", "Pablo Garcia Saldana"),
    *("Photo by SpaceX", "Rob Bye", "Sunset by the Pier", "photo-1451187580459-43490279c0fa"),
    *("photo-1452953008873-ae5837174535", "cvo9xd_keong_macan_srgb8", "tmshre_riaphotographs_srgb8"),
    "u76c0g_bliznaca_srgb8",
)
TESTED = ("casa-mila", "egg-basket", "perched-osprey", "san-francisco-skyline", "kitten-on-lawn", "Ryan Schroeder")
SIDE = 1700
LEAVES, LEAVES_SHARE, CHROMA_SHARE = 18, 0.1, 0.05
SCALES = (1.0, 0.7, 0.5)
GREY = np.float32([0.2125, 0.7154, 0.0721])
PSF, PSFS = 25, 4000  # pixels a side, and how many there are to choose from

# ---------------------------------------------------------------- the network, as PyTorch has it


class Pair(nn.Module):
    """Two convolutions with a rectifier between them, added to what goes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(F.relu(self.a(x)))


class Network(nn.Module):
    """See `deblur.denoise.network`."""

    def __init__(self) -> None:
        super().__init__()
        w = WIDTHS
        self.head = nn.Conv2d(9, w[0], 3, padding=1, bias=False)
        self.down = nn.ModuleList(nn.Conv2d(w[i], w[i + 1], 2, stride=2, bias=False) for i in range(2))
        self.left = nn.ModuleList(nn.Sequential(*(Pair(w[i]) for _ in range(PAIRS[i]))) for i in range(3))
        self.up = nn.ModuleList(nn.Conv2d(w[i + 1], 4 * w[i], 1, bias=False) for i in range(2))
        self.right = nn.ModuleList(nn.Sequential(*(Pair(w[i]) for _ in range(PAIRS[i]))) for i in range(2))
        self.tail = nn.Conv2d(w[0], 4, 3, padding=1, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                module.weight.data *= 0.5

    def forward(self, x: Tensor, sigma: Tensor, near: Tensor) -> Tensor:
        """Images (k, 1, M, N) of noise (k,), without it; `near` are estimates of them, or zero."""
        parts = F.pixel_unshuffle(x, 2)
        level = sigma.view(-1, 1, 1, 1).to(parts.dtype).expand(-1, 1, *parts.shape[2:])
        head = self.head(torch.cat([parts, level, F.pixel_unshuffle(near, 2)], 1))
        y0 = self.left[0](head)
        y1 = self.left[1](self.down[0](y0))
        y2 = self.left[2](self.down[1](y1))
        y1 = self.right[1](y1 + F.pixel_shuffle(self.up[1](y2), 2))
        y0 = self.right[0](y0 + F.pixel_shuffle(self.up[0](y1), 2))
        return x - F.pixel_shuffle(self.tail(y0 + head), 2)


def _name(key: str) -> str:
    first, *rest = key.removesuffix(".weight").split(".")
    return first if not rest else f"{first}{rest[0]}" + "".join(f".{part}" for part in rest[1:])


def export(network: nn.Module) -> dict[str, np.ndarray]:
    """The weights as `deblur.denoise.network.read` gives them, in 16 bits."""
    out = {}
    for key, value in network.state_dict().items():
        w = value.detach().float().cpu().numpy()
        o, i, side, _ = w.shape
        if side == 3:
            w = w.transpose(0, 2, 3, 1).reshape(o, 9, i)
        else:
            w = w.reshape((o, i) if side == 1 else (o, i, 4))
        out[_name(key)] = w.astype(np.float16)
    return out


def load(network: nn.Module, path: Path) -> None:
    """The way back."""
    with np.load(path) as arrays:
        state = {}
        for key, value in network.state_dict().items():
            o, i, side, _ = value.shape
            if _name(key) not in arrays:  # a pair of convolutions that came later begins with nothing
                state[key] = value * (not _name(key).endswith(".b"))
                continue
            w = arrays[_name(key)].astype(np.float32)
            if _name(key) == "head" and w.shape[2] < i:
                w = np.concatenate([w, np.zeros((o, 9, i - w.shape[2]), np.float32)], axis=2)
            w = w.reshape(o, 3, 3, i).transpose(0, 3, 1, 2) if side == 3 else w.reshape(o, i, side, side)
            state[key] = torch.tensor(np.ascontiguousarray(w))
    network.load_state_dict(state)


# ---------------------------------------------------------------- the pictures


def picture(name: str, folder: Path) -> np.ndarray:
    """Grey or colour, from 0 to 1."""
    import imageio.v3 as iio

    [path] = [path for path in folder.iterdir() if path.stem == name]
    image = np.asarray(iio.imread(path), np.float32) / 255
    fewer = math.ceil(max(image.shape) / SIDE)
    rows, cols = (n // fewer for n in image.shape[:2])
    image = image[: rows * fewer, : cols * fewer].reshape(rows, fewer, cols, fewer, -1).mean(axis=(1, 3))
    return image[..., 0] if image.shape[-1] == 1 else image[..., :3]


def grey(name: str, folder: Path) -> np.ndarray:
    """The brightness of a picture."""
    image = picture(name, folder)
    return image @ GREY if image.ndim == 3 else image


def dead_leaves(n: int, seed: int) -> np.ndarray:
    """n x n pixels, the means of 2 x 2 finer ones; from 0 to 1. Drawn from the front: only what is empty is painted."""
    rng = np.random.default_rng(seed)
    n *= 2
    out = np.full((n, n), np.nan, np.float32)
    y, x = np.mgrid[:n, :n]
    left = n * n
    while left > 0.002 * n * n:
        r = 4 / math.sqrt(1 - rng.random() * (1 - (12 / n) ** 2))  # areas of all sizes take up as much
        at = rng.random(2) * n
        rows, cols = (slice(max(0, int(c - r)), min(n, int(c + r) + 2)) for c in at)
        v, u = y[rows, cols] - at[0], x[rows, cols] - at[1]
        corners, first = int(rng.integers(3, 7)), rng.random() * 2 * math.pi
        if rng.integers(3):
            shape = np.ones(v.shape, bool)
            for k in range(corners):
                angle = first + 2 * math.pi * k / corners + 0.2 * rng.normal()
                shape &= v * math.sin(angle) + u * math.cos(angle) < 0.7 * r
        else:
            shape = v * v + u * u < r * r
        part = out[rows, cols]
        shape &= np.isnan(part)
        angle = rng.random() * 2 * math.pi
        along = v * math.sin(angle) + u * math.cos(angle)
        grey = rng.random() + 0.3 * rng.normal() * along / n
        if rng.random() < 0.4:
            grey = grey + 0.15 * rng.random() * np.sin(rng.uniform(0.05, 1.5) * along)
        part[shape] = grey[shape]
        left -= int(shape.sum())
    out[np.isnan(out)] = 0.5
    return out.reshape(n // 2, 2, n // 2, 2).mean(axis=(1, 3)).clip(0, 1)


class Pictures:
    """All pictures at several scales, on the device, and crops of them."""

    def __init__(self, folder: Path, device: str, seed: int) -> None:
        self.device, self.rng = device, np.random.default_rng(seed)
        planes: list[tuple[np.ndarray, float]] = []
        chroma: list[np.ndarray] = []
        for name in PHOTOGRAPHS:
            planes += [(plane, math.sqrt(plane.size)) for plane in _scaled(grey(name, folder))]
        for name in COLOURED:
            r, g, b = np.moveaxis(picture(name, folder), -1, 0)
            chroma += [(r - b) / math.sqrt(2), (r - 2 * g + b) / math.sqrt(6)]
        whole = sum(share for _, share in planes)
        leaves = each(dead_leaves, [(384, 1000 + i) for i in range(LEAVES)], workers=6)
        planes += [(plane.astype(np.float32), LEAVES_SHARE * whole / LEAVES) for plane in leaves]
        small = [plane for image in chroma for plane in _scaled(image)]
        planes += [(plane, CHROMA_SHARE * whole / len(small)) for plane in small]
        self.upto = np.cumsum([share for _, share in planes]) / sum(share for _, share in planes)
        self.shapes = np.array([plane.shape for plane, _ in planes])
        self.starts = np.cumsum([0] + [plane.size for plane, _ in planes])[:-1]
        self.flat = torch.tensor(np.concatenate([plane.ravel() for plane, _ in planes])).to(device)
        self.known = torch.tensor(np.stack([_psf(self.rng) for _ in range(PSFS)]), dtype=torch.float32).to(device)

    def crops(self, count: int, side: int) -> Tensor:
        """(count, 1, side, side), turned, mirrored and dimmed at random."""
        rng, device = self.rng, self.device
        which = np.searchsorted(self.upto, rng.random(count))
        top, left = ((rng.random(count) * (self.shapes[which, k] - side)).astype(np.int64) for k in (0, 1))
        first = torch.tensor(self.starts[which] + top * self.shapes[which, 1] + left).to(device)
        wide = torch.tensor(self.shapes[which, 1]).to(device)
        along = torch.arange(side, device=device)
        u, v = along.view(1, side, 1), along.view(1, 1, side)
        flip = torch.tensor(rng.integers(0, 2, (3, count)), device=device).view(3, count, 1, 1).bool()
        u, v = torch.where(flip[0], side - 1 - u, u), torch.where(flip[1], side - 1 - v, v)
        u, v = torch.where(flip[2], v, u), torch.where(flip[2], u, v)
        dim = torch.tensor(rng.uniform(0.6, 1.05, count), dtype=torch.float32).to(device)
        return (self.flat[first.view(-1, 1, 1) + u * wide.view(-1, 1, 1) + v] * dim.view(-1, 1, 1))[:, None]

    def psfs(self, count: int) -> Tensor:
        """(count, PSF, PSF): Gaussians round and not, discs, squares, slow tails, straight motion, shaking hands."""
        return self.known[torch.tensor(self.rng.integers(0, PSFS, count)).to(self.device)]


def _scaled(image: np.ndarray) -> list[np.ndarray]:
    whole = torch.tensor(np.ascontiguousarray(image))[None, None]
    found = [whole if s == 1 else F.interpolate(whole, scale_factor=s, mode="bilinear", antialias=True) for s in SCALES]
    return [t[0, 0].numpy() for t in found if min(t.shape[2:]) >= CROP_STEPS + 8]


def _psf(rng: np.random.Generator) -> np.ndarray:
    half = PSF // 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    kind = rng.integers(8)
    if kind == 0:
        s = math.exp(rng.uniform(math.log(0.4), math.log(3.2)))
        h = np.exp(-(y**2 + x**2) / (2 * s * s))
    elif kind == 1:
        angle, s, t = rng.random() * math.pi, *rng.uniform(0.5, 4, 2)
        u, v = y * math.cos(angle) + x * math.sin(angle), x * math.cos(angle) - y * math.sin(angle)
        h = np.exp(-(u**2) / (2 * s * s) - v**2 / (2 * t * t))
    elif kind == 2:
        h = np.clip(rng.uniform(1, 6) + 0.5 - np.hypot(y, x), 0, 1)
    elif kind == 3:
        h = (np.maximum(abs(y), abs(x)) <= rng.integers(1, 6)).astype(float)
    elif kind == 4:
        within = np.maximum(abs(y), abs(x)) <= rng.integers(3, 9)
        h = within / (1 + y**2 + x**2) ** rng.uniform(0.8, 1.5)
    else:
        if kind == 5:
            length, angle = rng.uniform(2, 11), rng.random() * math.pi
            path = np.linspace(-length, length, 200)[:, None] * [math.sin(angle), math.cos(angle)]
        else:
            speed = rng.normal(size=2) * 0.3 * 0.95 ** np.arange(120)[:, None]
            push = rng.normal(size=(120, 2)) * 0.12
            for k in range(1, 120):
                push[k] += 0.95 * push[k - 1]
            path = np.cumsum(speed + push, axis=0)
            path -= path.mean(axis=0)
            path *= min(1, rng.uniform(3, half - 1.5) / abs(path).max())
        h = np.zeros((PSF, PSF))
        whole = np.floor(path + half).astype(int)
        part = path + half - whole
        for dy in (0, 1):
            for dx in (0, 1):
                share = abs(1 - dy - part[:, 0]) * abs(1 - dx - part[:, 1])
                np.add.at(h, (whole[:, 0] + dy, whole[:, 1] + dx), share)
    return h / h.sum()


# ---------------------------------------------------------------- answers of the collaborative filter


def answers(folder: Path, seed: int, seconds: float) -> list[np.ndarray]:
    """Crops, their images, what the filter makes of them without its network, PSFs, noise, and which are TESTED."""
    import cupy

    begun = time.perf_counter()
    fitted, kept = ([grey(name, folder) for name in names] for names in (PHOTOGRAPHS, TESTED))
    fitted += [dead_leaves(384, 2000 + 3 * seed + k) for k in range(3)]
    collaborative._LAST_STEPS = 0
    rows: list[tuple[Any, ...]] = []
    turn = 0
    while time.perf_counter() - begun < seconds:
        turn += 1
        rng = np.random.default_rng((seed, turn))
        tested = rng.random() < 0.06
        chosen = kept if tested else fitted
        whole = chosen[int(rng.integers(len(chosen)))]
        fewer = 1 + int(rng.integers(2) and min(whole.shape) > 2 * CROP_NEAR)
        n = fewer * CROP_NEAR
        top, left = (int(rng.integers(0, side - n + 1)) for side in whole.shape)
        crop = whole[top : top + n, left : left + n] * np.float32(rng.uniform(0.6, 1.0))
        crop = crop.reshape(CROP_NEAR, fewer, CROP_NEAR, fewer).mean(axis=(1, 3))
        psf, sigma = _psf(rng), math.exp(rng.uniform(math.log(0.001), math.log(0.05)))
        blur = deblur.Blur(psf, crop.shape, "periodic")
        g = blur.forward(crop.astype(float)) + sigma * rng.standard_normal(crop.shape)
        said: dict[str, Any] = {"method": "collaborative", "boundary": "periodic", "bounds": (0, 1), "check": False}
        found = deblur.solve(cupy.asarray(g.astype(np.float32)), psf, **said)
        rows.append((crop, g, cupy.asnumpy(found.image), psf, sigma, tested))
    return [np.array(column, np.float32) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------- fitting


class Fitting:
    """The network, the mean of its weights over the last steps, and the losses.

    Each loss is a function that draws a batch and one that says how wrong the network is on it; the latter, with Adam's
    step, is one CUDA graph.
    """

    def __init__(self, pictures: Pictures, start: Path | None, out: Path) -> None:
        self.pictures, self.device, self.out = pictures, pictures.device, out
        self.network: nn.Module = Network()
        if start is not None:
            load(self.network, start)
        self.network = self.network.to(self.device).to(memory_format=torch.channels_last)
        self.mean = copy.deepcopy(self.network)

    def _denoised(self, x: Tensor, sigma: Tensor, near: Tensor | None = None) -> Tensor:
        near = torch.zeros_like(x) if near is None else near
        return self.network(x.contiguous(memory_format=torch.channels_last), sigma, near).float()

    def _level(self, count: int, low: float, high: float) -> Tensor:
        return torch.empty(count, device=self.device).uniform_(math.log(low), math.log(high)).exp()

    def draw_noisy(self) -> list[Tensor]:
        """Crops, noise and its level."""
        x = self.pictures.crops(BATCH, CROP)
        return [x, torch.randn_like(x), self._level(BATCH, 0.001, 0.25)]

    def noisy(self, x: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
        """Squared errors over what is usual at each level."""
        found = self._denoised(x + noise * sigma.view(-1, 1, 1, 1), sigma)
        return (((found - x) ** 2).mean((1, 2, 3)) / (sigma**1.3 + 1e-5)).mean()

    def draw_steps(self) -> list[Tensor]:
        """Crops, PSFs, noise, its level and what is thought to be its level."""
        x, sigma = self.pictures.crops(BATCH_STEPS, CROP_STEPS), self._level(BATCH_STEPS, 0.0005, 0.05)
        sigma = sigma.view(-1, 1, 1, 1)
        return [x, self.pictures.psfs(BATCH_STEPS), torch.randn_like(x), sigma, self._wrong(sigma)]

    def steps(self, x: Tensor, psfs: Tensor, noise: Tensor, sigma: Tensor, thought: Tensor) -> Tensor:
        """The logarithm of the squared error after steps that begin with the image, and a tenth of those before."""
        blur = self._transform(psfs, CROP_STEPS)
        g = torch.fft.irfft2(torch.fft.rfft2(x) * blur, s=x.shape[2:]) + noise * sigma
        return self._loss(x, self._iterates(g, g, None, blur, thought, (STEPS, FIRST, LAST)))

    def take(self, answers: list[np.ndarray]) -> None:
        """Answers of the collaborative filter: pictures, images, answers, PSFs, noise, and which are to look at."""
        *parts, tested = answers
        self.answers = [torch.tensor(a).to(self.device) for a in parts]
        self.tested, self.fitted = (
            torch.tensor(np.flatnonzero(which)).to(self.device) for which in (tested > 0, tested == 0)
        )

    def draw_near(self) -> list[Tensor]:
        """Some of these, turned and mirrored, and of another level; some without mean, as colours are."""
        at = self.fitted[torch.randint(0, len(self.fitted), (BATCH_NEAR,), device=self.device)]
        x, g, near, psf, sigma = (a[at] for a in self.answers)
        for axis in (1, 2):
            if self.pictures.rng.random() < 0.5:
                x, g, near, psf = (a.flip(axis) for a in (x, g, near, psf))
        if self.pictures.rng.random() < 0.5:
            x, g, near, psf = (a.transpose(1, 2) for a in (x, g, near, psf))
        x, g, near, sigma = (a[:, None] for a in (x, g, near, sigma.view(-1, 1, 1)))
        some = (torch.rand_like(sigma) < 0.2).float()
        mean, size = some * x.mean((2, 3), keepdim=True), 1 - some * 0.8 * torch.rand_like(some)
        x, g, near = ((a - mean) * size for a in (x, g, near))
        return [x, g, near, psf, self._wrong(sigma * size)]

    def near(self, x: Tensor, g: Tensor, near: Tensor, psf: Tensor, thought: Tensor) -> Tensor:
        """The same as `steps` for steps that begin with those answers."""
        return self._loss(x, self._nearer(g, near, self._transform(psf, CROP_NEAR), thought))

    def gain(self, share: float = collaborative._SHARE) -> float:
        """By how many decibels this share of where the steps end is nearer than the TESTED answers, in the mean."""
        gains = []
        kept, self.network = self.network, self.mean
        with torch.no_grad(), self._half():
            for at in self.tested.split(BATCH_NEAR):
                x, g, near, psf, sigma = (a[at][:, None] for a in self.answers)
                blur = self._transform(psf[:, 0], CROP_NEAR)
                found = self._nearer(g, near, blur, sigma.view(-1, 1, 1, 1))[-1].clamp(0, 1)
                errors = [((a - x) ** 2).mean((1, 2, 3)) for a in (near, near + share * (found - near))]
                gains.append(10 * torch.log10(errors[0] / errors[1]))
        self.network = kept
        return float(torch.cat(gains).mean())

    def _half(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda")

    def _transform(self, psfs: Tensor, side: int) -> Tensor:
        h = F.pad(psfs[:, None], (0, side - PSF, 0, side - PSF))
        return torch.fft.rfft2(torch.roll(h, (-(PSF // 2), -(PSF // 2)), (2, 3)))

    def _wrong(self, sigma: Tensor) -> Tensor:
        """The noise's level as it is known: never exactly."""
        return sigma * torch.exp(0.07 * torch.randn_like(sigma))

    def _nearer(self, g: Tensor, near: Tensor, blur: Tensor, sigma: Tensor) -> list[Tensor]:
        schedule = LAST_STEPS, collaborative._FIRST, collaborative._LAST
        return self._iterates(g, near, near, blur, sigma, schedule)

    def _iterates(
        self, g: Tensor, v: Tensor, near: Tensor | None, blur: Tensor, sigma: Tensor, schedule: tuple[int, float, float]
    ) -> list[Tensor]:
        """What the network makes of each step."""
        steps, first, last = schedule
        right, power = blur.conj() * torch.fft.rfft2(g), blur.abs() ** 2
        end = torch.clamp(last * sigma, min=collaborative._LEAST)
        begin = torch.clamp(end, min=first)
        found = []
        for n in range(steps):
            strength = begin * (end / begin) ** (n / (steps - 1))
            rho = collaborative._ALPHA * sigma**2 / strength**2
            u = torch.fft.irfft2((right + rho * torch.fft.rfft2(v)) / (power + rho), s=g.shape[2:])
            v = self._denoised(u, strength.view(-1), near)
            found.append(v)
        return found

    @staticmethod
    def _loss(x: Tensor, found: list[Tensor]) -> Tensor:
        """The logarithm of the squared error of the last iterate, and a tenth of those of the two before."""
        logs = [torch.log(((v - x) ** 2).mean((1, 2, 3)) + 1e-7).mean() for v in found[-3:]]
        return logs[-1] + 0.1 * sum(logs[:-1])

    def run(self, names: Sequence[str], seconds: float, rate: float, clip: float) -> int:
        """Adam for so many seconds, the losses of these names taking turns; how many steps that were."""
        lr = torch.tensor(rate, device=self.device)
        optimiser = torch.optim.Adam(self.network.parameters(), lr=lr, fused=True, capturable=True)
        turns = {name: self._turn(name, optimiser, clip) for name in dict.fromkeys(names)}
        begun, n, told = time.perf_counter(), 0, 0.0
        while (gone := time.perf_counter() - begun) < seconds:
            fall = 0.5 + 0.5 * math.cos(math.pi * gone / seconds)
            lr.fill_(rate * fall * min(1.0, (n + 1) / 200) + 1e-6)
            value = turns[names[n % len(names)]]()
            n += 1
            keep = min(0.999, 1 - 1 / (1 + 0.1 * n))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.mean.parameters()), list(self.network.parameters()), 1 - keep)
            if n % 20 == 0:
                torch.cuda.synchronize()
            if gone - told > 20:
                told = gone
                gained = f"  gain {self.gain():.3f} dB" if "near" in names else ""
                print(f"{gone:4.0f} s  {n:6d} steps  loss {value.item():.4f}{gained}", flush=True)
                np.savez(self.out, **export(self.mean))  # a long run that is stopped has not been in vain
        self.network.load_state_dict(self.mean.state_dict())
        return n

    def _turn(self, name: str, optimiser: torch.optim.Optimizer, clip: float) -> Callable[[], Tensor]:
        """A step of Adam on the loss of that name and a batch of its own; gives the loss."""
        draw, loss = getattr(self, f"draw_{name}"), getattr(self, name)
        batch = [part.clone() for part in draw()]

        def step() -> Tensor:
            optimiser.zero_grad(set_to_none=True)
            with self._half():
                value = (0.02 if name == "noisy" else 1.0) * loss(*batch)
            value.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), clip)
            optimiser.step()
            return value.detach()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        kept = copy.deepcopy(self.network.state_dict())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self.network.load_state_dict(kept)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = step()

        def replayed() -> Tensor:
            for old, new in zip(batch, draw(), strict=True):
                old.copy_(new)
            graph.replay()
            return value

        return replayed


def main() -> None:
    """Fit and save."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--denoiser", type=float, default=195.0, help="seconds for the denoiser")
    parser.add_argument("--steps", type=float, default=500.0, help="seconds for the steps as a whole")
    parser.add_argument("--pairs", type=float, default=100.0, help="seconds for collaborative answers, meanwhile")
    parser.add_argument("--near", type=float, default=190.0, help="seconds for the steps after those")
    parser.add_argument("--workers", type=int, default=4, help="processes that make collaborative answers")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--seed", type=int, default=0, help="another one for each run")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.backends.cudnn.benchmark = True
    pool = ProcessPoolExecutor(options.workers, mp_context=get_context("spawn"))
    seeds = range(100 * options.seed, 100 * options.seed + options.workers)
    waiting = [pool.submit(answers, options.pictures, seed, options.pairs) for seed in seeds]
    pictures = Pictures(options.pictures, "cuda", options.seed)
    fitting = Fitting(pictures, options.start, options.out)
    print(f"{len(pictures.shapes)} planes, {pictures.flat.numel() / 1e6:.1f} million pixels", flush=True)

    def save(**said: Any) -> None:
        np.savez(options.out, **export(fitting.mean))
        print(said, "SHA-256", hashlib.sha256(options.out.read_bytes()).hexdigest(), flush=True)

    if options.denoiser > 0:
        save(denoiser=fitting.run(("noisy",), options.denoiser, RATE, 5.0))
    if options.steps > 0:
        save(steps=fitting.run(("steps",), options.steps, RATE_STEPS, 1.0))
    found = [w.result() for w in waiting]
    fitting.take([np.concatenate(columns) for columns in zip(*found, strict=True)])
    print(f"{len(fitting.fitted)} answers, {len(fitting.tested)} more to look at: {fitting.gain():.3f} dB", flush=True)
    if options.near > 0:
        losses = ("near", "near", "near", "noisy")
        save(near=fitting.run(losses, options.near, RATE_NEAR, 1.0), gain=fitting.gain())
    pool.shutdown()


if __name__ == "__main__":
    main()
