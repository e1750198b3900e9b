"""Plots of a restoration: Picard plot, L-curve, the rule's curve, filter factors, residual; views of volumes.

Each function draws into the given Axes or Figure, or into a new Figure, and returns the Axes; `residual_image`,
`psf_check` and `volumes` return the Figure. Nothing is shown, and pyplot's global state is not used: save a plot with
``ax.figure.savefig(...)``. Matplotlib is imported at the first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from .device import Array, as_real, asnumpy
from .errors import check_number
from .tuning import LambdaChoice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .psf import PSFCheck


def _choice(source: Any, spectrum: bool = False) -> LambdaChoice:
    """Return the LambdaChoice of a Result, or `source` if it is one; raise an error if it lacks the needed data."""
    choice = getattr(source, "lambda_choice", source)
    if choice is None and source is not None:
        raise ValueError(
            "there is no curve to draw: λ was given as a number. Let a rule choose it (lam='gcv'), or draw "
            "from deblur.choose_lambda(blur, g)"
        )
    if not isinstance(choice, LambdaChoice):
        raise TypeError(
            "a plot takes the Result of deblur.solve or the LambdaChoice of deblur.choose_lambda, not "
            f"{type(source).__name__}"
        )
    if spectrum and not choice.singular_values.size:
        raise ValueError(
            f"λ was chosen by {choice.rule!r} from {len(choice.lambdas)} solutions, without singular values: there is "
            "no Picard plot and no L-curve of it; gcv_curve draws the function that the rule evaluated"
        )
    return choice


def _axes(ax: Axes | None, title: str, x: str, y: str = "") -> Axes:
    """Return the axes, or those of a new figure, with title and labels."""
    ax = _figure((5.5, 4.2)).add_subplot() if ax is None else ax
    ax.set(title=title, xlabel=x, ylabel=y)
    return ax


def _line(ax: Axes, draw: Any, at: float, label: str, color: str = "0.4", linestyle: str = "--") -> Axes:
    """Draw a thin line at `at` with ``ax.axhline`` or ``ax.axvline``, and the legend."""
    draw(at, label=label, color=color, linestyle=linestyle, linewidth=0.8)
    ax.legend()
    return ax


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def thinned(n: int, most: int = 4000) -> np.ndarray:
    """Return at most `most` of the indices below n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))


def picard(source: Any, ax: Axes | None = None) -> Axes:
    """Draw a Picard plot: singular values σ_i, the image's coefficients |u_iᵀ g| and their quotients.

    The noise begins where the coefficients level off. From there on the quotient, which is the unregularised solution,
    grows without bound.

    Parameters
    ----------
    source : LambdaChoice or Result
        A choice of λ by a rule that uses singular values.
    ax : Axes, optional
        The Axes to draw into; by default those of a new Figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If λ was not chosen by a rule, or by a rule without singular values.
    TypeError
        If `source` is neither a LambdaChoice nor a Result.
    """
    choice = _choice(source, spectrum=True)
    ax = _axes(ax, "Picard plot", "i")
    at = thinned(len(choice.singular_values))
    s, c = choice.singular_values[at], choice.coefficients[at]
    quotients = np.divide(c, s, out=np.zeros_like(c), where=s > 0)
    for values, label in ((s, "σᵢ"), (c, "|uᵢᵀg|"), (quotients, "|uᵢᵀg| / σᵢ")):
        where = values > 0
        ax.semilogy(at[where], values[where], "." if label != "σᵢ" else "-", markersize=2, label=label)
    return _line(ax, ax.axhline, float(np.sqrt(choice.lam)), f"√λ, λ = {choice.lam:.2g}")


def l_curve(source: Any, ax: Axes | None = None) -> Axes:
    """Draw the L-curve: ‖f_λ‖ against ‖g − Hf_λ‖, both logarithmic, with the chosen λ marked.

    Parameters and errors are those of `picard`.
    """
    choice = _choice(source, spectrum=True)
    ax = _axes(ax, "L-curve", "‖g − Hf‖", "‖f‖")
    some = (choice.residual_norms > 0) & (choice.solution_norms > 0)
    lambdas, *norms = (np.log(a[some]) for a in (choice.lambdas, choice.residual_norms, choice.solution_norms))
    x, y = (np.exp(np.interp(np.log(choice.lam), lambdas, values)) for values in norms)
    ax.loglog(choice.residual_norms[some], choice.solution_norms[some])
    ax.plot([x], [y], "o", label=f"λ = {choice.lam:.2g} ({choice.rule})")
    ax.legend()
    return ax


_CURVES = {
    "gcv": "GCV function",
    "upre": "estimated risk",
    "discrepancy": "root mean square residual",
    "lcurve": "curvature of the L-curve",
    "sure": "estimated risk",
    "whiteness": "autocorrelation of the residual",
}


