"""scikit-image: `wiener`, `unsupervised_wiener` and `richardson_lucy`, with its defaults and on padded pictures."""

from __future__ import annotations

from functools import partial

from ..cases import Task
from .base import Channel, Entrant, Setting, centred


def entrants() -> list[Entrant]:
    """Return the three methods, and padded versions of those that assume a wrong boundary."""
    reason = "the value in the example of scikit-image's documentation; it has no rule"
    package = partial(Entrant, family="scikit-image", module="skimage", install="pip install scikit-image")
    wiener = partial(
        package, restore=_wiener, setting=Setting(0.1, reason=reason), parameter="balance", search=(1e-5, 1e2)
    )
    lucy = partial(
        package, restore=_richardson_lucy, setting=Setting(50, reason="scikit-image's own number of iterations"),
        parameter="iterations", search=(1, 300), whole=True, light=True,
    )  # fmt: skip
    same = "the same on a picture mirrored at its borders"
    return [
        wiener("skimage-wiener", summary="Wiener-Hunt filter with a Laplacian", own_boundary="periodic"),
        wiener("skimage-wiener-padded", summary=same, own_boundary="reflect", padded=True),
        package(
            "skimage-unsupervised-wiener", summary="Wiener-Hunt filter that draws its parameters (Gibbs sampler)",
            restore=_unsupervised, setting=Setting(None, "automatic", "it estimates its own parameters"),
            own_boundary="periodic",
        ),
        lucy("skimage-richardson-lucy", summary="Richardson-Lucy iteration", own_boundary="zero"),
        lucy("skimage-richardson-lucy-padded", summary=same, own_boundary="reflect", padded=True),
    ]  # fmt: skip


def _wiener(task: Task, value: float | None) -> Channel:
    from skimage.restoration import wiener

    return lambda g: wiener(g, centred(task.psf), value)


def _unsupervised(task: Task, value: float | None) -> Channel:
    from skimage.restoration import unsupervised_wiener

    return lambda g: unsupervised_wiener(g, centred(task.psf), rng=0)[0]


def _richardson_lucy(task: Task, value: float | None) -> Channel:
    from skimage.restoration import richardson_lucy

    return lambda g: richardson_lucy(g, centred(task.psf), num_iter=int(value or 1))
