"""Draws of small problems (against 20,000 dense primal-dual iterations) and of extreme ones (against dense float64)."""
import os, sys, time, traceback, warnings
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
sys.path[:0] = [os.path.abspath("tests"), os.path.abspath(".")]
T0 = time.time()
import numpy as np
warnings.simplefilter("ignore")
import deblur
from deblur.operators.boundary import BOUNDARIES
from deblur.terms import FIDELITIES
from deblur.methods import METHODS
B = list(BOUNDARIES)
def scene(rng, shape):
    rows, cols = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    return 0.2 + 0.5 * (rows + 0.3 * cols > 0.6) + 0.2 * cols + 0.03 * rng.standard_normal(shape)
def small(i):
    rng = np.random.default_rng([29, i])
    from references import reference
    import references
    references.NORMS.update({"gradient": (0, 0), "laplacian": (0, 0), "identity": (0, 0)})
    method = ["tv", "tv-aniso", "tv2"][rng.integers(3)]
    boundary = B[rng.integers(len(B))]
    shape, psf = tuple(int(n) for n in rng.integers(3, 8, 2)), rng.random(tuple(rng.integers(1, 4, 2)))
    if rng.random() < .3: psf = deblur.psf.gaussian(3, rng.uniform(.3, 3))
    psf = psf / psf.sum()
    data = FIDELITIES[rng.integers(4)]
    bounds = [None, "nonnegative", (0.1, 0.6)][rng.integers(3)]
    blur = deblur.Blur(psf, shape, boundary)
    noise = rng.choice([0, 0.01, 0.1]) * rng.standard_normal(shape)
    kind = rng.integers(3)
    f = [scene(rng, blur.scene_shape), rng.random(blur.scene_shape), np.full(blur.scene_shape, .5)][kind]
    g = np.maximum(blur.forward(f) + noise, 0)
    if kind == 2 and rng.random() < .5: g = np.full(shape, .5)
    lam = 10 ** rng.uniform(-4, 2)
    r = deblur.solve(g, psf, lam, method=method, boundary=boundary, bounds=bounds, data=data, check=False, noise=.05 if data == "huber" else None)
    ref = reference([r.problem], [g], 20000)[0]
    least = r.problem.objective(g[None, None], ref[None, None])
    truth = ref[r.blur.crop]
    above, away = (r.objective - least) / max(least, 1e-10), np.linalg.norm(r.image - truth) / np.linalg.norm(truth)
    say = f"{i} {method} {data} {boundary} {bounds} {lam:.1e} kind {kind} it {r.iterations} least {least:.1e} above {above:.1e} away {away:.1e}"
    if not r.status.ok: return "NOT " + say
    if above > 1e-3 or (away > 1e-2 and above > -1e-5): return "WRONG " + say
    return "ok"
