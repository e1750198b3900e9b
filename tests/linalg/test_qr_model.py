"""The least-squares model against a fresh solution, whatever came and went before; a failed change changes nothing."""

from itertools import product

import numpy as np
import pytest
from refusals import refused

from deblur.device import asnumpy as host
from deblur.errors import SingularMatrixError
from deblur.linalg import QRModel, plan_update, qr_insert_delete, qr_model, qr_plan, qr_update


def check(model, a, b, tolerance=1e-10):
    """The model is that of a and b: data, factors, d, solution and residual."""
    m, n = a.shape
    assert model.shape == (m, n)
    assert np.array_equal(host(model.a), a)
    assert np.array_equal(host(model.b), b)
    r, d = host(model.r), host(model.d)
    size = max(1.0, np.abs(a).max(initial=0)) * max(m, n, 1)
    assert np.abs(np.tril(r, -1)).max(initial=0) == 0
    assert np.abs(r.T @ r - a.T @ a).max(initial=0) <= tolerance * size
    assert np.abs(r.T @ d - a.T @ b).max(initial=0) <= tolerance * size
    if model.q is not None:
        q = host(model.q)
        assert q.shape == (m, n)
        assert np.abs(q.T @ q - np.eye(n)).max(initial=0) <= tolerance
        assert np.abs(q @ r - a).max(initial=0) <= tolerance * size
        assert np.abs(q.T @ b - d).max(initial=0) <= tolerance * size
    if n:
        x = np.linalg.lstsq(a, b, rcond=None)[0]
        assert np.abs(host(model.solve()) - x).max() <= tolerance * np.linalg.cond(a) * max(1, np.abs(x).max())
        assert np.abs(host(model.residual()) - (b - a @ x)).max(initial=0) <= tolerance * size * np.linalg.cond(a)


def change(model, a, b, rng, largest, method):
    """One random change of the model, and of a and b themselves."""
    m, n = a.shape
    xp = np if isinstance(model.r, np.ndarray) else __import__("cupy")
    kind = rng.choice(qr_plan.UPDATES)
    p = int(rng.integers(1, largest + 1))
    if kind == "add_rows":
        k, u, e = (int(rng.integers(m + 1)), rng.standard_normal((p, n)), rng.standard_normal((p, *b.shape[1:])))
        model.add_rows(xp.asarray(u), xp.asarray(e), k, method=method)
        return np.insert(a, [k] * p, u, axis=0), np.insert(b, [k] * p, e, axis=0)
    if kind == "add_columns" and n < m:
        k, u = int(rng.integers(n + 1)), rng.standard_normal((m, min(p, m - n)))
        model.add_columns(xp.asarray(u), k, method=method)
        return np.insert(a, [k] * u.shape[1], u, axis=1), b
    if kind == "remove_rows" and m > n:
        gone = rng.choice(m, min(p, m - n), replace=False)
        model.remove_rows(gone, method=method)
        return np.delete(a, gone, axis=0), np.delete(b, gone, axis=0)
    if kind == "remove_columns" and n > 0:
        k = int(rng.integers(n))
        gone = np.arange(k, min(k + p, n))
        model.remove_columns(slice(k, k + p), method=method)
        return np.delete(a, gone, axis=1), b
    return a, b


@pytest.mark.parametrize("keep_q", [True, False])
@pytest.mark.parametrize("method", ["update", "auto", "sweeps"])
@pytest.mark.parametrize(
    ("m", "n", "rhs", "largest"), [(60, 20, (), 5), (45, 30, (3,), 24), (30, 1, (1,), 3), (150, 100, (), 40)]
)
def test_random_sequences_equal_a_fresh_solution(monkeypatch, xp, rng, keep_q, method, m, n, rhs, largest):
    if method == "sweeps":  # never SciPy's rotations
        method = "update"
        monkeypatch.setattr(qr_insert_delete, "rotations_are_faster", lambda *_: False)
    a, b = rng.standard_normal((m, n)), rng.standard_normal((m, *rhs))
    model = QRModel(xp.asarray(a), xp.asarray(b), keep_q=keep_q)
    check(model, a, b)
    for _ in range(12):
        a, b = change(model, a, b, rng, largest, method)
        # A square random A may be ill-conditioned; without Q the model then factors anew by itself.
        check(model, a, b)


