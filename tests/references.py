"""Independent references for the iterative solvers, on dense matrices, and small scenes to solve for."""

from itertools import combinations

import numpy as np
from problems import changed, solve as solve_by_penalty

from deblur.solvers import admm
from deblur.terms import is_quadratic

PSF = np.array([[0.0, 0.1, 0.05], [0.2, 0.3, 0.1], [0.15, 0.1, 0.0], [0.05, 0.0, 0.0]]) / 1.05


def scene_like(rng, shape):
    """A small picture with an edge, a ramp and texture."""
    rows, *_, cols = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    return 0.2 + 0.5 * (rows + 0.3 * cols > 0.6) + 0.2 * cols + 0.03 * rng.standard_normal(shape)


def solve_by_admm(problem, g, start=None):
    return solve_by_penalty(problem, g, start, admm)


def dense_differences(shape, kind, wrap):
    """The rows of L, one counted difference each."""
    rows = grouped(shape, kind, wrap).reshape(-1, np.prod(shape))
    return rows[rows.any(axis=1)]


def dense_solution(problem, g):
    h = problem.operator.to_dense()
    shape, wraps = problem.operator.scene_shape, problem.operator.boundary.wraps
    ell = dense_differences(shape, problem.regularizer, wraps)
    w = np.ones(len(h)) if problem.fidelity.weights is None else np.asarray(problem.fidelity.weights).ravel()
    a = h.T @ (w[:, None] * h) + problem.lam * ell.T @ ell
    f = np.linalg.solve(a, h.T @ (w * (g.ravel() - problem.fidelity.background)))
    data_residual = h @ f + problem.fidelity.background - g.ravel()
    value = 0.5 * np.sum(w * data_residual**2) + 0.5 * problem.lam * np.sum((ell @ f) ** 2)
    return f.reshape(shape), value


# Weights of first and second differences, and of the scene itself.
NORMS = {"tv": (1, 0, 0), "tv-aniso": (1, 0, 0), "tv2": (0.5, 0.5, 0)}
NORMS |= {"gradient": (1, 0, 0), "laplacian": (0, 1, 0), "identity": (0, 0, 1)}


def reference(problems, images, steps):
    """The scenes that a dense over-relaxed primal-dual iteration (Condat 2013) reaches: no FFT, no splitting.

    Every 1000 steps it begins again at the mean of the last ones, which ends the cycles around a corner of a linear
    programme (Applegate et al. 2021).

    The problems, which share their operator, are the rows of all arrays. Every term is in its dual: D* and R* by
    Moreau's identity from their textbook proximal maps, written here anew. Steps are Pock and Chambolle's of each row,
    those of the differences in proportion to √λ, as small as their duals are.
    """
    shape, wraps = problems[0].operator.scene_shape, problems[0].operator.boundary.wraps
    h = problems[0].operator.to_dense()
    norms = np.array([NORMS[p.regularizer] for p in problems], float)
    kinds = [kind for kind in range(3) if norms[:, kind].any()]
    ells = [grouped(shape, ("gradient", "laplacian", "identity")[kind], wraps) for kind in kinds]
    k, n, m = np.vstack([h, *(ell.reshape(-1, h.shape[1]) for ell in ells)]), len(problems), len(h)
    # One step for each group.
    rows = [abs(h).sum(axis=1), *(np.repeat(abs(ell).sum(axis=2).max(axis=1), ell.shape[1]) for ell in ells)]

    def column(values):
        return np.array([[v] for v in values], float)

    fits = [p.fidelity for p in problems]
    w = np.array([np.broadcast_to(f.w, images[0].shape).ravel() for f in fits])
    data = np.array([g.ravel() for g in images]) - column(f.background for f in fits)
    low, high = (column((p.bounds or (-np.inf, np.inf))[i] for p in problems) for i in (0, 1))
    share = np.repeat(0.5 * np.sqrt(column(min(p.lam, 1.0) for p in problems)), len(k), axis=1)
    share[:, :m] = 0.5
    sigma, tau = share / np.maximum(np.concatenate(rows), 1e-9), 1 / np.maximum(share @ abs(k), 1e-9)
    # The prox of sD takes from v the part clip(slope (v − data), ±most), but for counts, which are rows of their own.
    s = w / sigma[:, :m]
    slope = np.where(column(f.name == "l1" for f in fits) > 0, 1.0, s / (1 + s))
    most = s * column({"l1": 1.0, "huber": f.delta}.get(f.name, 1e300) for f in fits)
    counts = np.array([i for i, f in enumerate(fits) if f.name == "poisson"], int)
    b, s, seen = column(f.background for f in fits)[counts], s[counts], w[counts] > 0
    photons = 4 * s * np.maximum(data[counts] + b, 0)
    parts, at = [], m
    for kind, ell in zip(kinds, ells, strict=True):
        part = slice(at, at := at + ell.shape[0] * ell.shape[1])
        radius = (column(p.lam for p in problems) * norms[:, [kind]])[..., None]
        shrunk = radius / (radius + sigma[:, part].reshape(n, *ell.shape[:2]))
        squared = column(is_quadratic(p.regularizer) for p in problems)[..., None] > 0
        absolute = column(p.regularizer == "tv-aniso" for p in problems)[..., None] > 0
        parts.append((part, (n, *ell.shape[:2]), radius, shrunk, squared, absolute))
    x = np.repeat(column(g.mean() for g in images).clip(low, high), h.shape[1], axis=1)
    y, means = np.zeros((n, len(k))), [0.0, 0.0]
    for step in range(1, steps + 1):
        new = np.minimum(np.maximum(x - tau * (y @ k), low), high)
        dual = y + sigma * ((2 * new - x) @ k.T)
        v = dual[:, :m] / sigma[:, :m]
        taken = np.minimum(np.maximum(slope * (v - data), -most), most)
        c = v[counts] + b
        taken[counts] = seen * (c - (c - s + np.sqrt((c - s) ** 2 + photons)) / 2)
        dual[:, :m] = sigma[:, :m] * taken
        for part, form, radius, shrunk, squared, absolute in parts:
            z = dual[:, part].reshape(form)
            size = np.where(absolute, abs(z), np.sqrt(np.einsum("ijk,ijk->ij", z, z))[..., None])
            z *= np.where(squared, shrunk, radius / np.maximum(np.maximum(size, radius), 1e-300))
        means = [means[0] + new / 1000, means[1] + dual / 1000]
        x, y = x + 1.9 * (new - x), y + 1.9 * (dual - y)
        if step % 1000 == 0:
            (x, y), means = means, [0.0, 0.0]
    return new.reshape(n, *shape)


