"""Fit the weights of `deblur.denoise.network`: a denoiser, then the last steps of `deblur.solvers.collaborative`.

    python benchmarks/fit_network.py --out FILE.npz [--denoiser S] [--steps S] [--pairs S] [--near S] [--start FILE.npz]

(S: seconds.) The pictures are in the public domain or dedicated to it (CC0), and no benchmark here reports what the
network makes of one of them:

- from SciPy (`scipy.datasets`; pixnio.com, public domain): face, ascent;
- from scikit-image: eagle (CC0, Dayane Machado), and, with a quarter of the weight and in the first run alone, grass
  (CC0, DeviantArt linolafett), gravel (CC0, CC0Textures), retina (CC0, Mikael Häggström), cell (CC0, Paul Müller),
  hubble_deep_field (public domain, NASA), clock (public domain, Stéfan van der Walt);
- from matplotlib: grace_hopper (public domain, United States Navy);
- and dead leaves, made here: discs and polygons of all sizes and greys, some striped, the nearer hiding the farther.

First, for --denoiser, the network sees crops with white noise of 0.001 to 0.25 of full scale and no estimate of the
picture. Then, for --steps, crops are blurred by PSFs drawn at random, with noise of 0.0005 to 0.05, and restored by
eight steps between data and network, through which the logarithm of the squared error is followed back. Meanwhile,
for --pairs, other processes restore crops by the collaborative filter without its network; last, for --near, the steps
begin at those answers, which the network is shown, as `deblur.solvers.collaborative` does, and every fourth batch is
white noise again. Adam, the rate falling as a cosine; the mean of the weights over the last steps is kept, in 16 bits.

The shipped weights had 195, 500 and 165 seconds of the three on an H200, in three runs, each beginning with the
weights of the one before; the first had fewer pairs of convolutions, and the last 394 answers of the filter. Needs
PyTorch; --pictures names a folder that has face.dat, ascent.dat (of SciPy's data repositories) and eagle.png where
they cannot be downloaded.
"""

from __future__ import annotations

import argparse
import bz2
import copy
import hashlib
import math
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _common
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import deblur
from deblur.solvers import collaborative

WIDTHS, PAIRS = (32, 64, 96), (1, 2, 3)
CROP, CROP_STEPS, BATCH, BATCH_STEPS = 96, 128, 48, 32
RATE, RATE_STEPS, RATE_NEAR = 1e-3, 5e-4, 7e-4
# The steps that begin with the image itself: how many, their first strength, the last over the noise's deviation.
STEPS, FIRST, LAST = 8, 0.15, 0.6
TESTED = 120  # answers that are kept to look at, and not fitted to
PHOTOGRAPHS = ("face", "ascent", "eagle", "grace_hopper")
OTHERS = ("grass", "gravel", "hubble_deep_field", "retina", "cell", "clock")
LEAVES, LEAVES_SHARE, CHROMA_SHARE = 24, 0.25, 0.1
SCALES = (1.0, 0.7, 0.5)
GREY = np.float32([0.2125, 0.7154, 0.0721])
PSF = 25  # pixels a side


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