@pytest.mark.parametrize("keep_q", [True, False])
def test_left_to_itself_it_stays_as_accurate_as_a_fresh_factorisation(monkeypatch, rng, keep_q, dtype):
    # The plan is made to update always: what is tested is that errors do not add up.
    plan = qr_plan.UpdatePlan("update", "so", 1.0, 1.0)
    monkeypatch.setattr(qr_model, "plan_update", lambda *_, **__: plan)
    a, b = rng.standard_normal((50, 15)).astype(dtype), rng.standard_normal(50).astype(dtype)
    model = QRModel(a, b, keep_q=keep_q)
    ages, ratios = set(), []
    for i in range(120):
        u, e, c = rng.standard_normal((5, 15)), rng.standard_normal(5), rng.standard_normal((50, 3))
        k = int(rng.integers(0, 12))
        model.add_rows(u, e, 4 * k)
        ages.add(model.age)
        model.remove_rows(rng.choice(55, 5, replace=False))
        model.add_columns(c, k)
        model.remove_columns(slice(k + 1, k + 4))
        if i % 5 == 0:
            fresh = QRModel(model.a, model.b, keep_q=keep_q)
            ratios.append(factor_error(model) / factor_error(fresh))
    assert max(ages) <= qr_model.FRESH_FOR
    assert max(ratios) <= 10
    model.add_rows(u, e, method="update")
    assert model.age >= 1


def factor_error(model):
    """How far RᵀR is from AᵀA, and Q from orthonormal columns, in float64."""
    r, a = model.r.astype(np.float64), model.a.astype(np.float64)
    error = np.linalg.norm(r.T @ r - a.T @ a, 2) / np.linalg.norm(a, 2) ** 2
    if model.q is None:
        return error
    q = model.q.astype(np.float64)
    return max(error, np.linalg.norm(q.T @ q - np.eye(q.shape[1]), 2))


@pytest.mark.parametrize("keep_q", [True, False])
@pytest.mark.parametrize("method", ["update", "refactor"])
def test_edges(xp, rng, keep_q, method):
    def fresh(m, n):
        a, b = rng.standard_normal((m, n)), rng.standard_normal(m)
        return QRModel(xp.asarray(a), xp.asarray(b), keep_q=keep_q, method=method), a, b

    # From nothing, by rows and columns, and back to nothing.
    model, a, b = fresh(0, 0)
    b = rng.standard_normal(5)
    model.add_rows(xp.zeros((5, 0)), xp.asarray(b))
    a = rng.standard_normal((5, 5))
    model.add_columns(xp.asarray(a))
    check(model, a, b)
    model.remove_columns([0, 2, 4])
    check(model, a[:, [1, 3]], b)
    model.remove_columns([0, 1])
    check(model, np.zeros((5, 0)), b)
    assert np.array_equal(host(model.residual()), b)
    model.remove_rows(range(5))
    assert model.shape == (0, 0)

    # Down to one row and one column.
    model, a, b = fresh(7, 1)
    model.remove_rows([0, 1, 2, 4, 5, 6])
    check(model, a[3:4], b[3:4])

    # Until A is square, and from there on.
    model, a, b = fresh(9, 6)
    model.remove_rows(slice(2, 5))
    check(model, np.delete(a, [2, 3, 4], 0), np.delete(b, [2, 3, 4]))
    model.add_rows(xp.asarray(a[2:5]), xp.asarray(b[2:5]), k=2)
    check(model, a, b)
    u = rng.standard_normal((9, 3))
    model.add_columns(xp.asarray(u), k=6)
    check(model, np.hstack([a, u]), b)
    model.remove_columns(-1)
    check(model, np.hstack([a, u[:, :2]]), b)

    # Nothing at all is no change.
    model.remove_rows([])
    model.add_rows(xp.zeros((0, 8)), xp.zeros(0))
    check(model, np.hstack([a, u[:, :2]]), b)