def gcv_curve(source: Any, ax: Axes | None = None) -> Axes:
    """Draw the function that the rule evaluated (for "gcv" the GCV function) against λ, with the chosen λ marked.

    Parameters and errors are those of `picard`, but the rule needs no singular values.
    """
    choice = _choice(source)
    curve = _CURVES[choice.rule]
    ax = _axes(ax, choice.remark.split(":")[0] if choice.remark else curve, "λ", curve)
    ax.plot(choice.lambdas, choice.values)
    ax.set_xscale("log")
    if choice.rule in ("gcv", "discrepancy", "whiteness") and choice.values.min() > 0:
        ax.set_yscale("log")
    _line(ax, ax.axvline, choice.lam, f"λ = {choice.lam:.2g}")
    if choice.rule == "discrepancy" and choice.noise and choice.singular_values.size:
        _line(ax, ax.axhline, choice.noise, f"noise {choice.noise:.2g} ({choice.noise_source})", "C1", "-")
    return ax


def filter_factors(singular_values: Array, lam: float, ax: Axes | None = None) -> Axes:
    """Draw Tikhonov's filter factors σ²/(σ² + λ) against σ: the share of each component that is kept.

    Parameters
    ----------
    singular_values : array
        Singular values, in an array of any shape, such as those of a LambdaChoice or of a Spectrum.
    lam : float
        The regularisation parameter λ >= 0, in units of σ².
    ax : Axes, optional
        The Axes to draw into; by default those of a new Figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no positive singular value, or λ is negative or not finite.
    """
    s = np.sort(asnumpy(as_real(singular_values, "singular_values", np.float64)).ravel())
    s = s[s > 0]
    if len(s) == 0:
        raise ValueError("there is no positive singular value to draw filter factors for")
    lam = check_number(lam, "λ")
    ax = _axes(ax, "Filter factors", "σ", "σ² / (σ² + λ)")
    s = s[thinned(len(s))]
    ax.semilogx(s, s**2 / (s**2 + lam))
    return _line(ax, ax.axvline, max(float(np.sqrt(lam)), s[0]), f"√λ, λ = {lam:.2g}")


