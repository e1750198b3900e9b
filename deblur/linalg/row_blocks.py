"""A matrix that gains and loses rows and columns, copied only when somebody looks at it."""

from __future__ import annotations

import itertools

import numpy as np

from ..device import Array, get_xp


class RowBlocks:
    """A matrix as views of blocks of rows and a list of columns, put together when somebody asks for it.

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
        before, after = self._split(k)
        return RowBlocks((*before, u, *after), self._columns)

    def without_rows(self, gone: np.ndarray) -> RowBlocks:
        kept = []
        start = 0
        for block in self._blocks:
            inside = gone[(gone >= start) & (gone < start + len(block))] - start
            edges = [-1, *inside.tolist(), len(block)]
            kept += [block[a + 1 : b] for a, b in itertools.pairwise(edges) if b > a + 1]
            start += len(block)
        return RowBlocks(tuple(kept) or (self._blocks[0][:0],), self._columns)

    def without_columns(self, gone: np.ndarray) -> RowBlocks:
        columns = np.arange(self._blocks[0].shape[1]) if self._columns is None else self._columns
        return RowBlocks(self._blocks, np.delete(columns, gone))

    def _split(self, k: int) -> tuple[list[Array], list[Array]]:
        before: list[Array] = []
        after: list[Array] = []
        start = 0
        for block in self._blocks:
            cut = min(max(k - start, 0), len(block))
            if cut:
                before.append(block[:cut])
            if cut < len(block):
                after.append(block[cut:])
            start += len(block)
        return before, after