def test_float32(xp, rng):
    a, b = rng.standard_normal((50, 10)).astype(np.float32), rng.standard_normal(50).astype(np.float32)
    model = QRModel(xp.asarray(a), xp.asarray(b), method="update")
    model.remove_rows([3, 30])
    model.add_columns(xp.asarray(b[:48]))
    assert model.r.dtype == model.q.dtype == model.solve().dtype == np.float32
    assert float(abs(model.q.T @ model.q - xp.eye(11)).max()) <= 1e-5


def test_input_arrays_are_neither_kept_nor_changed(rng):
    a, b, u = rng.standard_normal((9, 3)), rng.standard_normal(9), rng.standard_normal((2, 3))
    copies = a.copy(), b.copy(), u.copy()
    model = QRModel(a, b, method="update")
    model.add_rows(u, [1.0, 2.0])
    model.remove_rows(0)
    model.remove_columns(1)
    assert all(np.array_equal(x, y) for x, y in zip((a, b, u), copies, strict=True))
    a[:], b[:], u[:] = 7, 7, 7
    check(model, np.delete(np.vstack([copies[0], copies[2]])[1:], 1, axis=1), np.append(copies[1][1:], [1.0, 2.0]))


CHANGES = {
    "add_rows": lambda model: model.add_rows(np.ones((20, 4)), np.ones(20)),
    "remove_rows": lambda model: model.remove_rows(slice(0, 20)),
    "add_columns": lambda model: model.add_columns(np.arange(40.0)[:, None] ** [4, 5]),
    "remove_columns": lambda model: model.remove_columns([0, 2]),
}
INSIDE = {  # where in the work each change is made to fail
    "add_rows": [(qr_update, "sweep_down"), (qr_update, "triangularise"), (qr_model, "_insert")],
    "remove_rows": [(qr_update, "sweep_up"), (qr_model, "remove_rows"), (qr_model, "_delete")],
    "add_columns": [(qr_update, "sweep_up"), (qr_model, "complement")],
    "remove_columns": [(qr_update, "sweep_down"), (qr_update, "_gather")],
}


@pytest.mark.parametrize("keep_q", [True, False])
@pytest.mark.parametrize(("which", "module", "name"), [(w, *f) for w, fs in INSIDE.items() for f in fs])
def test_a_change_that_fails_leaves_the_model_as_it_was(monkeypatch, rng, keep_q, which, module, name):
    a, b = rng.standard_normal((40, 4)), rng.standard_normal(40)
    model = QRModel(a, b, keep_q=keep_q, method="update")
    before = vars(model).copy()
    values = [None if x is None else x.copy() for x in (model.a, model.b, model.q, model.r, model.d)]
    if keep_q and name in ("remove_rows", "complement"):
        module = qr_insert_delete
    original = getattr(module, name)

    def failing(*arguments, **options):
        original(*arguments, **options)  # it does its work, in place where it works in place, and then fails
        raise MemoryError("injected")

    monkeypatch.setattr(qr_insert_delete, "rotations_are_faster", lambda *_: False)  # in place, step by step
    monkeypatch.setattr(module, name, failing)
    refused(MemoryError, "injected", CHANGES[which], model)
    monkeypatch.undo()
    assert all(vars(model)[name] is value for name, value in before.items())
    after = (model.a, model.b, model.q, model.r, model.d)
    assert all(x is y is None or np.array_equal(x, y) for x, y in zip(values, after, strict=True))
    CHANGES[which](model)  # and it still works
    assert model.shape != (40, 4)


