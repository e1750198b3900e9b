"""The plots: they draw the computed numbers and leave nothing behind."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from deblur import Blur, choose_lambda, plot, psf


def chosen(rng, rule):
    blur = Blur(psf.gaussian(5, 1.0), (32, 33), "reflect")
    rows, cols = np.mgrid[:32, :33]
    g = blur.forward(0.5 + 0.4 * np.sign(np.sin(rows / 3) * np.cos(cols / 4)))
    return choose_lambda(blur, g + 0.02 * rng.standard_normal(g.shape), rule, noise=0.02)


@pytest.fixture
def choice(rng):
    return chosen(rng, "gcv")


def drawn(shown):
    shown.figure.canvas.draw()  # raises, or warns, which is an error here, if something cannot be drawn
    return shown


def test_picard(choice):
    sigma, coefficients, quotient = (line.get_ydata() for line in drawn(plot.picard(choice)).lines[:3])
    np.testing.assert_array_equal(sigma, choice.singular_values)
    np.testing.assert_array_equal(coefficients, choice.coefficients[choice.coefficients > 0])
    np.testing.assert_allclose(quotient, (choice.coefficients / choice.singular_values)[choice.coefficients > 0])


def test_l_curve(choice):
    curve, point = drawn(plot.l_curve(SimpleNamespace(lambda_choice=choice))).lines
    np.testing.assert_array_equal(curve.get_xdata(), choice.residual_norms)
    np.testing.assert_array_equal(curve.get_ydata(), choice.solution_norms)
    at = np.searchsorted(choice.lambdas, choice.lam)
    assert choice.residual_norms[at - 1] <= point.get_xdata()[0] <= choice.residual_norms[at]
    assert choice.solution_norms[at] <= point.get_ydata()[0] <= choice.solution_norms[at - 1]


@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve", "upre"])
def test_the_curve_of_the_rule(rng, rule):
    choice = chosen(rng, rule)
    ax = drawn(plot.gcv_curve(choice))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), choice.values)
    assert ax.lines[1].get_xdata()[0] == choice.lam
    assert (len(ax.lines) == 3) is (choice.rule == "discrepancy")


def test_filter_factors(xp):
    s = xp.asarray(np.random.default_rng(0).random((30, 40)))
    x, y = drawn(plot.filter_factors(s, 0.09)).lines[0].get_data()
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(y, 1 / (1 + 0.09 / x**2))
    drawn(plot.filter_factors(s, 0.0))
    refused(ValueError, "no positive", plot.filter_factors, xp.zeros(3), 0.1)
    refused(ValueError, "finite", plot.filter_factors, s, float("nan"))
    x = plot.filter_factors(np.linspace(0.1, 1, 50_000), 0.1).lines[0].get_xdata()  # thinned from end to end
    assert len(x) <= 4000
    assert (x[0], x[-1]) == (0.1, 1.0)


@pytest.mark.parametrize("shape", [(40, 41), (17, 19), (3, 64, 60)])
def test_the_periodogram_distinguishes_noise_from_an_image(shape, rng, xp):
    frequency, share = plot.cumulative_periodogram(xp.asarray(rng.standard_normal(shape)))
    assert (np.diff(frequency) > 0).all()
    np.testing.assert_allclose(share[-1], 1)
    # A Kolmogorov-Smirnov statistic of half as many independent ordinates as there are pixels.
    assert np.abs(share[:, 0] - share[:, 1]).max() <= 2.5 / np.sqrt(np.prod(shape) / 2)
    smooth = np.cumsum(np.cumsum(rng.standard_normal(shape), axis=-1), axis=-2)
    assert (plot.cumulative_periodogram(smooth)[1] @ [1, -1]).max() > 0.3


def test_the_periodogram_counts_the_power_below_a_frequency():
    rows, cols = np.mgrid[:32, :24]
    wave = np.cos(2 * np.pi * 4 * rows / 32) + 2 * np.cos(2 * np.pi * 9 * cols / 24) + 5
    frequency, share = plot.cumulative_periodogram(wave)
    assert share[frequency < 4 / 32 - 1e-9, 0].max() <= 1e-12
    np.testing.assert_allclose(share[(frequency > 4 / 32 + 1e-9) & (frequency < 9 / 24 - 1e-9), 0], 0.2)


@pytest.mark.parametrize("shape", [(20, 31), (20, 31, 3), (1, 1), (1, 9)])
def test_residual_image(shape, rng):
    residual = rng.standard_normal(shape)
    figure = drawn(plot.residual_image(SimpleNamespace(residual_image=residual)))
    assert len(figure.axes) >= 2
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, residual if residual.ndim == 2 else residual.mean(axis=-1))
    drawn(plot.residual_image(np.zeros(shape)))


def test_given_axes_and_figures_are_used(choice):
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert plot.picard(choice, ax) is ax
    assert plot.residual_image(np.eye(5), other := Figure()) is other


def test_an_input_without_a_curve_is_refused():
    refused(ValueError, "given as a number", plot.l_curve, SimpleNamespace(lambda_choice=None))
    refused(TypeError, "takes the Result .* not ndarray", plot.picard, np.eye(5))
    refused(ValueError, "shape", plot.residual_image, np.zeros(7))
    refused(ValueError, "shape", plot.cumulative_periodogram, np.zeros(7))


def test_pyplot_is_not_imported_and_matplotlib_only_on_use():
    program = (
        "import sys, numpy as np\n"
        "from deblur import plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot.residual_image(np.eye(9)); plot.filter_factors(np.arange(5.0), 0.1)\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_volume_is_drawn_from_three_sides_in_its_proportions(rng):
    v = rng.random((4, 5, 7))
    maxima, slices = [v.max(axis=i) for i in range(3)], [v[2], v[:, 2], v[..., 3]]
    shown = [ax.images[0] for ax in plot.volumes({"v": v}, (0.3, 0.1, 0.2)).axes if ax.images]
    expected = [side for (above, front, aside) in (maxima, slices) for side in (above, aside.T, front)]
    for image, side in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), side)
    np.testing.assert_allclose(shown[0].get_extent(), (0, 1.4, 0.5, 0))
    np.testing.assert_allclose(shown[1].get_extent(), (0, 1.2, 0.5, 0))
    refused(ValueError, "v: a volume has three axes", plot.volumes, {"v": v[0]})
    refused(ValueError, "three positive sizes", plot.volumes, {"v": v}, (1, 0, 1))
