"""Hidden pixels and further exposures against the dense least-squares problem, solved from scratch in float64."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refused

import deblur
from deblur.errors import ConvergenceError, SingularMatrixError
from deblur.linalg.band_triangle import BandTriangle

LAM = 1e-3
CASES = [  # image, PSF, boundary
    ((9, 8), (3, 3), "zero"),
    ((13, 17), (4, 2), "reflect"),
    ((12, 11), (5, 3), "unknown"),
    ((9, 10), (3, 4), "periodic"),
    ((11, 12), (2, 5), "antireflect"),
    ((17,), (4,), "zero"),
    ((1, 17), (1, 4), "zero"),
    ((19, 5), (3, 1), "unknown"),
    ((1, 1), (1, 1), "zero"),
]


def dense(restore, images, lam=LAM):
    """The scene by NumPy's least squares on the stacked matrix, from the weights that the deblurrer says it uses."""
    rows, data = [], []
    for blur, weights, g in zip(restore.blurs, restore.weights, images, strict=True):
        root = np.sqrt(weights).reshape(-1)
        rows.append(root[:, None] * blur.to_dense())
        data.append(root * np.where(weights > 0, g, 0).reshape(-1))
    n = rows[0].shape[1]
    a, b = np.vstack([*rows, np.sqrt(lam) * np.eye(n)]), np.concatenate([*data, np.zeros(n)])
    scene = np.linalg.lstsq(a, b, rcond=None)[0].reshape(restore.blurs[0].scene_shape)
    return scene[restore.blurs[0].crop]


def close(a, b, tolerance=1e-9):
    return np.abs(a - b).max() <= tolerance * max(1, np.abs(b).max())


@pytest.mark.parametrize("method", ["update", "refactor", "auto"])
@pytest.mark.parametrize(("shape", "size", "boundary"), CASES)
def test_hidden_shown_and_added_equal_the_dense_solution(rng, shape, size, boundary, method):
    psf, g = rng.random(size) + 0.1, rng.random(shape)
    restore = deblur.QRDeblurrer(psf, shape, LAM, boundary=boundary)
    assert close(restore(g), dense(restore, [g]))
    mask = rng.random(shape) < 0.2
    mask.flat[0] = False  # something is left
    restore.hide(mask, method=method)
    assert np.array_equal(restore.weights[0] == 0, mask)
    assert close(restore(np.ma.array(np.where(mask, np.nan, g), mask=mask)), dense(restore, [g]))

    weights, again = rng.random(shape) + 0.5, rng.random(shape)
    late = rng.random(shape) < 0.1
    assert restore.add_exposure(rng.random(size), weights=weights, mask=late, method=method) == 2
    assert np.array_equal(restore.weights[1], np.where(late, 0, weights))
    assert close(restore(g, again), dense(restore, [g, again]))

    more = rng.random(shape) < 0.3
    restore.hide(more, 1, method=method)
    restore.show(mask, method=method)
    restore.show(late | more, -1, method=method)
    assert np.array_equal(restore.weights[0], np.ones(shape))
    assert np.array_equal(restore.weights[1], weights)
    assert close(restore(g, again), dense(restore, [g, again]))
    assert restore.residual <= 1e-10
    assert restore.note == ""


@pytest.mark.parametrize("boundary", ["zero", "unknown"])
def test_a_long_sequence(rng, boundary):
    shape = (16, 15)
    psf, g = rng.random((4, 3)), rng.random(shape)
    restore = deblur.QRDeblurrer(psf / psf.sum(), shape, LAM, boundary=boundary)
    for _ in range(30):
        mask = rng.random(shape) < 0.05
        (restore.hide if rng.random() < 0.6 else restore.show)(mask, method="update")
    assert close(restore(g), dense(restore, [g]))
    assert restore.note == ""


def test_masks_and_weights_from_the_start(rng):
    shape, psf = (10, 11), rng.random((3, 3))
    g, weights, mask = rng.random(shape), rng.random(shape), rng.random(shape) < 0.3
    weights[2, 3] = 0
    restore = deblur.QRDeblurrer(psf, shape, LAM, mask=mask, weights=weights)
    assert np.array_equal(restore.weights[0], np.where(mask, 0, weights))
    assert close(restore(g), dense(restore, [g]))
    restore.show(np.ones(shape, bool))
    assert np.array_equal(restore.weights[0], weights)
    assert close(restore(g), dense(restore, [g]))


