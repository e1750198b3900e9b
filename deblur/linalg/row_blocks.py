"""A matrix that gains and loses rows and columns, copied only when it is read."""

from __future__ import annotations

import itertools

import numpy as np

from ..device import Array, get_xp


class RowBlocks:
    """A matrix as views of blocks of rows and a list of columns, assembled when it is read.

    An update without Q may touch far less than A has entries; copying A at every change would cost more than the
    update itself.
    """

    def __init__(self, blocks: tuple[Array, ...], columns: np.ndarray | None = None) -> None:
        self._blocks, self._columns = blocks, columns

    def matrix(self) -> Array:
        if len(self._blocks) > 1 or self._columns is not None:
            xp = get_xp(self._blocks[0])
            whole = xp.concatenate(self._blocks)
            self._blocks = (whole if self._columns is None else whole[:, xp.asarray(self._columns)],)
            self._columns = None
        return self._blocks[0]

    def with_rows(self, k: int, u: Array) -> RowBlocks:
        if self._columns is not None:
            full = get_xp(u).zeros((len(u), self._blocks[0].shape[1]), u.dtype)
            full[:, self._columns] = u
            u = full
        return RowBlocks((*self._rows(0, k), u, *self._rows(k, None)), self._columns)

    def without_rows(self, gone: np.ndarray) -> RowBlocks:
        edges = itertools.pairwise([-1, *gone.tolist(), None])
        left = [part for a, b in edges for part in self._rows(a + 1, b)]
        return RowBlocks(tuple(left) or (self._blocks[0][:0],), self._columns)

    def without_columns(self, gone: np.ndarray) -> RowBlocks:
        columns = np.arange(self._blocks[0].shape[1]) if self._columns is None else self._columns
        return RowBlocks(self._blocks, np.delete(columns, gone))

    def _rows(self, start: int, stop: int | None) -> list[Array]:
        """Views of the rows from `start` to `stop`, or to the last."""
        parts, first = [], 0
        for block in self._blocks:
            part = block[max(start - first, 0) : None if stop is None else max(stop - first, 0)]
            parts += [part] if len(part) else []
            first += len(block)
        return parts
