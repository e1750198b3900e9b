import os, sys, time, warnings
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", AA="1")
CONF = {"old": None, "m0": "MEM=0 CAP=0", "m5": "MEM=5 CAP=0", "m5c1": "MEM=5 CAP=1", "m5c1b": "MEM=5 CAP=1 BAL=1", "m5c1b3": "MEM=5 CAP=1 BAL=1 LAG=3", "m5c1b10": "MEM=5 CAP=1 BAL=1 LAG=10", "m5c1l": "MEM=5 CAP=1 LATE=1", "m5c1bl": "MEM=5 CAP=1 BAL=1 LATE=1", "m8c1b": "MEM=8 CAP=1 BAL=1", "m5c.3b": "MEM=5 CAP=0.3 BAL=1", "m5c1bg1": "MEM=5 CAP=1 BAL=1 GROW=1"}
T0 = time.time()
def draw(deblur, np, seed, i):
    from references import scene_like
    from deblur.operators.boundary import BOUNDARIES
    from deblur.terms import FIDELITIES
    rng = np.random.default_rng([seed, i])
    method = ["tv","tv-aniso","tv2","gradient","laplacian","identity"][rng.integers(6)]; boundary = list(BOUNDARIES)[rng.integers(len(BOUNDARIES))]
    shape, psf = tuple(int(n) for n in rng.integers(3, 9, 2)), rng.random(tuple(rng.integers(1, 4, 2)))
    if rng.random() < .3: psf = deblur.psf.gaussian(3, rng.uniform(.3, 3))
    psf = (psf/psf.sum())[:shape[0], :shape[1]]
    data = FIDELITIES[rng.integers(4)]
    bounds = [None, "nonnegative", (0.1, 0.6)][rng.integers(3)]
    blur = deblur.Blur(psf, shape, boundary)
    noise = rng.choice([0, 0.01, 0.1]) * rng.standard_normal(shape)
    kind = rng.integers(3)
    scene = [scene_like(rng, blur.scene_shape), rng.random(blur.scene_shape), np.full(blur.scene_shape, .5)][kind]
    g = np.maximum(blur.forward(scene) + noise, 0)
    if kind == 2 and rng.random() < .5: g = np.full(shape, .5)
    lam = 10 ** rng.uniform(-4, 2)
    return g, psf, lam, dict(method=method, boundary=boundary, bounds=bounds, data=data, check=False, noise=.05 if data == "huber" else None)
def big(deblur, np, i):
    rng = np.random.default_rng(i)
    s = deblur.data.load(["camera", "brick", "coins", "moon"][i % 4] if False else ["camera", "brick"][i % 2])
    n = [96, 160][i // 2 % 2]; s = s[60:60+n, 40:40+n]
    psf = [deblur.psf.disk(5), deblur.psf.gaussian(9, 1.5), deblur.psf.camera_shake(9, 1)][i % 3]
    boundary = ["zero", "reflect", "unknown", "periodic"][i % 4]
    g = deblur.degrade(s, psf, noise=[1e-3, 1e-2][i % 5 > 2], boundary=boundary)
    return g, psf, [1e-5, 1e-3, 1e-2][i % 7 % 3], dict(method=["tv", "tv2", "tv-aniso"][i % 3], boundary=boundary, data=["gaussian", "gaussian", "l1", "huber"][i % 11 % 4], check=False)
def work(job):
    name, kind, i = job
    warnings.simplefilter("ignore")
    for k in ("MEM","CAP","BAL","LAG","LATE","GROW"): os.environ.pop(k, None)
    sys.path[:0] = ["tests", "."]
    import numpy as np, deblur
    if CONF[name]:
        os.environ.update(x.split("=") for x in CONF[name].split())
        exec(open("tmpjob/aa.py").read(), {})
    g, psf, lam, o = draw(deblur, np, 11, i) if kind == "small" else big(deblur, np, i)
    t = time.time()
    if time.time() - T0 > 215: return None
    try: r = deblur.solve(g, psf, lam, **o)
    except Exception as e: return job, repr(e)[:80], 0, 0, 0, None, o, lam
    return job, r.status.ok, r.iterations, time.time() - t, r.objective, r.image, {**o, "shape": g.shape}, lam
def group(job):
    import subprocess, pickle
    return pickle.loads(subprocess.run([sys.executable, __file__, repr(job)], capture_output=True).stdout or pickle.dumps(None))
if __name__ == "__main__":
    if len(sys.argv) > 1:
        import pickle
        name, kind, ids = eval(sys.argv[1])
        out = [work((name, kind, i)) for i in ids]
        sys.stdout.buffer.write(pickle.dumps(out)); sys.exit()
    from concurrent.futures import ThreadPoolExecutor
    import numpy as np
    N, B, C = 240, 24, 16
    jobs = [(n, "small", list(range(k, N, C))) for k in range(C) for n in CONF] + [(n, "big", list(range(k, B, 4))) for k in range(4) for n in ("old", "m5c1", "m5c1b", "m5c1b3")]
    order = jobs[-16:] + jobs[:-16]
    res = {}
    with ThreadPoolExecutor(16) as pool:
        for out in pool.map(lambda j: group(j) if time.time() - T0 < 200 else None, order):
            for r in out or []:
                if r is not None: res.setdefault((r[0][1], r[0][2]), {})[r[0][0]] = r
    for kind in ("small", "big"):
        cases = {k: v for k, v in res.items() if k[0] == kind and len(v) == (len(CONF) if kind == "small" else 4)}
        print(kind, len(cases), "complete")
        for n in CONF:
            ok = its = sec = wrong = away = fail = 0
            for k, v in cases.items():
                if n not in v: continue
                best = min((r for r in v.values() if r[5] is not None), key=lambda r: r[4], default=None)
                r = v[n]
                if r[5] is None: fail += 1; continue
                ok += r[1]; its += r[2]; sec += r[3]
                wrong += bool(r[1] and r[4] > best[4] * (1 + 1e-3) + 1e-9); away += bool(r[1] and np.linalg.norm(r[5]-best[5]) > 1e-2*np.linalg.norm(best[5]))
            print(f"{n:9s} ok {ok} iters {its} s {sec:.1f} above {wrong} away {away} fail {fail}")
        for k, v in cases.items():
            if kind == "big": print(k[1], {n: (r[1], r[2], round(r[3], 2), f"{r[4]:.6g}") for n, r in v.items()})
            else:
                bad = [n for n, r in v.items() if not r[1]]
                if bad and k[1] < 240: print(k[1], v["old"][6]["method"], v["old"][6]["data"], v["old"][6]["boundary"], f"{v['old'][7]:.0e}", "NOT", *bad)
    print(time.time() - T0)