def test_without_a_mask_it_is_reconstruct(rng):
    g, psf = rng.random((14, 15)), rng.random((4, 3))
    for boundary in deblur.BOUNDARIES:
        restored = deblur.QRDeblurrer(psf, g.shape, LAM, boundary=boundary)(g)
        assert close(restored, deblur.reconstruct(g, psf, LAM, method="cholesky", boundary=boundary, prior="zero"))


def test_two_exposures_are_better_than_one():
    sharp = deblur.data.load("camera")[96:136, 96:136]
    psfs = [deblur.psf.motion(7, 0), deblur.psf.motion(7, 90)]
    images = [deblur.degrade(sharp, psf, noise=0.01, seed=i) for i, psf in enumerate(psfs)]
    restore = deblur.QRDeblurrer(psfs[0], sharp.shape, 1e-3)
    one = deblur.metrics.mse(sharp, restore(images[0]))
    restore.add_exposure(psfs[1])
    assert deblur.metrics.mse(sharp, restore(*images)) < 0.5 * one


def test_float32_and_integers(rng):
    psf, g = deblur.psf.gaussian(5, 1.0), rng.integers(0, 256, (20, 21), dtype=np.uint8)
    restore = deblur.QRDeblurrer(psf, g.shape, 1e-2, dtype=np.float32)
    restore.hide(rng.random(g.shape) < 0.1, method="update")
    image = restore(g)
    assert image.dtype == np.float32
    assert close(image, dense(restore, [g / 255], 1e-2), 1e-3)


@pytest.mark.parametrize("change", ["hide", "show", "add"])
@pytest.mark.parametrize("method", ["update", "refactor"])
def test_a_change_that_fails_leaves_everything_as_it_was(monkeypatch, rng, change, method):
    shape = (9, 9)
    g = rng.random(shape)
    mask = rng.random(shape) < 0.2
    restore = deblur.QRDeblurrer(rng.random((3, 3)), shape, LAM)
    restore.hide(mask)
    exposures, r, image = restore._exposures, restore._r, restore(g)
    rows = r.rows.copy()
    put = BandTriangle._put
    calls = []

    def failing(self, *arguments):
        put(self, *arguments)
        calls.append(1)
        if len(calls) > 1:
            raise MemoryError("injected")

    monkeypatch.setattr(BandTriangle, "_put", failing)
    changes = {
        "hide": lambda: restore.hide(rng.random(shape) < 0.5, method=method),
        "show": lambda: restore.show(mask, method=method),
        "add": lambda: restore.add_exposure(method=method),
    }
    refused(MemoryError, "injected", changes[change])
    monkeypatch.undo()
    assert restore._exposures is exposures
    assert restore._r is r
    assert np.array_equal(r.rows, rows)
    assert np.array_equal(restore(g), image)


def test_rows_that_cannot_be_removed_cause_a_new_factorization(monkeypatch, rng):
    g = rng.random((9, 9))
    restore = deblur.QRDeblurrer(rng.random((3, 3)), g.shape, LAM)

    def refuse(*_):
        raise SingularMatrixError("too close")

    monkeypatch.setattr(BandTriangle, "without_rows", refuse)
    restore.hide(np.eye(9, dtype=bool), method="update")
    assert "computed again" in restore.note
    assert close(restore(g), dense(restore, [g]))


@pytest.mark.parametrize(("factor", "replaced"), [(1e6, True), (1 + 1e-4, False)])
def test_a_wrong_triangle_is_replaced_and_a_slightly_wrong_one_corrected(rng, factor, replaced):
    g = rng.random((9, 9))
    restore = deblur.QRDeblurrer(rng.random((3, 3)), g.shape, LAM)
    restore._r.rows[40, 0] *= factor
    assert close(restore(g), dense(restore, [g]))
    assert "computed again" in restore.note if replaced else restore.note == ""
    assert restore.residual <= 1e-10


