"""Boundary conditions, with one object for each: how a scene continues beyond its frame.

All code in deblur that depends on the boundary uses these objects. A new boundary is a subclass with a
`matrix` and its flags, and one entry in `BOUNDARIES`. `_beyond` and `_add_back` may be overridden if slices are
faster than the matrix.
"""

from __future__ import annotations

import numpy as np
import scipy

from ..device import Array, get_xp
from ..errors import check_choice


class Boundary(str):
    """A boundary condition: its name, and the continuation of one axis of a scene.

    Attributes
    ----------
    wraps : bool
        Whether the scene repeats: H is circulant along each axis.
    continued : bool
        Whether the scene is continued by its own pixels before it is blurred; `extend` and `fold` do so.
    mirrors : bool
        Whether the scene is continued by its mirror images.
    open : bool
        Whether nothing is assumed: the scene is larger than the image, and every pixel of it is an unknown.
    transform : str
        The fast transform that diagonalises H if the PSF is symmetric enough: "fourier", "cosine", "sine",
        "antireflective", or empty.
    toeplitz : bool
        Whether H of one axis is a square Toeplitz matrix for any PSF.
    weight : float
        Largest sum of absolute weights with which a pixel continued along one axis depends on the scene's pixels.
    """

    wraps = False
    continued = False
    mirrors = False
    open = False
    transform = ""
    toeplitz = False
    weight = 1.0

    @property
    def dark(self) -> bool:
        """Whether the scene is zero beyond its frame."""
        return not (self.wraps or self.continued or self.open)

    def matrix(self, n: int, first: int, last: int) -> scipy.sparse.csr_array:
        """Return the matrix from a line f[0..n-1] to its continuation f~[first..last-1], (last - first, n)."""
        read = self.sources(np.arange(first, last), n)
        rows = np.flatnonzero((read >= 0) & (read < n))
        return scipy.sparse.csr_array((np.ones(len(rows)), (rows, read[rows])), shape=(len(read), n))

    def sources(self, i: np.ndarray, n: int) -> np.ndarray:
        """Return the scene pixel that each continued pixel i repeats; outside of 0 … n − 1 for a pixel that is zero."""
        return i

    def check(self, n: int, before: int, after: int) -> None:
        """Raise ValueError if a line of `n` pixels cannot be continued by `before` and `after` pixels."""

    def extend(self, x: Array, axis: int, before: int, after: int) -> Array:
        """Continue `x` along `axis` by `before` and `after` pixels."""
        xp = get_xp(x)
        x = xp.moveaxis(x, axis, -1)
        left, right = self._beyond(x, before, after)
        return xp.moveaxis(xp.concatenate([left, x, right], axis=-1), -1, axis)

    def fold(self, x: Array, axis: int, before: int, after: int) -> Array:
        """Apply the exact transpose of `extend`: add each continued pixel back to its source."""
        x = get_xp(x).moveaxis(x, axis, -1)
        n = x.shape[-1] - before - after
        body = x[..., before : before + n].copy()
        self._add_back(body, x[..., :before], x[..., before + n :])
        return get_xp(x).moveaxis(body, -1, axis)

    def _beyond(self, x: Array, before: int, after: int) -> tuple[Array, Array]:
        """Return the continuation of the last axis of `x` on either side."""
        left, right = self._outside(x, x.shape[-1], before, after)
        return x @ left.T, x @ right.T

    def _add_back(self, body: Array, left: Array, right: Array) -> None:
        """Add the pixels beyond the last axis of `body` to their sources."""
        rows, last = self._outside(body, body.shape[-1], left.shape[-1], right.shape[-1])
        body += left @ rows
        body += right @ last

    def _outside(self, x: Array, n: int, before: int, after: int) -> tuple[Array, Array]:
        """Return the rows of `matrix` before and after the line, dense, in the dtype and library of `x`."""
        e = self.matrix(n, -before, n + after)
        return tuple(get_xp(x).asarray(part.toarray().astype(x.dtype)) for part in (e[:before], e[before + n :]))

    # -- consequences of the flags, for an axis of n image pixels and a PSF of m pixels with origin o --------------

    def extra(self, m: int) -> int:
        """Return the number of pixels by which the scene is longer than the image."""
        return m - 1 if self.open else 0

    def offset(self, m: int, o: int) -> int:
        """Return the index of the image's first pixel in the scene."""
        return m - 1 - o if self.open else 0

    def torus(self, n: int, m: int, o: int) -> tuple[int, int]:
        """Return (least length, position of the PSF's origin) for a circular convolution that is exact on the image."""
        if self.wraps:
            return n, o
        if self.dark:
            # Pixels that wrap round must meet zeros on one side and discarded pixels on the other.
            return n + max(o, m - 1 - o), o
        return n + m - 1, m - 1

    def depth(self, m: int, o: int) -> int:
        """Return the depth, in pixels from the edge, to which the rows of HHᵀ differ from those of a circulant."""
        if self.wraps or m == 1:
            return 0
        return max(m - 1, 2 * max(o, m - 1 - o) + 1) if self.continued else m - 1