def picture(name: str, folder: Path | None) -> np.ndarray:
    """Grey or colour, uint8."""
    if name in ("face", "ascent", "eagle") and folder is not None:
        if name == "eagle":
            import imageio.v3 as iio

            return iio.imread(folder / "eagle.png")
        content = (folder / f"{name}.dat").read_bytes()
        if name == "face":
            return np.frombuffer(bz2.decompress(content), np.uint8).reshape(768, 1024, 3)
        return np.asarray(pickle.loads(content), np.uint8)
    if name in ("face", "ascent"):
        import scipy.datasets

        return getattr(scipy.datasets, name)()
    if name == "grace_hopper":
        from matplotlib import cbook
        from matplotlib.image import imread

        with cbook.get_sample_data("grace_hopper.jpg") as file:
            return np.asarray(imread(file, format="jpg"))
    from skimage import data

    return getattr(data, name)()


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

    def __init__(self, folder: Path | None, device: str) -> None:
        self.device, self.rng = device, np.random.default_rng(0)
        planes: list[tuple[np.ndarray, float]] = []
        chroma: list[np.ndarray] = []
        for name in PHOTOGRAPHS + OTHERS:
            image = picture(name, folder).astype(np.float32) / 255
            share = 2.0 if name in PHOTOGRAPHS else 0.5
            if image.ndim == 3:
                r, g, b = (image[..., c] for c in range(3))
                chroma += [(r - b) / math.sqrt(2), (r - 2 * g + b) / math.sqrt(6)]
                image = image @ GREY
            planes += [(plane, share * math.sqrt(plane.size) / 500) for plane in _scaled(image)]
        whole = sum(share for _, share in planes)
        with _common.side_by_side() as pool:
            leaves = list(pool.map(dead_leaves, [384] * LEAVES, range(1000, 1000 + LEAVES)))
        planes += [(plane.astype(np.float32), LEAVES_SHARE * whole / LEAVES) for plane in leaves]
        small = [plane for image in chroma for plane in _scaled(image)]
        planes += [(plane, CHROMA_SHARE * whole / len(small)) for plane in small]
        self.upto = np.cumsum([share for _, share in planes]) / sum(share for _, share in planes)
        self.shapes = np.array([plane.shape for plane, _ in planes])
        self.starts = np.cumsum([0] + [plane.size for plane, _ in planes])[:-1]
        self.flat = torch.tensor(np.concatenate([plane.ravel() for plane, _ in planes])).to(device)

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

    def psfs(self, count: int) -> np.ndarray:
        """(count, PSF, PSF): Gaussians round and not, discs, squares, slow tails, straight motion, shaking hands."""
        return np.stack([_psf(self.rng) for _ in range(count)])


def _grey(image: np.ndarray) -> np.ndarray:
    image = image.astype(np.float32) / 255
    return image @ GREY if image.ndim == 3 else image


def _scaled(image: np.ndarray) -> list[np.ndarray]:
    whole = torch.tensor(np.ascontiguousarray(image))[None, None]
    found = [
        whole if s == 1 else F.interpolate(whole, scale_factor=s, mode="bilinear", antialias=True)
        for s in SCALES
    ]
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