def test_a_large_residual_is_an_error_with_the_scene(monkeypatch, rng):
    restore = deblur.QRDeblurrer(rng.random((3, 3)), (9, 9), LAM)
    monkeypatch.setattr(BandTriangle, "solve", lambda self, y: 1e-3 * y)
    with pytest.raises(ConvergenceError, match="larger λ") as caught:
        restore(rng.random((9, 9)))
    assert caught.value.result.shape == (9, 9)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"lam": 0}, ValueError, "positive"),
        ({"lam": np.nan}, ValueError, "positive"),
        ({"mask": np.ones((9, 9), bool)}, ValueError, "every pixel"),
        ({"mask": np.zeros((9, 8), bool)}, ValueError, r"\(9, 8\)"),
        ({"mask": np.zeros((9, 9))}, TypeError, "boolean"),
        ({"weights": -np.ones((9, 9))}, ValueError, "negative"),
        ({"weights": np.full((9, 9), np.nan)}, ValueError, "NaN"),
        ({"weights": np.ones((8, 9))}, ValueError, r"\(8, 9\)"),
        ({"weights": np.zeros((9, 9))}, ValueError, "every pixel"),
        ({"boundary": "mirror"}, ValueError, "mirror"),
        ({"dtype": np.int32}, TypeError, "int32"),
    ],
)
def test_bad_problems_are_refused(options, error, words):
    options = {"lam": LAM, **options}
    refused(error, words, deblur.QRDeblurrer, np.ones((3, 3)), (9, 9), **options)


def test_bad_calls_are_refused(rng):
    g = rng.random((9, 9))
    restore = deblur.QRDeblurrer(np.ones((3, 3)), (9, 9), LAM, boundary="unknown")
    refused(ValueError, "1 image", restore, g, g)
    refused(ValueError, "shape", restore, g[:8])
    refused(ValueError, "not hidden", restore, np.where(g > 0.9, np.inf, g))
    refused(ValueError, "no exposure 1", restore.hide, g > 2, 1)
    refused(ValueError, "no pixel", restore.hide, g > -1)
    refused(ValueError, "downdate", restore.hide, g > 0.9, method="downdate")
    refused(ValueError, "another scene", restore.add_exposure, np.ones((5, 3)))
    assert (restore.weights[0] == 1).all()


# ---------------------------------------------------------------- the banded triangle


@pytest.mark.parametrize(("n", "p", "reach"), [(1, 3, 1), (5, 9, 2), (130, 90, 7), (200, 500, 30), (70, 40, 70)])
def test_the_band_holds_the_cholesky_factor(rng, n, p, reach):
    start = rng.integers(0, n - min(reach, n) + 1, p)
    u = np.zeros((p, n))
    for row, i in zip(u, start, strict=True):
        row[i : i + reach] = rng.standard_normal(min(reach, n))
    d = rng.random(n) + 0.1
    r = BandTriangle(d)
    gram = np.diag(d**2)
    for rows in (u[: p // 2], u[p // 2 :]):
        r, gram = r.with_rows(sp.csr_array(rows)), gram + rows.T @ rows
        check_band(r, gram)
    gone = rng.choice(p, p // 3, replace=False)
    r, gram = r.without_rows(sp.csr_array(u[gone])), gram - u[gone].T @ u[gone]
    check_band(r, gram)
    y = rng.standard_normal((n, 2))
    assert close(r.solve(y), np.linalg.solve(gram, y), 1e-8)


def check_band(r, gram):
    n = len(gram)
    full = sum(np.diag(r.rows[: n - t, t], t) for t in range(r.bandwidth + 1))
    assert np.abs(full.T @ full - gram).max() <= 1e-13 * n * max(1, np.abs(gram).max())


def test_stored_zeros_do_not_widen_the_band():
    u = sp.csr_array(np.eye(50)[10:20])
    u.data[3] = 0
    wide = sp.csr_array((np.array([1.0, 2.0, 0.0]), (np.zeros(3, int), np.array([4, 5, 49]))), shape=(1, 50))
    r = BandTriangle(np.ones(50)).with_rows(sp.vstack([u, wide]))
    assert r.bandwidth == 1
    check_band(r, np.eye(50) + (u.T @ u + wide.T @ wide).toarray())


def test_removing_an_absent_row_is_refused():
    r = BandTriangle(np.ones(6))
    refused(SingularMatrixError, "singular", r.without_rows, sp.csr_array(2 * np.eye(6)[:1]))
    singular = BandTriangle(np.array([1.0, 0.0, 1.0]))
    with pytest.raises(SingularMatrixError) as caught:
        singular.solve(np.ones(3))
    assert caught.value.index == 1
