"""The entrants of `deblur.compare`: all of them there, each given the blur as it understands it."""

import importlib.util
import sys
import types

import numpy as np
import pytest
import scipy.ndimage

import deblur
from deblur import compare
from deblur.compare import adapters
from deblur.compare.adapters import base
from deblur.compare.cases import Task

ENTRANTS = adapters.entrants()
OUTSIDE = [name for name, c in ENTRANTS.items() if c.module and c.family != "deblur"]


# Other people's packages warn as they like.
outside = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def scene():
    """Blobs that end well inside the frame, so that every boundary is the same."""
    inside = scipy.ndimage.gaussian_filter(np.random.default_rng(5).random((28, 24)) > 0.8, 1.0, output=float)
    return np.pad(inside / inside.max(), 16)


def test_what_an_entrant_says_of_itself():
    assert set(deblur.METHODS) | {"auto"} <= set(ENTRANTS)
    for name, entrant in ENTRANTS.items():
        assert entrant.name == name
        assert entrant.summary
        assert " " not in name  # it is typed on a command line
        assert entrant.family
        assert bool(entrant.module) == bool(entrant.install)
        if entrant.search:
            assert entrant.parameter
            assert 0 < entrant.search[0] < entrant.search[1]
        assert entrant.own_boundary in (None, *deblur.BOUNDARIES)


def test_a_package_that_is_absent_says_how_to_install_it():
    absent = base.Entrant("x", "X", "x", module="no_such_package", install="pip install x")
    assert absent.missing() == "pip install x"
    assert ENTRANTS["auto"].missing() is None
    for name in OUTSIDE:
        missing = ENTRANTS[name].missing()
        installed = importlib.util.find_spec(ENTRANTS[name].module) is not None
        assert (missing is None) == installed
        assert installed or "pip install" in missing


def test_centred_psf_blurs_as_the_even_one(rng):
    for shape in ((4, 4), (3, 6), (1, 2), (5, 5)):
        psf = rng.random(shape)
        centred = base.centred(psf)
        assert all(n % 2 == 1 for n in centred.shape)
        picture = rng.random((12, 13))
        same = deblur.Blur(centred, picture.shape).forward(picture)
        assert np.abs(deblur.Blur(psf, picture.shape).forward(picture) - same).max() <= 1e-12


@pytest.fixture(params=OUTSIDE)
def entrant(request):
    """Each method of another package, where that is installed."""
    if ENTRANTS[request.param].missing():
        pytest.skip(ENTRANTS[request.param].missing())
    return ENTRANTS[request.param]


@outside
@pytest.mark.parametrize("shape", [(5, 5), (4, 6)])
def test_outside_methods_are_given_the_blur_the_right_way_round(entrant, shape, scene, rng):
    """An asymmetric, even PSF: a flipped or shifted one would restore another picture or displace it."""
    psf = rng.random(shape) ** 3
    psf /= psf.sum()
    boundary = entrant.own_boundary or "zero"
    blurred = deblur.Blur(psf, scene.shape, "zero").forward(scene)
    task = Task(blurred, psf, boundary)
    assert entrant.refuses(task) is None
    small = {"skimage-wiener": 1e-3, "skimage-wiener-padded": 1e-3, "scico-tv": 1e-4}
    value = small.get(entrant.name, entrant.choose(task).value)
    restored = np.asarray(entrant.prepare(task, value)(blurred.copy()).image)
    assert restored.shape == scene.shape
    assert np.linalg.norm(restored - scene) <= 0.7 * np.linalg.norm(blurred - scene)
    again = deblur.Blur(psf, scene.shape, "zero").forward(restored)
    assert np.linalg.norm(again - blurred) <= 0.05 * np.linalg.norm(blurred)


@outside
def test_outside_methods_take_colour(entrant, scene):
    colour = np.stack([scene, scene[::-1], 0.5 * scene], axis=-1)
    task = Task(colour, deblur.psf.gaussian(3, 1), entrant.own_boundary or "zero")
    setting = entrant.choose(task)
    restored = np.asarray(entrant.prepare(task, setting.value)(colour.copy()).image)
    alone = np.asarray(entrant.prepare(Task(scene, task.psf, task.boundary), setting.value)(scene.copy()).image)
    assert np.abs(restored[..., 0] - alone).max() <= 1e-6