class _Zero(Boundary):
    transform = "sine"
    toeplitz = True


class _Periodic(Boundary):
    wraps = True
    transform = "fourier"
    toeplitz = True

    def sources(self, i: np.ndarray, n: int) -> np.ndarray:
        return i % n

    def _beyond(self, x: Array, before: int, after: int) -> tuple[Array, Array]:
        return x[..., x.shape[-1] - before :], x[..., :after]

    def _add_back(self, body: Array, left: Array, right: Array) -> None:
        body[..., body.shape[-1] - left.shape[-1] :] += left
        body[..., : right.shape[-1]] += right


class _Reflect(Boundary):
    continued = True
    mirrors = True
    transform = "cosine"

    def sources(self, i: np.ndarray, n: int) -> np.ndarray:
        return np.minimum(i % (2 * n), (-1 - i) % (2 * n))

    def _beyond(self, x: Array, before: int, after: int) -> tuple[Array, Array]:
        return x[..., :before][..., ::-1], x[..., x.shape[-1] - after :][..., ::-1]

    def _add_back(self, body: Array, left: Array, right: Array) -> None:
        body[..., : left.shape[-1]] += left[..., ::-1]
        body[..., body.shape[-1] - right.shape[-1] :] += right[..., ::-1]


class _Antireflect(Boundary):
    continued = True
    transform = "antireflective"
    weight = 3.0

    def check(self, n: int, before: int, after: int) -> None:
        if max(before, after) > n - 1:
            raise ValueError(
                f"boundary 'antireflect' can continue {n} pixels by at most {n - 1} on either side; "
                f"{max(before, after)} are needed. Use a smaller PSF or boundary 'reflect'"
            )

    def matrix(self, n: int, first: int, last: int) -> scipy.sparse.csr_array:
        self.check(n, -first, last - n)
        i, rows = np.arange(first, last), np.arange(last - first)
        edge = i.clip(0, n - 1)  # inside, a pixel and its mirror are the same: 2 - 1 = 1 times the pixel
        read, data = np.concatenate([edge, 2 * edge - i]), np.repeat([2.0, -1.0], len(i))
        return scipy.sparse.csr_array((data, (np.tile(rows, 2), read)), shape=(len(i), n))

    def _beyond(self, x: Array, before: int, after: int) -> tuple[Array, Array]:
        left = 2 * x[..., :1] - x[..., 1 : before + 1][..., ::-1]
        return left, 2 * x[..., -1:] - x[..., x.shape[-1] - 1 - after : -1][..., ::-1]

    def _add_back(self, body: Array, left: Array, right: Array) -> None:
        body[..., 0] += 2 * left.sum(axis=-1)
        body[..., 1 : left.shape[-1] + 1] -= left[..., ::-1]
        body[..., -1] += 2 * right.sum(axis=-1)
        body[..., body.shape[-1] - 1 - right.shape[-1] : -1] -= right[..., ::-1]


class _Unknown(Boundary):
    open = True


_EVERY = (_Zero("zero"), _Periodic("periodic"), _Reflect("reflect"), _Antireflect("antireflect"), _Unknown("unknown"))
BOUNDARIES: dict[str, Boundary] = {b: b for b in _EVERY}


def get_boundary(boundary: str) -> Boundary:
    """Return the boundary of that name, or the object itself; ValueError lists the known names."""
    if isinstance(boundary, Boundary):
        return boundary
    check_choice(boundary, BOUNDARIES, "boundary")
    return BOUNDARIES[boundary]
