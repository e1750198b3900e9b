"""The widget for napari: its plain functions always, and the widget itself where napari is installed."""

import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import deblur

H = deblur.psf.gaussian(5, 1.0)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    import napari_widget

    yield napari_widget
    del sys.modules["napari_widget"]


def test_frames_are_restored_as_alone_with_progress_and_can_be_cancelled(example, rng):
    frames = rng.random((2, 3, 20, 24)).astype(np.float32)
    *seen, out = example.restored(frames, H, 1e-2, False, threading.Event(), boundary="reflect")
    np.testing.assert_allclose(out[1, 2], deblur.reconstruct(frames[1, 2], H, 1e-2, boundary="reflect"), atol=1e-5)
    assert all(0 <= done < 1 for done, _ in seen)
    rgb = np.moveaxis(frames[0], 0, -1)
    *_, out = example.restored(rgb, H, 1e-2, True, threading.Event(), boundary="reflect")
    assert out.shape == rgb.shape
    stop = threading.Event()
    many = np.tile(frames, (9, 1, 1, 1))
    with pytest.raises(example.Cancelled):
        [stop.set() for _ in example.restored(many, H, 1e-2, False, stop, method="tv", rtol=1e-12)]
    refused(ValueError, r"shape \(20,\)", next, example.restored(frames[0, 0, :, 0], H, 1e-2, False, stop))
    dark = types.SimpleNamespace(name="dark", data=np.zeros((3, 3)))
    refused(ValueError, "dark is no PSF", example.shown_psf, "", dark)


@pytest.mark.filterwarnings("ignore")
def test_the_widget_restores_a_layer_and_keeps_its_scale(example, rng, request):
    components = pytest.importorskip("napari.components")
    pytest.importorskip("pytestqt")
    qtbot = request.getfixturevalue("qtbot")
    viewer = components.ViewerModel()  # all of a viewer but its window, which needs OpenGL
    picture = rng.random((2, 24, 20)).astype(np.float32)
    layer = viewer.add_image(picture, scale=(1, 0.2, 0.1), translate=(0, 3, 4), units=("s", "um", "um"), name="cells")
    image, psf, _, method, rule, lam, start, cancel, status = example.widget(viewer)
    image.value, psf.value, rule.value, lam.value = layer, "gaussian:5,1", "number", 0.01
    start.changed.emit(True)
    qtbot.waitUntil(lambda: start.enabled, timeout=60_000)
    assert status.value == "restored"
    made = viewer.layers["cells (restored)"]
    assert [*made.scale, *made.translate] == [*layer.scale, *layer.translate]
    assert made.units == layer.units
    np.testing.assert_allclose(made.data, deblur.reconstruct(picture, H, 0.01, stack_axis=0), atol=1e-5)
    method.value = "tv"
    start.changed.emit(True)
    assert cancel.enabled
    cancel.changed.emit(True)
    qtbot.waitUntil(lambda: start.enabled, timeout=60_000)
    assert status.value == "cancelled"
    psf.value = "nonsense"
    start.changed.emit(True)
    qtbot.waitUntil(lambda: start.enabled, timeout=60_000)
    assert "nonsense" in status.value