def test_without_q_an_untrustworthy_update_is_replaced_by_a_factorisation(rng):
    # cond(A) = 1e12 leaves AR⁻¹ without orthogonality that repetition could restore.
    u, _ = np.linalg.qr(rng.standard_normal((50, 10)))
    v, _ = np.linalg.qr(rng.standard_normal((10, 10)))
    a, b = u @ (np.logspace(0, -12, 10)[:, None] * v), rng.standard_normal(50)
    well = QRModel(u, b, keep_q=False, method="update")
    well.remove_rows([1, 2])
    assert well.note == ""
    model = QRModel(a, b, keep_q=False, method="update")
    model.remove_rows([1, 2, 30])
    kept = np.delete(a, [1, 2, 30], axis=0)
    assert np.linalg.norm(model.r.T @ model.r - kept.T @ kept) <= 1e-14
    drifted = QRModel(u, b, keep_q=False, method="update")
    drifted._rd[...] *= 1 + 1e-6  # R as it might be after too many updates
    drifted.remove_rows([1, 2])
    assert "orthonormal" in drifted.note
    check(drifted, np.delete(u, [1, 2], axis=0), np.delete(b, [1, 2]))
    # What rounding left of far larger rows, of A or of b, does not go with them.
    at = 1e12 * (np.arange(50) == 7)
    for keep_q, rows, data in ((False, u, b + at), (False, u + at[:, None], b), (True, u + at[:, None], b)):
        spoiled = QRModel(rows, data, keep_q=keep_q, method="update")
        spoiled.remove_rows(7)
        check(spoiled, np.delete(u, 7, axis=0), np.delete(b, 7))
    singular = QRModel(np.zeros((5, 2)), np.zeros(5), keep_q=False, method="update")
    singular.remove_rows(0)
    assert "anew" in singular.note


@pytest.mark.parametrize("condition", [1e2, 1e5, 1e7])
@pytest.mark.parametrize("keep_q", [True, False])
def test_removed_rows_are_as_accurate_as_a_fresh_factorisation(rng, keep_q, condition):
    errors = {}
    u, _ = np.linalg.qr(rng.standard_normal((80, 20)))
    v, _ = np.linalg.qr(rng.standard_normal((20, 20)))
    a = u @ (np.logspace(0, -np.log10(condition), 20)[:, None] * v)
    b = a @ np.ones(20)
    for method in ("update", "refactor"):
        model = QRModel(a, b, keep_q=keep_q)
        for _ in range(10):
            model.remove_rows([0, 5, 7], method=method)
        errors[method] = np.linalg.norm(model.solve() - 1) / np.sqrt(20)
    assert errors["update"] <= 10 * errors["refactor"] + 100 * np.finfo(float).eps * condition


def test_dependent_columns_are_reported_by_solve(rng):
    a = rng.standard_normal((9, 3))
    model = QRModel(a, np.ones(9))
    model.add_columns(a[:, 1], method="update")
    refused(SingularMatrixError, "depends", model.solve)
    model.remove_columns(3)
    assert np.abs(model.solve() - np.linalg.lstsq(a, np.ones(9), rcond=None)[0]).max() <= 1e-12


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.add_rows(np.ones((2, 5)), np.ones(2)), ValueError, "u of shape"),
        (lambda m: m.add_rows(np.ones((2, 3)), np.ones(3)), ValueError, "b of shape"),
        (lambda m: m.add_rows(np.full((1, 3), np.nan), [1.0]), ValueError, "NaN"),
        (lambda m: m.add_rows(np.ones((1, 3)), [1.0], k=9), ValueError, "k = 9"),
        (lambda m: m.add_columns(np.ones(7)), ValueError, "u of shape"),
        (lambda m: m.add_columns(np.ones((6, 4))), ValueError, "columns"),
        (lambda m: m.remove_rows([0, 1, 2, 3]), ValueError, "left"),
        (lambda m: m.remove_rows([0, -6]), ValueError, "twice"),
        (lambda m: m.remove_rows(6), ValueError, "between -6 and 5"),
        (lambda m: m.remove_columns(1.5), TypeError, "integer"),
        (lambda m: m.remove_columns(0, method="fast"), ValueError, "fast"),
    ],
)
def test_bad_changes_are_refused_and_change_nothing(call, error, words):
    model = QRModel(np.eye(6, 3), np.ones(6))
    before = vars(model).copy()
    refused(error, words, call, model)
    assert all(vars(model)[name] is value for name, value in before.items())


