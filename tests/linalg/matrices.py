"""Random matrices with known properties, and how wrong a solution is."""

import numpy as np


def general(n, rng, condition=100.0, dtype=np.float64):
    """A matrix with singular values from 1 down to 1/condition."""
    q, p = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return ((q * np.geomspace(1, 1 / condition, n)) @ p).astype(dtype)


def spd(n, rng, condition=100.0, dtype=np.float64):
    """A symmetric positive definite matrix with eigenvalues from 1 down to 1/condition."""
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    a = (q * np.geomspace(1, 1 / condition, n)) @ q.T
    return ((a + a.T) / 2).astype(dtype)


def lower(n, rng, condition=100.0, dtype=np.float64):
    """The Cholesky factor of one."""
    return np.linalg.cholesky(spd(n, rng, condition)).astype(dtype)


def error(a, x, b):
    """‖A X − B‖ over n eps ‖A‖ ‖X‖, with the eps of x: at most 1 if rounding alone explains it."""
    norms = np.linalg.norm(a) * np.linalg.norm(x)
    return np.linalg.norm(a.astype(float) @ x.astype(float) - b) / (len(a) * np.finfo(x.dtype).eps * norms)
