"""The table of methods and the choice among them."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.ndimage  # noqa: F401, of which a first call imports a part as large as its arrays

import deblur
from deblur import Blur
from deblur.methods import METHODS, Method, choose_method, expected_seconds
from deblur.operators.normal import normal_matrix
from deblur.problem import Problem
from deblur.threads import thread_limit
from deblur.tuning.sums import exact_sums


@pytest.mark.parametrize("boundary", deblur.BOUNDARIES)
@pytest.mark.parametrize("psf_shape", [(1, 1), (3, 3), (4, 3), (2, 5)])
def test_normal_matrix_is_the_product(rng, boundary, psf_shape):
    for shape in ((8, 7), (5, 13)):
        blur = Blur(rng.standard_normal(psf_shape), shape, boundary)
        h = blur.to_dense()
        expected = h @ h.T + 0.3 * np.eye(len(h))
        assert np.abs(normal_matrix(blur, 0.3) - expected).max() <= 1e-13 * np.abs(expected).max()
        shifted = Blur(blur.psf, shape, boundary, origin=(psf_shape[0] - 1, 0))
        h = shifted.to_dense()
        assert np.abs(normal_matrix(shifted, 0.0) - h @ h.T).max() <= 1e-13 * np.abs(expected).max()


def test_structure_decides():
    gaussian, shake = deblur.psf.gaussian(9, 1.5), deblur.psf.camera_shake(17, 1)
    assert choose_method(Blur(gaussian, (256, 256), "periodic"), 1e-3).method == "fft"
    assert choose_method(Blur(gaussian, (256, 256), "reflect"), 1e-3).method == "dct"
    assert choose_method(Blur(deblur.psf.disk(9), (256, 256), "antireflect"), 1e-4).method == "dst"
    choice = choose_method(Blur(shake, (256, 256)), 1e-2)
    assert choice.method not in ("fft", "dct", "dst", "kronecker")
    for name, word in (("kronecker", "separable"), ("fft", "periodic"), ("dct", "reflect")):
        assert word in choice.refused[name]


def test_a_method_that_does_not_fit_memory_is_not_chosen():
    blur = Blur(deblur.psf.disk(5), (128, 128))
    choice = choose_method(blur, 1e-3, memory=64 << 20)
    assert all("free" in choice.refused[name] for name in ("cholesky", "gauss-jordan", "lu", "gauss-seidel"))
    with pytest.raises(deblur.InsufficientMemoryError, match=r"needed and 10 bytes are free.*deblur\.tiled") as refused:
        choose_method(blur, 1e-3, memory=10)
    assert refused.value.free == 10
    with pytest.raises(deblur.InsufficientMemoryError, match="dtype='float32', with half of it"):
        choose_method(blur, 1e-3, memory=refused.value.needed // 2 + 1)


def test_frames_that_are_solved_for_in_turns_need_no_more_memory_than_one():
    blur = Blur(deblur.psf.motion(15, 30), (1024, 1024), "unknown")
    assert choose_method(blur, 1e-2, frames=50, memory=int(METHODS["pcg"].memory(Problem(blur, 1e-2)))).method == "pcg"


# How many scenes a method takes at most, by its boundary.
SCENES = {"fft periodic": 6.6, "dct reflect": 8.4, "pcg unknown": 8.8, "gradient unknown": 16.5, "tv unknown": 24}
SCENES |= {"laplacian unknown": 17.5, "kronecker unknown": 9.3, "richardson-lucy unknown": 14, "tv reflect": 22}
SCENES |= {"kronecker zero": 7.9, "kronecker reflect": 8.6, "richardson-lucy reflect": 17.5}


def traced(call):
    """Bytes that a call leaves and takes, by one thread: slices that several transform at once take more."""
    tracemalloc.start()
    with thread_limit(1):
        call()
    found = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found


@pytest.fixture
def stated(monkeypatch):
    """The bytes that methods state, whenever they are prepared."""
    needed, prepare = [], Method.prepare

    def recorded(method, problem, **how):
        needed.append(method.memory(problem))
        return prepare(method, problem, **how)

    monkeypatch.setattr(Method, "prepare", recorded)
    return needed


def peak_of(g, psf, lam, **options):
    """Bytes of a solve that leaves nothing large to the collector of cycles."""
    for at in ((slice(20),) * g.ndim, (...,)):  # the first imports what it needs
        part = {name: x[at[: x.ndim]] if isinstance(x, np.ndarray) else x for name, x in options.items()}
        left, peak = traced(lambda at=at, part=part: deblur.solve(g[at], psf, lam, check=False, **part))
    assert left <= 0.1 * peak
    return peak


@pytest.mark.parametrize("case", SCENES)
def test_a_volume_takes_the_memory_that_its_method_states(case, rng, stated):
    name, boundary = case.split()
    g, method, lam = rng.poisson(20, (40, 96, 96)).astype(np.float32), METHODS[name], 0.01 * (name[0] != "r")
    blur = Blur(deblur.psf.gaussian((5, 7, 7), 1.5), g.shape, boundary)
    peak = peak_of(g, blur.psf, lam, method=name, boundary=boundary, max_iterations=4 if method.iterative else None)
    assert 0.9 * peak <= stated[-1] <= 1.1 * peak <= 1.1 * SCENES[case] * 4 * blur.shape[1]


# Images with hidden pixels or colours; the linear formula with each prior; an automatic λ.
SEEN = [("tv2", "rgb"), ("gradient", "hole"), *((m, "mask") for m in ("gradient", "identity", "pnp", "collaborative"))]
LINEAR = {"fft": "periodic", "dct": "reflect", "dst": "antireflect", "pcg": "unknown", "kronecker": "antireflect"}
IMAGES = [(method, boundary, kind) for method, kind in SEEN for boundary in ("unknown", "periodic", "reflect")]
IMAGES += [(method, boundary, prior) for method, boundary in LINEAR.items() for prior in ("zero", "smooth", "natural")]
IMAGES += [(*case.split(), "auto") for case in ("tv periodic", "tv2 reflect", "gradient periodic", "pcg unknown")]


@pytest.mark.parametrize(("method", "boundary", "kind"), IMAGES)
def test_images_take_the_memory_that_is_stated(rng, stated, method, boundary, kind):
    blur, mask = Blur(deblur.psf.gaussian(7, 1.5), (200, 190), boundary), rng.random((200, 190)) < 0.2
    g = blur.forward(deblur.data.load("camera")[tuple(map(slice, blur.scene_shape))]) + rng.normal(0, 0.01, mask.shape)
    g = np.stack([g] * 3, axis=-1) if kind == "rgb" else g
    mask[50:150, 50:140] |= kind == "hole"
    options = {"prior": kind} if METHODS[method].linear else {"mask": mask} if kind in ("hole", "mask") else {}
    options |= {"boundary": boundary, "max_iterations": 4 if METHODS[method].iterative else None}
    peak = peak_of(g, blur.psf, "auto" if kind == "auto" else 0.01, method=method, **options)
    assert stated[-1] == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("boundary", deblur.BOUNDARIES)
@pytest.mark.parametrize(("method", "count", "dtype"), [("gradient", 2, "f4"), ("laplacian", 5, "f8"), ("tv", 3, "f4")])
def test_varying_blurs_take_the_memory_that_is_stated(rng, stated, method, count, dtype, boundary):
    psfs = np.array([[deblur.psf.gaussian(9, 1 + 0.3 * i + 0.2 * i * j) for i in range(count)] for j in range(2)])
    options = {"psfs": psfs, "boundary": boundary, "method": method, "max_iterations": 6}
    peak = peak_of(rng.random((260, 250)).astype(dtype), None, 0.01, **options)
    assert stated[-1] == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("boundary", ["unknown", "periodic", "reflect"])
@pytest.mark.parametrize(("steps", "dtype"), [(4, "f8"), (15, "f4"), (16, "f8"), (33, "f4")])
def test_stored_bases_take_the_memory_that_is_stated(rng, stated, dtype, boundary, steps):
    g, psf = rng.poisson(20, (31, 45, 53)).astype(dtype), deblur.psf.gaussian((5, 7, 7), 1.5)
    peak = peak_of(g, psf, 1e-4, boundary=boundary, method="hybrid-lsqr", max_iterations=steps)
    assert stated[-1] == pytest.approx(peak, rel=0.1)


def test_choosing_allocates_nothing_large():
    assert traced(lambda: choose_method(Blur(np.ones((15, 15)), (2048, 2048)), 1e-3))[1] < 2048 * 2048 * 8


@pytest.mark.parametrize("name", METHODS)
def test_more_frames_take_no_less_memory(name):
    method = METHODS[name]
    problem = Problem(Blur(np.ones((3, 3)) / 9, (8, 8), "zero"), 1e-2, method.regularizer)
    if method.refuses(problem) is None:
        assert 0 <= method.memory(problem) <= method.memory(replace(problem, frames=7))


def test_a_smaller_lambda_moves_the_choice_from_iterating_to_factoring():
    blur = Blur(deblur.psf.disk(5), (64, 64))
    assert [choose_method(blur, lam).method for lam in (1e-1, 1e-12, 0.0)] == ["pcg", "banded", "banded"]


@pytest.mark.parametrize(
    ("side", "psf", "lam", "method"),
    [
        (48, deblur.psf.motion(9, 30), 1e-6, "banded"),  # an iteration takes 130 times as long
        (40, deblur.psf.motion(15, 10), 1e-2, "banded"),  # its lines are few, though they are long
        (48, np.ones((31, 31)) + np.eye(31), 1e-2, "pcg"),  # to form HHᵀ takes 100 times as long
    ],
)
def test_small_images_are_factored_where_that_takes_less(side, psf, lam, method):
    assert choose_method(Blur(psf / psf.sum(), (side, side), "reflect"), lam).method == method


@pytest.mark.parametrize("shape", [(4096,), (8, 4000)])
def test_no_long_axis_is_decomposed(shape):
    blur = Blur(deblur.psf.gaussian((5, 9)[-len(shape) :], 1.5), shape, "unknown")
    assert choose_method(blur, 1e-3).method in ("pcg", "banded")
    assert exact_sums(blur, np.ones((1, *shape))).frames == 4


def test_the_other_methods_that_serve_are_listed_in_order():
    choice = choose_method(Blur(deblur.psf.gaussian(9, 1.5), (64, 64), "periodic"), 1e-3)
    assert choice.others[0] == "kronecker"
    assert not {choice.method, *choice.others} & set(choice.refused)


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_every_method_has_an_expected_time(method):
    assert expected_seconds(method, 256 * 256) > 0