@pytest.mark.parametrize(
    ("a", "b", "error", "words"),
    [
        (np.ones((2, 3)), np.ones(2), ValueError, "rows"),
        (np.ones(3), np.ones(3), ValueError, "matrix"),
        (np.ones((3, 2)), np.ones(4), ValueError, "shape"),
        (np.full((3, 2), np.inf), np.ones(3), ValueError, "infinite"),
    ],
)
def test_bad_models_are_refused(a, b, error, words):
    refused(error, words, QRModel, a, b)


# ---------------------------------------------------------------- the plan


def test_the_plan_is_followed_and_can_be_overridden(monkeypatch, rng):
    a, b = rng.standard_normal((40, 20)), rng.standard_normal(40)
    calls = []
    factored = QRModel._factored
    monkeypatch.setattr(QRModel, "_factored", lambda self, *data: calls.append(1) or factored(self, *data))
    for choice in ("update", "refactor"):
        plan = qr_plan.UpdatePlan(choice, "so", 1.0, 1.0)
        monkeypatch.setattr(qr_model, "plan_update", lambda *_, plan=plan, **__: plan)
        for method in (None, "update", "refactor"):
            model = QRModel(a, b)
            calls.clear()
            model.remove_columns([1, 2], method=method)
            assert bool(calls) == ((method or choice) == "refactor")
            assert model.plan is plan


@pytest.mark.parametrize("keep_q", [True, False])
def test_the_plan_knows_the_extremes(keep_q):
    def choice(*arguments):
        return plan_update(*arguments, keep_q=keep_q).choice

    assert choice("remove_columns", 20000, 1000, 1, 999) == "update"
    assert choice("add_columns", 20000, 1000, 1, 1000) == "update"
    assert choice("add_rows", 20000, 1000, 10) == "update"
    assert choice("remove_rows", 20000, 1000, 1) == "update"
    assert choice("add_rows", 1000, 1000, 20000) == "refactor" or not keep_q
    assert choice("remove_rows", 20000, 1000, 15000) == "refactor"
    plan = plan_update("remove_rows", 20000, 1000, 1, keep_q=keep_q)
    assert plan.update_seconds < plan.refactor_seconds
    assert "updating is the faster" in str(plan)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("swap_rows", 5, 3), "swap_rows"),
        (("remove_rows", 5, 3, 6), "5 x 3"),
        (("remove_columns", 5, 3, 1, 3), "at 3"),
        (("add_rows", 5, 3, -1), "-1"),
    ],
)
def test_plans_for_what_does_not_exist_are_refused(arguments, words):
    refused(ValueError, words, plan_update, *arguments)
    refused(ValueError, "tpu", plan_update, "add_rows", 5, 3, device="tpu")


def test_every_constant_that_a_plan_may_ask_for_is_there():
    kinds = [*((u, False) for u in qr_plan.UPDATES), ("add_rows", True)]
    rates = [(device, r) for device, r in qr_plan._rates().items() if device != "measured"]
    for (device, known), keep_q, p, item, (which, refactor) in product(rates, (True, False), (1, 1000), (4, 8), kinds):
        work = qr_plan.Update(which, 2000, 300, p, 0, keep_q, 1, item, device)
        rate = known[work.rate_name(refactor)].values()
        assert 0 <= min(rate) <= max(rate) > 0