def answers(folder: Path | None, worker: int, seconds: float) -> list[np.ndarray]:
    """Crops, their images, what the filter makes of them without its network, PSFs and noise, for so many seconds."""
    end, rows = time.perf_counter() + seconds, []
    greys = [_grey(picture(name, folder)) for name in PHOTOGRAPHS]
    leaves = [dead_leaves(384, 2000 + 3 * worker + k) for k in range(3)]
    collaborative._LAST_STEPS = 0
    seed = 0
    while time.perf_counter() < end:
        seed += 1
        rng = np.random.default_rng((worker, seed))
        chosen = leaves if rng.random() < 0.12 else greys
        whole, n = chosen[int(rng.integers(len(chosen)))], CROP_STEPS * int(rng.integers(1, 3))
        n = n if min(whole.shape) > n else CROP_STEPS
        top, left = (int(rng.integers(0, side - n + 1)) for side in whole.shape)
        crop = whole[top : top + n, left : left + n] * rng.uniform(0.6, 1.0)
        side, wide = CROP_STEPS, n // CROP_STEPS
        crop = crop.reshape(side, wide, side, wide).mean(axis=(1, 3))
        psf, sigma = _psf(rng), math.exp(rng.uniform(math.log(0.001), math.log(0.05)))
        blur = deblur.Blur(psf, crop.shape, "periodic")
        g = blur.forward(crop.astype(float)) + sigma * rng.standard_normal(crop.shape)
        found = deblur.solve(g, psf, method="collaborative", boundary="periodic", bounds=(0, 1), check=False)
        rows.append((crop, g, found.image, psf, sigma))
    return [np.array(column, np.float32) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------- fitting


class Fitting:
    """The network, the mean of its weights over the last steps, and the two losses."""

    def __init__(self, pictures: Pictures, start: Path | None) -> None:
        self.pictures, self.device = pictures, pictures.device
        self.network: nn.Module = Network()
        if start is not None:
            load(self.network, start)
        self.network = self.network.to(self.device).to(memory_format=torch.channels_last)
        self.mean, self.turn = copy.deepcopy(self.network), 0

    def _denoised(self, x: Tensor, sigma: Tensor, near: Tensor | None = None) -> Tensor:
        half = torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda")
        near = torch.zeros_like(x) if near is None else near
        with half:
            return self.network(x.contiguous(memory_format=torch.channels_last), sigma, near).float()

    def _level(self, count: int, low: float, high: float) -> Tensor:
        return torch.empty(count, device=self.device).uniform_(math.log(low), math.log(high)).exp()

    def denoiser(self) -> Tensor:
        """Squared errors over what is usual at each level."""
        x = self.pictures.crops(BATCH, CROP)
        sigma = self._level(BATCH, 0.001, 0.25)
        found = self._denoised(x + torch.randn_like(x) * sigma.view(-1, 1, 1, 1), sigma)
        return (((found - x) ** 2).mean((1, 2, 3)) / (sigma**1.3 + 1e-5)).mean()

    def steps(self) -> Tensor:
        """The logarithm of the squared error after steps that begin with the image, and a tenth of those before."""
        x, psfs = self.pictures.crops(BATCH_STEPS, CROP_STEPS), self.pictures.psfs(BATCH_STEPS)
        blur = self._transform(torch.tensor(psfs, dtype=torch.float32, device=self.device))
        sigma = self._level(BATCH_STEPS, 0.0005, 0.05).view(-1, 1, 1, 1)
        g = torch.fft.irfft2(torch.fft.rfft2(x) * blur, s=x.shape[2:]) + torch.randn_like(x) * sigma
        return self._loss(x, self._iterates(g, g, None, blur, self._wrong(sigma), (STEPS, FIRST, LAST)))

    def take(self, answers: list[np.ndarray]) -> None:
        """Answers of the collaborative filter: pictures, images, answers, PSFs and noise."""
        self.answers = [torch.tensor(np.asarray(a, np.float32), device=self.device) for a in answers]
        order = torch.randperm(len(answers[0]), generator=torch.Generator().manual_seed(0))
        self.tested, self.fitted = order[:TESTED].to(self.device), order[TESTED:].to(self.device)

    def near(self) -> Tensor:
        """The same for steps that begin with those answers, turned and mirrored; some without mean, as colours are."""
        at = self.fitted[torch.randint(0, len(self.fitted), (BATCH_STEPS,), device=self.device)]
        x, g, near, psf, sigma = (a[at] for a in self.answers)
        for axis in (1, 2):
            if self.pictures.rng.random() < 0.5:
                x, g, near, psf = (a.flip(axis) for a in (x, g, near, psf))
        if self.pictures.rng.random() < 0.5:
            x, g, near, psf = (a.transpose(1, 2) for a in (x, g, near, psf))
        x, g, near, sigma = (a.reshape(BATCH_STEPS, 1, *a.shape[1:]) for a in (x, g, near, sigma[:, None]))
        some = (torch.rand_like(sigma) < 0.25).float().unsqueeze(-1)
        mean, size = some * x.mean((2, 3), keepdim=True), 1 - some * 0.8 * torch.rand_like(some)
        x, g, near, sigma = (
            (x - mean) * size,
            (g - mean) * size,
            (near - mean) * size,
            sigma.unsqueeze(-1) * size,
        )
        return self._loss(x, self._nearer(g, near, self._transform(psf), self._wrong(sigma)))

    def both(self) -> Tensor:
        """`near`, and every fourth time `denoiser`."""
        self.turn += 1
        return self.near() if self.turn % 4 else 0.02 * self.denoiser()

    def gain(self) -> float:
        """By how many decibels the steps are nearer than the answers kept for this, in the mean."""
        with torch.no_grad():
            x, g, near, psf, sigma = (a[self.tested][:, None] for a in self.answers)
            kept, self.network = self.network, self.mean
            found = self._nearer(g, near, self._transform(psf[:, 0]), sigma.view(-1, 1, 1, 1))[-1]
            self.network = kept
            errors = [((a - x) ** 2).mean((1, 2, 3)) for a in (near, found)]
        return float((10 * torch.log10(errors[0] / errors[1])).mean())

    def _transform(self, psfs: Tensor) -> Tensor:
        h = torch.zeros(len(psfs), 1, CROP_STEPS, CROP_STEPS, device=self.device)
        h[:, 0, :PSF, :PSF] = psfs
        return torch.fft.rfft2(torch.roll(h, (-(PSF // 2), -(PSF // 2)), (2, 3)))

    def _wrong(self, sigma: Tensor) -> Tensor:
        """The noise's level as it is known: never exactly."""
        return sigma * torch.exp(0.07 * torch.randn_like(sigma))

    def _nearer(self, g: Tensor, near: Tensor, blur: Tensor, sigma: Tensor) -> list[Tensor]:
        schedule = collaborative._LAST_STEPS, collaborative._FIRST, collaborative._LAST
        return self._iterates(g, near, near, blur, sigma, schedule)

    def _iterates(
        self,
        g: Tensor,
        v: Tensor,
        near: Tensor | None,
        blur: Tensor,
        sigma: Tensor,
        schedule: tuple[int, float, float],
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

    def run(self, loss: Callable[[], Tensor], seconds: float, rate: float, clip: float) -> int:
        """Adam for so many seconds; how many steps that were."""
        optimiser = torch.optim.Adam(self.network.parameters(), lr=rate, fused=self.device == "cuda")
        begun, n, told = time.perf_counter(), 0, 0.0
        while (gone := time.perf_counter() - begun) < seconds:
            for group in optimiser.param_groups:
                fall = 0.5 + 0.5 * math.cos(math.pi * gone / seconds)
                group["lr"] = rate * fall * min(1.0, (n + 1) / 200) + 1e-6
            value = loss()
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), clip)
            optimiser.step()
            n += 1
            keep = min(0.999, 1 - 1 / (1 + 0.1 * n))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.mean.parameters()), list(self.network.parameters()), 1 - keep)
            if gone - told > 20:
                told = gone
                print(f"{gone:4.0f} s  {n:6d} steps  loss {value.item():.4f}", flush=True)
        self.network.load_state_dict(self.mean.state_dict())
        return n


def main() -> None:
    """Fit and save."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--denoiser", type=float, default=195.0, help="seconds for the denoiser")
    parser.add_argument("--steps", type=float, default=500.0, help="seconds for the steps as a whole")
    parser.add_argument(
        "--pairs", type=float, default=100.0, help="seconds for collaborative answers, meanwhile"
    )
    parser.add_argument("--near", type=float, default=190.0, help="seconds for the steps after those")
    parser.add_argument("--workers", type=int, default=10, help="processes that make collaborative answers")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--pictures", type=Path, help="folder of pictures that cannot be downloaded")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    pictures = Pictures(options.pictures, "cuda" if torch.cuda.is_available() else "cpu")
    fitting = Fitting(pictures, options.start)
    print(f"{len(pictures.shapes)} planes, {pictures.flat.numel() / 1e6:.1f} million pixels", flush=True)

    def save(**said: Any) -> None:
        np.savez(options.out, **export(fitting.mean))
        print(said, "SHA-256", hashlib.sha256(options.out.read_bytes()).hexdigest(), flush=True)

    pool = ProcessPoolExecutor(options.workers, mp_context=get_context("spawn"))
    work = [(options.pictures, worker, options.pairs) for worker in range(options.workers)]
    waiting = [pool.submit(answers, *w) for w in work] if options.near > 0 else []
    if options.denoiser > 0:
        save(denoiser=fitting.run(fitting.denoiser, options.denoiser, RATE, 5.0))
    if options.steps > 0:
        save(steps=fitting.run(fitting.steps, options.steps, RATE_STEPS, 1.0))
    if waiting:
        found = [w.result() for w in waiting]
        fitting.take([np.concatenate(columns) for columns in zip(*found, strict=True)])
        save(near=fitting.run(fitting.both, options.near, RATE_NEAR, 1.0), gain=fitting.gain())
    pool.shutdown()


if __name__ == "__main__":
    main()