def cumulative_periodogram(residual: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the normalised cumulative periodogram of an image: the share of its power below each frequency.

    Parameters
    ----------
    residual : (..., M, N) array
        The residual. The mean of each frame is subtracted, and the power is averaged over the frames.

    Returns
    -------
    frequency : (p,) array
        Radial spatial frequency in cycles per pixel, increasing.
    share : (p, 2) array
        The share of the power at or below each frequency: first of the residual, then of white noise.

    Raises
    ------
    ValueError
        If the residual has fewer than two axes or is empty.

    Notes
    -----
    For white noise the two columns agree. Remaining parts of the image make the first one rise early, and fitted noise
    makes it rise late (Hansen, Kilmer, Kjeldsen, BIT 46 (2006) 41-59, in one dimension).
    """
    r = asnumpy(residual).astype(float)
    if r.ndim < 2 or r.size == 0:
        raise ValueError(f"the residual must be an image, not an array of shape {r.shape}")
    r = r.reshape(-1, *r.shape[-2:])
    r = r - r.mean(axis=(-2, -1), keepdims=True)
    power = (np.abs(scipy.fft.fft2(r)) ** 2).sum(axis=0)
    radius = np.hypot(scipy.fft.fftfreq(r.shape[-2])[:, None], scipy.fft.fftfreq(r.shape[-1])[None])
    frequency, group = np.unique(radius.round(12).ravel(), return_inverse=True)
    sums = [np.bincount(group.ravel(), each.ravel()) for each in (power, np.ones(power.shape))]
    share = np.cumsum(np.stack(sums, axis=1)[1:], axis=0)  # without the frequency zero
    return frequency[1:], share / np.maximum(share[-1:], np.finfo(float).tiny)


def residual_image(source: Any, figure: Figure | None = None) -> Figure:
    """Draw the residual g − Hf as an image, beside its normalised cumulative periodogram.

    Parameters
    ----------
    source : (M, N) or (M, N, c) array, or Result
        The residual image, or a Result that contains it.
    figure : Figure, optional
        The Figure to draw into; by default a new one.

    Returns
    -------
    Figure
        A Figure with two Axes.

    Raises
    ------
    ValueError
        If the residual is not an image.
    """
    r = asnumpy(as_real(getattr(source, "residual_image", source), "the residual", np.float64))
    if r.ndim not in (2, 3) or r.size == 0:
        raise ValueError(f"the residual must be (M, N) or (M, N, channels), not of shape {r.shape}")
    if r.ndim == 3:
        r = np.moveaxis(r, -1, 0)
    figure = _figure((9.5, 4.2)) if figure is None else figure
    left, right = figure.subplots(1, 2)
    shown = r if r.ndim == 2 else r.mean(axis=0)
    limit = max(float(np.percentile(np.abs(shown), 99.5)), float(np.finfo(float).tiny))
    drawn = left.imshow(shown, cmap="gray", vmin=-limit, vmax=limit, interpolation="nearest")
    figure.colorbar(drawn, ax=left, shrink=0.8)
    left.set_axis_off()
    left.set_title(f"residual, standard deviation {r.std():.3g}")
    if min(r.shape[-2:]) > 1:
        frequency, share = cumulative_periodogram(r)
        right.plot(frequency, share[:, 0], label="residual")
        right.plot(frequency, share[:, 1], color="0.4", linestyle="--", label="white noise")
        right.set_title(f"whiteness: largest distance {np.abs(share[:, 0] - share[:, 1]).max():.3f}")
        right.legend()
    right.set(xlabel="cycles per pixel", ylabel="share of the power below")
    return figure


def psf_check(check: PSFCheck, figure: Figure | None = None) -> Figure:
    """Draw the result of `deblur.psf.check`: the PSF, the power of the image, and the power that the PSF predicts.

    Parameters
    ----------
    check : PSFCheck
        The result of `deblur.psf.check`.
    figure : Figure, optional
        The Figure to draw into; by default a new one.

    Returns
    -------
    Figure
        A Figure with three Axes. The zeros in the third should also appear in the second.
    """
    figure = _figure((10.5, 3.8)) if figure is None else figure
    first, *others = figure.subplots(1, 3)
    first.imshow(check.psf, cmap="gray", interpolation="nearest")
    first.set_title("PSF")
    first.set_axis_off()
    low, high = np.log10(np.percentile(np.maximum(check.power, np.finfo(float).tiny), [1, 99.8]))
    y, x = check.frequencies.T
    powers = {"power of the picture": check.power, "power it should have": check.model}
    for ax, (title, values) in zip(others, powers.items(), strict=True):
        shown = np.log10(np.maximum(values, np.finfo(float).tiny))
        # Only half of the frequencies are stored; the other half mirrors them.
        x2, y2, c = (np.concatenate(pair) for pair in ((x, -x), (y, -y), (shown, shown)))
        ax.scatter(x2, y2, c=c, s=2, marker="s", cmap="gray", vmin=low, vmax=high, linewidths=0)
        ax.set(aspect="equal", title=title, xlabel="cycles per pixel")
    figure.suptitle(f"{check.verdict.name.lower().replace('_', ' ')}: {check.verdict.value}", fontsize=9)
    return figure


def volumes(
    named: Mapping[str, Array], spacing: Sequence[float] = (1.0, 1.0, 1.0), at: Sequence[int] | None = None
) -> Figure:
    """Draw volumes from three sides in their true proportions: maximum projections, and slices through one voxel.

    Parameters
    ----------
    named : mapping of str to (L, M, N) array
        Titles and volumes, such as before and after a restoration. Planes are along z, rows along y, columns along x.
    spacing : (float, float, float)
        Size of a voxel along z, y and x, in one unit, such as micrometres.
    at : (int, int, int), optional
        The voxel in which the slices meet; by default the central voxel.

    Returns
    -------
    Figure
        A Figure with one row for each volume: projections on the left, slices on the right. Each has three Axes with
        one grey scale: x and y; beside it z and y; below it x and z.

    Raises
    ------
    ValueError
        If an array is not a volume, or a size is not positive.
    IndexError
        If `at` is outside a volume.
    """
    steps = np.asarray(spacing, float)
    if steps.shape != (3,) or not (steps > 0).all():
        raise ValueError(f"spacing must be three positive sizes of a voxel, along z, y and x, not {spacing!r}")
    figure = _figure((9.0, 4.5 * len(named)))
    rows = figure.subfigures(len(named), 2, squeeze=False)
    for (name, each), parts in zip(named.items(), rows, strict=True):
        v = asnumpy(each)
        if v.ndim != 3 or v.size == 0:
            raise ValueError(f"{name}: a volume has three axes and some voxels, not shape {v.shape}")
        place = tuple(n // 2 for n in v.shape) if at is None else tuple(at)
        views = {
            f"{name}: maxima": [v.max(axis=i) for i in range(3)],
            f"{name}: slices at {place}": [v.take(n, i) for i, n in enumerate(place)],
        }
        z, y, x = steps * v.shape
        for part, (title, (above, front, aside)) in zip(parts, views.items(), strict=True):
            axes = part.subplots(2, 2, width_ratios=(x, z), height_ratios=(y, z)).ravel()
            sides = np.concatenate([side.ravel() for side in (above, front, aside)])
            scale: Any = {"vmin": sides.min(), "vmax": sides.max()}
            drawn = ((above, ("x", "y"), (x, y)), (aside.T, ("z", "y"), (z, y)), (front, ("x", "z"), (x, z)))
            for ax, (picture, (across, down), (wide, high)) in zip(axes, drawn, strict=False):
                ax.imshow(picture, extent=(0, wide, high, 0), cmap="gray", interpolation="nearest", **scale)
                ax.set(xlabel=across, ylabel=down)
            axes[3].set_axis_off()
            axes[0].set_title(title)
    return figure