LIN = [m for m in METHODS if METHODS[m].linear]
def odd(i):
    rng = np.random.default_rng([31, i])
    shape = tuple(int(n) for n in rng.integers(1, 14, 2)); k = tuple(int(rng.integers(1, n + 1)) for n in np.minimum(shape, 6))
    psf = [rng.random(k), rng.standard_normal(k), np.ones(k), np.outer(rng.random(k[0]), rng.random(k[1])), np.eye(*k)][rng.integers(5)]
    if rng.random() < .4: psf = (psf + psf[::-1, ::-1]) / 2
    if abs(psf).sum() == 0: psf[0, 0] = 1
    psf = psf / abs(psf).sum()
    e = rng.choice([0, 0, 1, 10, 100, 200, 250, 300]) * rng.choice([-1, 1])
    psf = psf * 10.0 ** e
    ge = rng.choice([0, 0, 0, 5, 30, 100, 150, 250, 300]) * rng.choice([-1, 1])
    dtype = rng.choice(["f8", "f4"])
    g = rng.random(shape) * 10.0 ** (np.clip(ge, -36, 36) if dtype == "f4" else ge)
    g = g.astype(dtype)
    le = rng.choice([0, -2, -6, -12, -18, -22, -30, -60, 5])
    lam = 10.0 ** np.clip(2.0 * e + le, -307, 307)
    varying = rng.random() < .15
    method = rng.choice(["auto", "auto", *LIN, *LIN, "tv", "gradient", "laplacian", "identity", "richardson-lucy", "collaborative", "pnp"])
    boundary = rng.choice([*B, "auto"]); formula = rng.choice(["tikhonov", "tikhonov", "hht"])
    o = dict(method=str(method), boundary=str(boundary), check=bool(rng.random() < .5), formula=str(formula), prior="zero")
    if rng.random() < .1: lam = rng.choice(["auto", "gcv", "discrepancy"])
    if rng.random() < .1: o["mask"] = rng.random(shape) < .2
    if rng.random() < .05: o["bounds"] = "nonnegative"
    say = f"{i} {shape} {k} sum 1e{e} g 1e{ge} {dtype} lam {lam} {o['method']} {boundary} {formula} {'varying' if varying else ''} mask {'mask' in o} check {o['check']}"
    o = {a: b for a, b in o.items() if not (a == "formula" and b == "tikhonov")}
    if method not in LIN and method != "auto" or "mask" in o or "bounds" in o: o.pop("prior")
    try:
        if varying:
            o.pop("prior", None)
            h = psf, psf[::-1, ::-1]
            r = deblur.solve(g, np.stack(h).reshape(1, 2, *k), lam, **o)
        else:
            r = deblur.solve(g, psf, lam, **o)
    except (ValueError, deblur.ConvergenceError, MemoryError, RuntimeError, OverflowError) as err:
        frames = traceback.extract_tb(err.__traceback__)
        last = frames[-1].filename
        own = "/deblur/" in last and type(err) is not np.linalg.LinAlgError
        return "refused" if own else f"FOREIGN {type(err).__name__} {str(err)[:90]} | {say} | {last[-40:]}:{frames[-1].lineno}"
    except Exception as err:
        f = traceback.extract_tb(err.__traceback__)
        return f"FOREIGN {type(err).__name__} {str(err)[:90]} | {say} | " + " < ".join(f"{x.filename[-25:]}:{x.lineno}" for x in f[-1:-5:-1])
    if not r.status.ok: return f"not {r.status.name}"
    if not np.isfinite(r.image).all(): return f"WRONG not finite | {say}"
    if varying or isinstance(lam, str) or r.method not in LIN or "mask" in o: return "ok unchecked"
    if r.problem.regularizer != "identity": return "ok unchecked"
    s = 2.0 ** np.round(np.log2(abs(psf).max())); q = 2.0 ** np.round(np.log2(float(abs(g).max()) or 1.0))
    blur = deblur.Blur(psf / s, shape, r.blur.boundary.name if hasattr(r.blur.boundary, "name") else str(r.blur.boundary))
    h = blur.to_dense(); l = lam / s / s
    if not np.isfinite(l) or l == 0: return "ok unchecked"
    u, d, v = np.linalg.svd(h, full_matrices=False)
    x = g.astype(float).ravel() / q
    f = v.T @ (d / (d * d + l) * (u.T @ x)) if formula == "tikhonov" else None
    if formula == "hht": y = h.T @ x; f = u @ ((u.T @ y) / (d * d + l)) + (y - u @ (u.T @ y)) / l
    f = f.reshape(blur.scene_shape)[blur.crop] / s * q
    away = np.linalg.norm((r.image.astype(float) - f) / abs(f).max()) / np.linalg.norm(f / abs(f).max())
    if dtype == "f4" and not np.isfinite(np.float32(abs(f).max())): return "ok unchecked"
    if not away < (1e-2 if dtype == "f4" else 1e-4): return f"WRONG away {away:.1e} cond {d.max()**2/l:.0e} {r.method} | {say}"
    return "ok checked"
def one(job):
    kind, i = job
    if time.time() - T0 > (LIMIT): return kind, "skipped"
    try: return kind, (small if kind == "small" else odd)(i)
    except Exception as e:
        f = traceback.extract_tb(e.__traceback__)
        return kind, f"SCRIPT {kind} {i} {e!r}"[:250] + f" {f[-1].filename[-30:]}:{f[-1].lineno}"
LIMIT = float(sys.argv[3]) if len(sys.argv) > 3 else 205
if __name__ == "__main__":
    from multiprocessing import Pool
    from collections import Counter
    N, M, P = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]) if len(sys.argv) > 4 else 16
    # in turns, so that what is cut off is of both kinds
    jobs = [j for k in range(max(N, M)) for j in ([("odd", k)] if k < M else []) + ([("small", k)] if k < N else [])]
    with Pool(P) as pool: out = pool.map(one, jobs, chunksize=1)
    print(Counter((k, s.split("|")[0][:18] if s[:2] in ("ok", "re", "no", "sk") else s.split()[0]) for k, s in out))
    for k, s in sorted(out, key=lambda x: x[1].split()[0], reverse=True):
        if s.split()[0] in ("FOREIGN", "WRONG", "NOT", "SCRIPT"): print(s[:330])
    print(time.time() - T0)