@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_methods_refuse_what_they_cannot_assume(name, scene):
    entrant = ENTRANTS[name]
    psf = deblur.psf.gaussian(3, 1)
    served = [b for b in deblur.BOUNDARIES if entrant.refuses(Task(scene, psf, b)) is None]
    assert served == ([entrant.own_boundary] if entrant.own_boundary else list(deblur.BOUNDARIES))


def test_ours_are_what_deblur_solve_gives(scene):
    psf = np.random.default_rng(2).random((4, 3))
    psf /= psf.sum()
    for boundary, lam in (("zero", 1e-2), ("unknown", 1e-2), ("unknown", "gcv"), ("reflect", "upre")):
        g = deblur.degrade(scene, psf, noise=0.01, seed=1)
        task = Task(g, psf, boundary, lam)
        for name in ("auto", "pcg"):
            entrant = ENTRANTS[name]
            setting = entrant.choose(task)
            answer = entrant.prepare(task, setting.value)(g)
            expected = deblur.solve(g, psf, lam, method=name, boundary=boundary)
            assert setting.value == pytest.approx(expected.lam, rel=1e-6)
            assert np.abs(answer.image - expected.image).max() <= 1e-6
            assert answer.residual <= 1e-6
        assert (setting.curve is None) == (lam == 1e-2)


def test_a_dense_method_that_takes_long_or_does_not_fit_is_refused(monkeypatch):
    task = Task(np.zeros((256, 256)), deblur.psf.gaussian(9, 1.5), "zero", 1e-2)
    monkeypatch.setattr("deblur.methods.free_memory", lambda xp: 1 << 50)
    assert ENTRANTS["gauss-seidel"].predicted(task, 1e-2) > 20
    monkeypatch.setattr("deblur.methods.free_memory", lambda xp: 1 << 30)
    with pytest.raises(MemoryError, match=r"GiB and 1 GiB are free"):
        ENTRANTS["gauss-seidel"].predicted(task, 1e-2)
    assert ENTRANTS["auto"].predicted(task, 1e-2) is None
    assert ENTRANTS["kronecker"].predicted(task, 1e-2) < 20


def test_trips_is_called_as_its_source_says(scene, monkeypatch):
    """TRIPs-Py is on no package index; a stand-in with its signature, solving by SciPy, is called instead."""

    def hybrid_lsqr(A, b, n_iter, regparam="gcv", x_true=None, **kwargs):
        assert x_true is None
        assert b.shape == (A.shape[0], 1)
        return scipy.sparse.linalg.lsqr(A, b.ravel(), iter_lim=n_iter)[0].reshape(-1, 1), {"its": n_iter}

    module = types.ModuleType("trips.solvers.Hybrid_LSQR")
    module.hybrid_lsqr = hybrid_lsqr
    for name in ("trips", "trips.solvers"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    psf = deblur.psf.gaussian(5, 1)
    for boundary in ("zero", "unknown"):
        g = deblur.Blur(psf, scene.shape, "zero").forward(scene)
        task = Task(g, psf, boundary)
        entrant = ENTRANTS["trips-hybrid-lsqr"]
        restored = entrant.prepare(task, entrant.choose(task).value)(g).image
        assert restored.shape == g.shape
        assert np.linalg.norm(restored - scene) < 0.7 * np.linalg.norm(g - scene)


def test_variational_methods_run_or_say_why():
    names = [*(m.name for m in deblur.METHODS.values() if not m.linear), "tv-masked"]
    options = {"size": 32, "repeats": 1, "memory": False, "time_limit": 300}  # Numba compiles
    found = compare.run("camera64", "gaussian:5,1", 0.01, "unknown", names, **options)
    for row in found.rows[1:]:
        assert row.status in ("ok", "refused", "failed"), row
        assert (row.status == "ok") == (row.mse is not None)
        assert row.status == "ok" or row.reason
