"""Status of the pivots of a GPU factorisation, which the host reads once, at the end."""

from __future__ import annotations

import numpy as np

from ..device import Array, check_finite, cupy
from ..errors import SingularMatrixError
from ..pixelwise import copied, stored

_NONE = 2**31 - 1


class PivotStatus:
    """The least index of an unusable pivot, and whether the result overflowed.

    Attributes
    ----------
    failed, overflow : cupy.ndarray of int32, shape (1,)
        Written by the kernels: ``atomicMin(failed, index)``; ``*overflow = 0``.
    """

    def __init__(self, values: Array | None = None) -> None:
        self._values = cupy.empty(2, np.int32) if values is None else values
        if values is None:
            stored(self._values, np.int32(_NONE))
        self.failed, self.overflow = self._values[:1], self._values[1:]

    def copy(self) -> PivotStatus:
        """Return a copy of the status, to be checked later."""
        return PivotStatus(copied(self._values))

    def check(self, what: str, matrix: Array | None = None) -> None:
        """Wait for the device and raise if a pivot failed or the result is not finite.

        Parameters
        ----------
        what : str
            The property that a failed pivot shows: "singular" or "not positive definite".
        matrix : cupy.ndarray, optional
            The matrix as the caller gave it, if it still exists; NaN or infinity in it is then reported as the cause.

        Raises
        ------
        SingularMatrixError
            With the pivot's index, or with None if the result overflowed.
        ValueError
            If `matrix` has NaN or infinity.
        """
        failed, overflow = (int(i) for i in self._values.get())
        if failed == overflow == _NONE:
            return
        if matrix is not None:
            check_finite(matrix, "a")
        if failed != _NONE:
            raise SingularMatrixError(
                f"the matrix is {what}: pivot {failed} cannot be used (counted from 0); regularise it "
                "(a larger lambda) or use lstsq of NumPy or CuPy",
                index=failed,
            )
        raise SingularMatrixError("the result overflows: rescale or regularise the matrix")
