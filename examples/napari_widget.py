"""A widget for napari: deblur the selected layer, in the background, with progress and a way to cancel.

python examples/napari_widget.py [IMAGE]

It needs napari, for example ``pip install "napari[all]"``. The layer may be an image, a volume or a series of either.
The PSF determines how many axes are restored together. The axes before them are frames, which share all preparation.
The restored layer lies where the image lies, with its scale, units and names of axes.
"""

import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import deblur

METHODS = ("auto", "fft", "dct", "pcg", "tv", "richardson-lucy")
KEPT = ("scale", "translate", "rotate", "shear", "units", "axis_labels", "metadata", "colormap", "blending")


class Cancelled(Exception):
    """The user cancelled the restoration."""


# -- without napari ----------------------------------------------------------------------------------


def shown_psf(text: str, layer: Any = None) -> np.ndarray:
    """The PSF of a layer, which is scaled to a sum of one, or of a text such as ``gaussian:9,1.5``."""
    if layer is None:
        return deblur.psf.parse(text)
    h = np.asarray(layer.data, dtype=float)
    if not h.sum() > 0:
        raise ValueError(f"the layer {layer.name} is no PSF: its values sum to {h.sum():.3g}")
    return h / h.sum()


def restored(
    data: Any, psf: np.ndarray, lam: float | str, rgb: bool, stop: threading.Event, **options: Any
) -> Iterator[tuple[float, str] | np.ndarray]:
    """Restore every frame; yields (part that is done, what happens) often, and last the restored array.

    Parameters
    ----------
    data : array-like
        NumPy, Dask or zarr; frames are read one by one.
    psf : array
        Of two axes for images and of three for volumes.
    lam : float or str
        As for `deblur.reconstruct`.
    rgb : bool
        Whether the last axis is the colours.
    stop : threading.Event
        Set it to end the work; `Cancelled` is raised then.
    **options
        Options of `deblur.Deblurrer`.
    """
    shape, spatial = data.shape, psf.ndim + rgb
    if len(shape) < spatial:
        raise ValueError(f"the layer has shape {shape}, and the PSF {psf.shape}: the layer needs {spatial} axes")
    state = {"text": "set-up"}

    def callback(iteration: int, residual: float) -> None:
        state["text"] = f"iteration {iteration}, residual {residual:.1e}"
        if stop.is_set():
            raise Cancelled

    frames = list(np.ndindex(shape[:-spatial]))
    space = shape[-spatial : len(shape) - rgb]
    axes = {"channel_axis": psf.ndim} if rgb else {}
    restore = deblur.Deblurrer(psf, space, lam, callback=callback, **options)
    out: np.ndarray | None = None
    with ThreadPoolExecutor(1) as pool:
        try:
            for number, at in enumerate(frames):
                job = pool.submit(restore, np.asarray(data[at]), **axes)
                while not job.done():
                    yield number / len(frames), f"{number + 1} of {len(frames)}: {state['text']}"
                    stop.wait(0.1)
                result = job.result()
                out = np.empty(shape, result.dtype) if out is None else out
                out[at] = result
                if stop.is_set():
                    raise Cancelled
        finally:
            stop.set()  # also where this generator is closed before its end
    assert out is not None
    yield out


def layer_settings(layer: Any, name: str) -> dict[str, Any]:
    """What the restored layer takes over from its image."""
    kept: Mapping[str, Any] = {key: getattr(layer, key) for key in KEPT if hasattr(layer, key)}
    colours = ("colormap",) if layer.rgb else ()
    return {"name": name, "rgb": layer.rgb} | {key: kept[key] for key in kept if key not in colours}


# -- with napari -------------------------------------------------------------------------------------


def widget(viewer: Any) -> Any:
    """The widget, for ``viewer.window.add_dock_widget``."""
    from magicgui.widgets import ComboBox, Container, FloatSpinBox, Label, LineEdit, PushButton
    from napari.layers import Image
    from napari.qt.threading import thread_worker
    from napari.utils import progress

    def images(_: Any = None) -> list[Any]:
        return [layer for layer in viewer.layers if isinstance(layer, Image)]

    image = ComboBox(label="image", choices=images)
    psf = LineEdit(label="PSF", value="gaussian:9,1.5", tooltip="; ".join(deblur.psf.FORMS))
    psf_layer = ComboBox(label="or PSF layer", choices=images, nullable=True)
    method = ComboBox(label="method", choices=METHODS, value="auto")
    automatic = ComboBox(label="λ", choices=("by rule", "number"), value="by rule")
    lam = FloatSpinBox(label="λ is", value=1e-3, min=0, max=1e6, step=1e-4)
    start, cancel, status = (PushButton(text="Restore"), PushButton(text="Cancel", enabled=False), Label(value=""))
    box = Container(widgets=[image, psf, psf_layer, method, automatic, lam, start, cancel, status])
    stop = threading.Event()

    def on_start() -> None:
        source = image.value
        if source is None:
            status.value = "open an image first"
            return
        data = source.data[0] if source.multiscale else source.data
        rule = "auto" if automatic.value == "by rule" else lam.value
        stop.clear()
        start.enabled, cancel.enabled = False, True
        bar = progress(total=100, desc=f"deblur {source.name}")

        named, chosen, options = psf.value, psf_layer.value, {"method": method.value}

        @thread_worker
        def work() -> Iterator[Any]:
            try:
                yield from restored(data, shown_psf(named, chosen), rule, source.rgb, stop, **options)
            except Exception as error:  # shown in the widget, not by napari
                yield error

        def on_yield(found: Any) -> None:
            if isinstance(found, np.ndarray):
                viewer.add_image(found, **layer_settings(source, f"{source.name} (restored)"))
                status.value = "restored"
            elif isinstance(found, Exception):
                status.value = "cancelled" if isinstance(found, Cancelled) else f"failed: {found}"
            else:
                bar.update(int(100 * found[0]) - bar.n)
                status.value = found[1]

        def on_end() -> None:
            bar.close()
            start.enabled, cancel.enabled = True, False

        worker = work()
        worker.yielded.connect(on_yield)
        worker.finished.connect(on_end)
        worker.start()

    start.changed.connect(on_start)
    cancel.changed.connect(stop.set)
    viewer.layers.events.inserted.connect(box.reset_choices)
    viewer.layers.events.removed.connect(box.reset_choices)
    return box


if __name__ == "__main__":
    import napari

    shown = napari.Viewer()
    if sys.argv[1:]:
        shown.open(sys.argv[1:])
    else:
        sharp = deblur.data.load("camera")
        shown.add_image(deblur.degrade(sharp, deblur.psf.gaussian(9, 1.5), noise=0.005, seed=0), name="camera")
    shown.window.add_dock_widget(widget(shown), name="deblur")
    napari.run()
