"""The trained denoiser against a plain statement of the same network, and what it must keep."""

import numpy as np
import pytest
from scipy.signal import correlate2d

from deblur.denoise import network
from deblur.device import asnumpy


def convolved(x, w):
    """(C, P, Q) by (O, 9, C), one plane at a time."""
    return np.stack([sum(correlate2d(p, k.reshape(3, 3), "same") for p, k in zip(x, o.T, strict=True)) for o in w])


def halves(x):
    return np.concatenate([[p[i::2, j::2] for i in (0, 1) for j in (0, 1)] for p in x])


def whole(x):
    rows, cols = x.shape[1:]
    return x.reshape(-1, 2, 2, rows, cols).transpose(0, 3, 1, 4, 2).reshape(-1, 2 * rows, 2 * cols)


def plainly(image, sigma, near):
    """The network, written out."""
    w = {name: value.astype(float) for name, value in network.read().items()}

    def pairs(x, name):
        for k in range(sum(f"{name}.{i}.a" in w for i in range(9))):
            x = x + convolved(np.maximum(convolved(x, w[f"{name}.{k}.a"]), 0), w[f"{name}.{k}.b"])
        return x

    def down(x, name):
        return np.einsum("oik,ikpq->opq", w[name], halves(x).reshape(len(x), 4, *(n // 2 for n in x.shape[1:])))

    parts = halves(image[None])
    level = np.full((1, *parts.shape[1:]), sigma)
    head = convolved(np.concatenate([parts, level, halves(near[None])]), w["head"])
    y0 = pairs(head, "left0")
    y1 = pairs(down(y0, "down0"), "left1")
    y2 = pairs(down(y1, "down1"), "left2")
    y1 = pairs(y1 + whole(np.einsum("oi,ipq->opq", w["up1"], y2)), "right1")
    y0 = pairs(y0 + whole(np.einsum("oi,ipq->opq", w["up0"], y1)), "right0")
    return image - whole(convolved(y0 + head, w["tail"]))[0]


def test_the_network_written_out(rng, xp):
    image, near = rng.random((2, 24, 16))
    found = asnumpy(network.network(xp.asarray(image)[None], 0.1, xp.asarray(near)[None]))
    np.testing.assert_allclose(found[0], plainly(image, 0.1, near), atol=2e-5)


def test_strips_change_nothing(rng, monkeypatch):
    image, near = rng.random((2, 1, 40, 32))
    found = network.network(image, 0.1, near)
    monkeypatch.setattr(network, "_STRIP", 1)
    np.testing.assert_allclose(network.network(image, 0.1, near), found, atol=1e-6)


def test_pictures_on_any_scale(rng):
    image, near = rng.random((2, 1, 32, 32))
    found = network.network(300 * image, 30, 300 * near)
    np.testing.assert_allclose(found, 300 * network.network(image, 0.1, near), rtol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 9), (1, 33, 18), (3, 9, 12)])
def test_shapes_are_kept(rng, shape):
    image, near = rng.random((2, *shape)).astype(np.float32)
    found = network.network(image, 0.1, near)
    assert (found.shape, found.dtype) == (shape, np.float32)
    assert np.isfinite(found).all()


def test_planes_of_nothing_stay_so(rng):
    image = np.stack([rng.random((24, 24)), 1e-16 * rng.random((24, 24))])
    np.testing.assert_array_equal(network.network(image, 0.1, image)[1], image[1])


def test_without_noise_nothing_is_done(rng):
    image = rng.random((1, 16, 16))
    np.testing.assert_array_equal(network.network(image, 0.0, image), image)
    np.testing.assert_array_equal(network.network(0 * image, 0.1, image), 0)


def test_weights_of_another_checksum_are_refused(tmp_path):
    content = bytearray(network.WEIGHTS.read_bytes())
    content[-1000] ^= 1
    path = tmp_path / "network.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="network.npz is damaged or was changed"):
        network.read(path)
