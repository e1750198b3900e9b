"""Dense chains as CUDA graphs: the same bits in every thread, within the budget of the cache."""

import gc
import itertools

import numpy as np
import pytest

from deblur import graphs
from deblur.device import Device, get_fft
from deblur.errors import SingularMatrixError
from deblur.linalg import cholesky, cholesky_inverse, gauss_jordan_inverse, qr
from deblur.operators.torus import Torus
from deblur.operators.torus_gpu import new_plans
from deblur.pool import SMALLEST, pool

pytestmark = pytest.mark.gpu


def definite(cupy, a):
    return a @ a.T / len(a) + cupy.eye(len(a), dtype=a.dtype)


CHAINS = {
    "qr": (lambda cupy, a: qr(a), [(300, 300), (900, 2000), (2100, 2100), (2600, 2200)]),
    "qr r": (lambda cupy, a: (qr(a, "r"),), [(700, 300)]),
    "qr complete": (lambda cupy, a: qr(a, "complete"), [(700, 300)]),
    "qr tall": (lambda cupy, a: qr(a), [(3000, 100), (2, 3000, 60)]),
    "qr stack": (lambda cupy, a: qr(a), [(3, 400, 350)]),
    "cholesky": (lambda cupy, a: (cholesky(definite(cupy, a)),), [(65, 65), (1500, 1500), (2500, 2500)]),
    "inverse": (lambda cupy, a: (cholesky_inverse(definite(cupy, a)),), [(700, 700), (2500, 2500)]),
    "gauss-jordan": (lambda cupy, a: (gauss_jordan_inverse(a),), [(300, 300), (1500, 1500)]),
}
CASES = [(name, shape) for name, (_, shapes) in CHAINS.items() for shape in shapes]


@pytest.fixture(autouse=True)
def clean(cupy):
    graphs.forget()
    yield
    graphs.forget()


def cached(name=""):
    """How many graphs the cache holds, of a name or of all."""
    return sum(key[0] == "graph" and name in key[1] for key, _ in pool(0)._entries)


def matrix(cupy, shape, dtype, seed=0):
    return cupy.random.default_rng(seed).standard_normal(shape, dtype=dtype)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_graph_gives_the_same_bits(name, shape, dtype, cupy):
    chain = CHAINS[name][0]
    first, second = (matrix(cupy, shape, dtype, seed) for seed in (1, 2))
    as_it_is = [[x.copy() for x in chain(cupy, a)] for a in (first, second)]  # the second time from a graph
    assert cached()
    for a, known in zip((first, second, first), (*as_it_is, as_it_is[0])):
        assert all(bool((x == y).all()) for x, y in zip(chain(cupy, a), known))


def test_a_loop_in_a_cycle_leaves_a_stream_that_lives(cupy):
    x = cupy.zeros(5)

    def step():
        x[...] = x + 1

    for _ in range(3):
        loop = graphs.Loop(0)
        for _ in range(2):
            loop(step)
        cycle = [loop]
        cycle.append(cycle)
        del loop, cycle
        gc.collect()
    assert x.tolist() == [6.0] * 5


def test_results_do_not_share_memory(cupy):
    shape = (600, 600)
    results = [qr(matrix(cupy, shape, np.float32, seed)) for seed in range(4)]
    for seed, (q, r) in enumerate(results):
        assert float(abs(q @ r - matrix(cupy, shape, np.float32, seed)).max()) < 1e-4


def test_four_threads_on_four_streams(cupy, on_four_streams):
    shapes = [(520, 500), (2100, 2050)]
    given = [[matrix(cupy, shape, np.float32, seed) for shape in shapes] for seed in range(4)]
    known = [[qr(a) for a in of_thread] for of_thread in given]

    def right(i):
        found = [qr(a) for a in given[i]]
        return all(bool((x == y).all()) for ours, own in zip(found, known[i]) for x, y in zip(ours, own))

    assert all(on_four_streams(right, 5))