def grouped(shape, kind, wrap):
    """Dense differences as (pixels, differences, pixels), by definition; those not counted are zero rows."""
    units = np.eye(len(shape), dtype=int)
    here, root = 0 * units[0], np.sqrt(2)  # for both orders of a mixed derivative
    stencils = {
        "identity": [[(here, 1.0)]],
        "gradient": [[(u, 1.0), (here, -1.0)] for u in units],
        "laplacian": [
            *([(-u, 1.0), (here, -2.0), (u, 1.0)] for u in units),
            *([(u + v, root), (u, -root), (v, -root), (here, root)] for u, v in combinations(units, 2)),
        ],
    }[kind]
    index = np.arange(np.prod(shape)).reshape(shape)
    out = np.zeros((index.size, len(stencils), index.size))
    for at in np.ndindex(*shape):
        for row, stencil in zip(out[index[at]], stencils, strict=True):
            places = np.array([by for by, _ in stencil]) + at
            if wrap or ((places >= 0) & (places < shape)).all():
                for place, (_, weight) in zip(places % shape, stencil, strict=True):
                    row[index[tuple(place)]] += weight
    return out


def check(problem, g):
    # Within 1e-10 of the least; absolute deviations come there slowly, and to 1e-4.
    ref = reference([problem], [g], 6000 if problem.fidelity.name == "l1" else 1000)[None]
    solution = solve_by_admm(changed(problem, rtol=1e-6, max_iterations=4000), g[None, None])
    least, found = problem.objective(g[None, None], ref), problem.objective(g[None, None], solution.scene)
    assert solution.converged, solution.why
    assert found <= least + 2e-5 * abs(least), (found, least)
    assert found >= least - 1e-4 * abs(least), (found, least)  # the reference, too, has only come so far
    if problem.bounds is not None:
        assert solution.scene.min() >= problem.bounds[0]
        assert solution.scene.max() <= problem.bounds[1]
    return ref, solution


def divergence(expected, g, w=1.0):
    """Written out for itself: x log x is 0 at 0."""
    terms = expected - g
    terms[g > 0] += g[g > 0] * np.log(g[g > 0] / expected[g > 0])
    return float((w * terms).sum())


def textbook(h, g, w, background, iterations, accelerate, brightness=None, low=0.0, noises=None):
    """The scaled heavy ball on vectors, with the dense matrix; with a noise for each step, gradient consensus."""
    s, bright = h.T @ w, h.sum(1).max() if brightness is None else brightness
    f = y = np.full(h.shape[1], max(((w @ g) / w.sum() - background) / bright, 0.01 * (w @ g) / w.sum() / bright, low))
    k, objectives, seen = 0, [], s > 1e-7 * s.max()
    for n in range(iterations):
        expected = h @ y + background
        objectives.append(divergence(expected, g, w))
        k = 1 if len(objectives) > 1 and objectives[-1] > objectives[-2] else k + 1
        new, *halves = (
            np.where(seen, np.maximum(y * (h.T @ (w * x / expected)) / np.where(seen, s, 1), low), y)
            for x in ([g] if noises is None else [g, g + noises[n], g - noises[n]])
        )
        if halves:
            product = (halves[0] - y) * (halves[1] - y) * s / y
            new = np.where((product != 0) & (h.T @ h @ product > 0), new, y)
        y = np.maximum(new + accelerate * (k - 1) / (k + 2) * (new - f), np.maximum(0.1 * new, low))
        f = new
    return f, np.array(objectives)
