"""What the tests of the structured solvers share: PSFs with and without symmetry, and the dense answer."""

from functools import reduce

import numpy as np

from deblur.device import CPU, Device, asnumpy
from deblur.operators.blur import Blur
from deblur.problem import Problem

_rng = np.random.default_rng(7)


def _symmetric(rows, cols):
    """Random, symmetric in each axis, not separable."""
    h = _rng.random((rows, cols)) + 0.1
    h = h + h[::-1]
    h = h + h[:, ::-1]
    return h / h.sum()


def _unit(h):
    return h / h.sum()


PSFS = {
    "symmetric": _symmetric(5, 3),
    "symmetric3": _symmetric(3, 3),
    "column": _symmetric(3, 1),
    "row": _symmetric(1, 5),
    "separable": _unit(np.outer([1.0, 3, 2, 1], [2.0, 1, 0.5])),
    "binomial": _unit(np.outer([1.0, 4, 6, 4, 1], [1.0, 2, 1])),
    "point-symmetric": _unit(np.array([[3.0, 1, 0], [1, 4, 1], [0, 1, 3]])),
    "asymmetric": _unit(_rng.random((5, 3))),
    "even": _unit(_rng.random((4, 2))),
    "pixel": np.array([[0.7]]),
}


#: Of lines and volumes; axes of even length among them.
OTHERS = {
    "line": _unit(np.array([1.0, 4, 6, 4, 1])),
    "even line": _unit(_rng.random(4)),
    "volume": _unit(_rng.random((3, 2, 4))),
    "even volume": _unit(reduce(np.multiply.outer, ([1.0, 3, 1], [2.0, 1], [1.0, 3, 2, 1]))),
    "symmetric volume": _unit(np.multiply.outer([1.0, 2, 1], _symmetric(3, 3)) + np.eye(3)[1][:, None, None]),
}
LINE, VOLUME = (9,), (7, 6, 5)


def blurs(boundary, shapes, names=(*PSFS, *OTHERS)):
    """Every PSF on every image size it fits."""
    for name in names:
        h = (PSFS | OTHERS)[name]
        for shape in shapes:
            if h.ndim == len(shape) and all(m <= n for m, n in zip(h.shape, shape, strict=True)):
                try:
                    yield name, Blur(h, shape, boundary)
                except ValueError:  # antireflect cannot continue an image by more than its size
                    continue


def dense_answer(blur, lam, formula, g):
    """The formula written out: H from `Blur.to_dense`, NumPy's general solver, float64."""
    g = asnumpy(g).astype(np.float64)
    h = blur.to_dense()
    a = h @ h.T + lam * np.eye(h.shape[0])
    columns = g.reshape(len(g), -1).T
    f = h.T @ np.linalg.solve(a, columns) if formula == "tikhonov" else np.linalg.solve(a, h.T @ columns)
    return f.T.reshape(len(g), *blur.scene_shape)


def relative_error(f, reference):
    return float(np.linalg.norm(asnumpy(f).reshape(reference.shape) - reference) / np.linalg.norm(reference))


def problems(solver, blur, lam, **options):
    """The problem by both formulas, as far as the solver serves it."""
    for formula in ("tikhonov", "hht")[: 2 if blur.image_shape == blur.scene_shape else 1]:
        problem = Problem(blur, lam, formula=formula, **options)
        if solver.refuses(problem) is None:
            yield problem


def device_of(xp):
    """The device on which `xp` makes its arrays."""
    return CPU if xp is np else Device.named("gpu")


def solved(solver, problem, g):
    """(scenes (k, P, Q), Solution) of images (k, M, N), by a solver module or by a factor already prepared."""
    solution = (solver if hasattr(solver, "solve") else solver.prepare(problem)).solve(g[:, None])
    return solution.scene[:, 0], solution


def check_against_dense(solver, rng, boundary, shapes, names=(*PSFS, *OTHERS), lam=1e-6, tolerance=1e-8, xp=np):
    """A stack of two by both formulas, against the dense answer; returns how many problems were served."""
    served = 0
    for name, blur in blurs(boundary, shapes, names):
        g = rng.standard_normal((2, *blur.image_shape))
        for problem in problems(solver, blur, lam, device=device_of(xp)):
            f, info = solved(solver, problem, xp.asarray(g))
            assert isinstance(f, xp.ndarray)
            assert f.dtype == np.float64
            assert info.converged, (name, blur, problem.formula, info)
            error = relative_error(f, dense_answer(blur, lam, problem.formula, g))
            assert error <= tolerance, (name, blur, problem.formula, error, info)
            served += 1
    return served


def check_stack_is_frames(solver, problem, rng, tolerance=1e-12):
    """A stack is solved as its frames are; a zero frame among them gives zero."""
    g = rng.standard_normal((3, *problem.blur.image_shape)).astype(problem.dtype)
    g[1] = 0
    factor = solver.prepare(problem)
    together, _ = solved(factor, problem, g)
    assert np.all(together[1] == 0)
    for k in (0, 2):
        alone, _ = solved(factor, problem, g[k : k + 1])
        assert relative_error(together[k : k + 1], alone) <= tolerance


def check_float32(solver, blur, rng, tolerance=1e-5):
    """In float32 the scene is float32, of its shape, and as near to the dense answer as that allows."""
    g = rng.standard_normal((1, *blur.image_shape)).astype(np.float32)
    f, info = solved(solver, Problem(blur, 1e-2, dtype=np.dtype(np.float32)), g)
    assert info.converged
    assert f.dtype == np.float32
    assert f.shape == (1, *blur.scene_shape)
    assert relative_error(f, dense_answer(blur, 1e-2, "tikhonov", g)) <= tolerance


def check_spectrum(solver, blur, rng):
    """Singular values, coefficients and synthesis against NumPy's SVD of the dense matrix."""
    spectrum = solver.decompose(blur, np.dtype(np.float64), CPU)
    u, s, _ = np.linalg.svd(blur.to_dense(), full_matrices=False)
    values = spectrum.singular_values
    assert values.shape == blur.image_shape
    assert np.abs(np.sort(values.ravel())[::-1] - s).max() <= 1e-13 * s[0]
    g = rng.standard_normal((2, *blur.image_shape))
    power = spectrum.coefficients(g) ** 2
    # Where singular values coincide only the power that falls on the group is defined: compare a smooth
    # function of both, the residual and the trace that choose λ.
    columns = g.reshape(2, -1).T
    for lam in (1e-3, 1e-1):
        filtered = ((lam / (values**2 + lam)) ** 2 * power).reshape(2, -1).sum(axis=1)
        expected = ((lam / (s**2 + lam))[:, None] ** 2 * (u.T @ columns) ** 2).sum(axis=0)
        assert np.abs(filtered - expected).max() <= 1e-12 * expected.max()
    # H applied to the synthesis with weights σ/(σ² + 0.1) against the same through U.
    scene = spectrum.filtered(g, spectrum.tikhonov(0.1))
    again = u @ ((s**2 / (s**2 + 0.1))[:, None] * (u.T @ columns))
    assert np.abs(blur.forward(scene).reshape(2, -1).T - again).max() <= 1e-12 * np.abs(again).max()
    assert solver.decompose(blur, np.dtype(np.float64), CPU) is spectrum  # kept on the blur