def test_without_memory_nothing_is_captured(cupy, monkeypatch):
    a = matrix(cupy, (2100, 2100), np.float32)
    q, r = qr(a)

    def refuses(size):
        raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)

    for allowed in (0, 1, 3):  # while the input is made, or in the middle of the capture
        graphs.forget()
        qr(a)
        left = [allowed]

        def memory(size, left=left, make=cupy.cuda.Memory):
            left[0] -= 1
            return make(size) if left[0] >= 0 else refuses(size)

        with monkeypatch.context() as patch:
            patch.setattr(cupy.cuda, "Memory", memory)
            found = qr(a)
        assert not cached()
        assert bool((found[0] == q).all() & (found[1] == r).all())
        again = qr(a)
        assert bool((again[0] == q).all() & (again[1] == r).all())


def test_a_captured_stream_is_refused(cupy):
    a = matrix(cupy, (300, 300), np.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        try:
            for call in (qr, cholesky, cholesky_inverse, gauss_jordan_inverse):
                with pytest.raises(RuntimeError, match="being captured"):
                    call(a)
        finally:
            stream.end_capture()
    qr(a)


def test_the_cache_of_graphs_is_bounded(cupy, monkeypatch):
    for _ in range(2):
        qr(matrix(cupy, (600, 600), np.float32))
    assert cached() == 1
    monkeypatch.setattr(pool(0), "budget", 3 * SMALLEST)
    for n in (601, 602, 603, 604):
        for _ in range(2):
            qr(matrix(cupy, (n, n), np.float32))
        assert pool(0).nbytes <= 3 * SMALLEST
    assert cached() > 0


def test_a_graph_reports_a_failed_pivot(cupy):
    a = cupy.eye(700, dtype=np.float32)
    for _ in range(2):
        cholesky(a)
    a[650, 650] = -1
    with pytest.raises(SingularMatrixError) as caught:
        cholesky(a)
    assert caught.value.index == 650
    a[650, 650] = 1
    assert bool((cholesky(a) == a).all())


def looped(torus, by, x, i, eager):
    """Two steps in turns, each with the result of the other."""
    first = graphs.Repeated(lambda x: torus.product(0.5 * x + i, by), eager)
    second = graphs.Repeated(lambda x: torus.product(x - 1, by) * 0.5, eager + 1)
    for _ in range(8):
        x = second(first(x).copy()).copy()
    return x


def test_a_loop_does_what_its_step_does_in_four_threads_too(cupy, rng, on_four_streams, monkeypatch):
    torus = Torus((60, 64), Device(0))
    by = cupy.asarray(abs(np.fft.rfft2(rng.standard_normal((60, 64)))) / 60)
    images = [cupy.asarray(rng.standard_normal((60, 64))) for _ in range(4)]
    known = [looped(torus, by, x, i, 100) for i, x in enumerate(images)]
    made, captured = [], graphs.captured

    def counted(*given):
        graph = captured(*given)
        made.append(graph)
        return graph

    monkeypatch.setattr(graphs, "captured", counted)
    assert all(on_four_streams(lambda i: bool((looped(torus, by, images[i], i, 2) == known[i]).all()), 3))
    assert len(made) == 24
    assert all(made)
    monkeypatch.setattr(graphs, "captured", lambda *_: None)  # without a graph
    assert bool((looped(torus, by, images[1], 1, 2) == known[1]).all())


def test_plans_are_made_while_other_threads_capture(cupy, on_four_streams):
    torus, numbers = Torus((60, 64), Device(0)), itertools.count(50)
    by, x = cupy.ones((60, 33)), cupy.ones((60, 64))

    def step():
        for _ in range(30):
            torus.product(x, by)

    def work(i):
        if i % 2:
            for n in itertools.islice(numbers, 30):
                new_plans((n, n), 1, np.dtype("f8"))
                get_fft(cupy).rfft(cupy.ones(2 * n))
            return True
        loops = [graphs.Loop(0) for _ in range(30)]
        for loop in loops:
            loop(step)
        return all(loop._graph is not None for loop in loops)

    assert all(on_four_streams(work, 3))


@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_a_loop_leaves_its_memory_to_the_next_within_the_budget(cupy, monkeypatch, budget):
    monkeypatch.setattr(pool(0), "budget", budget)
    x = cupy.ones((1 << 20,), np.float64)
    step = graphs.Repeated(lambda x: (x + 1) * 2, 1)
    for _ in range(4):
        assert float(step(x)[-1]) == 4
    del step
    assert (pool(0).nbytes >= 2 * x.nbytes) == (budget > 0)
    graphs.forget()
    assert pool(0).nbytes == 0
