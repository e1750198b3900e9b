"""Options of the public calls: one list of them, and an error for each bad image, option or combination."""

import inspect

import numpy as np
import pytest
from refusals import refused

import deblur
from deblur import cli, image
from deblur.methods import METHODS
from deblur.options import defaults

G = np.full((8, 8), 0.5)
PSF = np.ones((3, 3)) / 9
ONES = np.ones((12, 12))
CALLS = {
    "reconstruct": lambda **o: deblur.reconstruct(G, PSF, 1e-3, **o),
    "solve": lambda **o: deblur.solve(G, PSF, 1e-3, **o),
    "Deblurrer": lambda **o: deblur.Deblurrer(PSF, (8, 8), 1e-3, **o),
}


@pytest.mark.parametrize("call", [deblur.reconstruct, deblur.solve, deblur.Deblurrer])
def test_a_signature_names_every_option_with_its_default(call):
    parameters = inspect.signature(call).parameters
    assert {name: p.default for name, p in parameters.items() if name in defaults()} == defaults()
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults())
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


@pytest.mark.parametrize("call", [deblur.reconstruct, deblur.Deblurrer])
@pytest.mark.parametrize("name", defaults())
def test_every_option_is_documented(name, call):
    text = inspect.getdoc(call)
    assert "{options}" not in text
    assert any(name in line.split(" : ")[0].split(", ") for line in text.splitlines())


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_name_is_an_error_that_names_the_nearest(call):
    refused(TypeError, "'bounday'.*did you mean boundary", CALLS[call], bounday="zero")
    refused(TypeError, "'zzz'.*there are method, boundary", CALLS[call], zzz=1)


def test_the_command_line_takes_every_option_that_text_can_give():
    given = vars(cli._parser().parse_args(["reconstruct", "in.png", "-o", "out.png", "--psf", "box:3"]))
    rows = set(defaults()) & set(given)
    assert rows == set(defaults()) - {"origin", "inverse", "callback", "delta", "psfs"}
    # The defaults are those of the call.
    assert {name: given[name] for name in rows} == {name: defaults()[name] for name in rows}


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("edge", ["zero", "unknown"])
def test_every_call_has_the_same_defaults(tmp_path, capsys, bits, edge):
    psf, lam = deblur.psf.gaussian(9, 1.5), 1e-2
    g = deblur.degrade(deblur.data.load("camera"), psf, boundary=edge, noise=0.005, seed=0)
    image.write(tmp_path / "g.tif", g, bits=bits)
    g = image.read(tmp_path / "g.tif", as_float=False)
    result, kept, windows = deblur.solve(g, psf, lam), deblur.Deblurrer(psf, g.shape, lam), deblur.tiled(g, psf, lam)
    command = f"reconstruct {tmp_path}/g.tif -o {tmp_path}/f.tif --bits 32 --psf gaussian:9,1.5 --lam {lam}"
    assert cli.main(command.split()) == 0
    assert f"{result}".split("seconds")[0] == capsys.readouterr().out.split("seconds")[0]
    for other in (kept(g), deblur.reconstruct(g, psf, lam), image.read(tmp_path / "f.tif", as_float=False)):
        np.testing.assert_array_equal(other, result.image)
    np.testing.assert_allclose(windows, result.image, atol=1e-3)
    assert (kept.boundary, kept.prior, kept.choice.method) == (edge, result.prior, result.method)
    assert {result.image.dtype, windows.dtype} == {np.dtype("float32")}
    assert deblur.choose_method(result.blur, lam, dtype="float32").method == result.method
    assert deblur.plan_tiles(psf, lam, g.shape).boundary == "unknown"  # without the image, the one that needs the most


@pytest.mark.parametrize("idle", [{"rtol": 1e-3}, {"max_iterations": 5}], ids=["rtol", "max_iterations"])
@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if not m.iterative])
def test_options_that_a_direct_method_would_ignore_are_errors(method, idle):
    boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
    (name,) = idle
    with pytest.raises(deblur.MethodError, match=f"{method}.*does not iterate: {name}=.*leave it out"):
        deblur.reconstruct(G, PSF, 1e-3, method=method, boundary=boundary, **idle)
    deblur.reconstruct(G, PSF, 0.1, **idle, boundary=boundary)  # "auto" may iterate
    deblur.reconstruct(G, PSF, 1e-3, method=method, boundary=boundary, noise=0.1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        *(({"img": x * ONES}, ValueError, word) for x, word in ((np.nan, "NaN"), (-np.inf, "infinite"))),
        ({"img": np.zeros((0, 8))}, ValueError, "empty"),
        ({"img": np.zeros(8)}, ValueError, "rows"),
        *(({"img": np.zeros(sides)}, ValueError, "channel_axis") for sides in ((2, 8, 8, 3), (3, 8, 3), (8, 4, 4))),
        ({"img": np.full((8, 8), "a")}, TypeError, "dtype"),
        ({"lam": -1e-3}, ValueError, "not negative"),
        ({"lam": np.nan}, ValueError, "finite"),
        ({"lam": "best"}, ValueError, "gcv"),
        ({"lam": None}, TypeError, "number"),
        ({"method": "magic"}, ValueError, "cholesky"),
        ({"method": ["tv"]}, ValueError, r"unknown method \['tv'\]"),
        ({"dtype": ["f4"]}, TypeError, "dtype must be 'float32' or 'float64'"),
        ({"boundary": "mirror"}, ValueError, "reflect"),
        ({"formula": "wiener"}, ValueError, "tikhonov"),
        ({"prior": "flat"}, ValueError, "smooth"),
        ({"psf": np.ones((13, 13))}, ValueError, "larger than the image"),
        ({"psf": np.zeros((3, 3))}, ValueError, "zero everywhere"),
        ({"psf": np.ones(3)}, ValueError, "1-D PSF"),
        ({"img": 1e60 * ONES, "dtype": "float32"}, ValueError, "float32 cannot hold values of size 1e.60"),
        ({"img": 1e-61 * ONES, "dtype": "float32"}, ValueError, "float32 cannot hold values of size 1e-61"),
        ({"psf": [[1, 2], [3]]}, ValueError, "psf is not an array: its parts differ in length"),
        ({"mask": [[1, 2], [3]]}, ValueError, "mask is not an array"),
        ({"channel_axis": 5}, ValueError, "channel_axis"),
        ({"max_iterations": 0}, ValueError, "max_iterations"),
        *(({name: -1}, ValueError, name) for name in ("noise", "background")),
        ({"origin": (3, 3)}, ValueError, "origin"),
        ({"rtol": "small"}, (TypeError, ValueError), "rtol must lie between 0 and 1, not 'small'"),
        ({"max_iterations": np.inf}, (TypeError, ValueError), "positive whole number, not inf"),
        ({"noise": "low"}, (TypeError, ValueError), "noise.* must be a finite number >= 0, not 'low'"),
        ({"background": [0, 1]}, ValueError, r"background must be a finite number >= 0, not \[0, 1\]"),
        ({"formula": "hht", "psf": [[1.0, 2, 4]], "lam": "gcv", "boundary": "zero"}, ValueError, "number"),
        ({"mask": ONES > 0}, ValueError, "hidden by the mask"),
        ({"weights": 0 * ONES}, ValueError, "hidden by the weights"),
        ({"mask": "yes"}, ValueError, "auto"),
        *(({"mask": mask}, ValueError, "boolean") for mask in (0.5 * ONES, 2 * ONES.astype(int))),
        *(({k: v}, ValueError, "shape") for k, v in {"mask": ONES[:3] > 0, "weights": ONES[:, :5]}.items()),
        ({"weights": -ONES}, ValueError, "below zero"),
        ({"weights": np.nan * ONES}, ValueError, "finite"),
        *(({"bounds": pair}, ValueError, "cross") for pair in ((1, 0), (1, 1), (np.nan, 1))),
        ({"bounds": "positive"}, ValueError, "nonnegative"),
        ({"bounds": 3}, TypeError, "pair"),
        ({"data": "cauchy"}, ValueError, "poisson"),
        ({"data": "poisson", "img": -ONES}, ValueError, "below zero"),
        ({"data": "huber", "delta": 0}, ValueError, "delta"),
        ({"delta": 0.1}, ValueError, "huber"),
        ({"denoiser": lambda x: x}, TypeError, r"denoiser, .* takes \(image, sigma\), not one that takes \(x\)"),
        ({"denoiser": lambda x, s: x[1:]}, ValueError, "shape"),
        ({"denoiser": lambda x, s: x * np.nan}, ValueError, "NaN"),
        ({"method": "tv", "lam": "GCV"}, ValueError, "unknown rule .*did you mean gcv.$"),
        ({"method": "tv", "lam": "lcurve"}, ValueError, "linear formula"),
    ],
)
def test_bad_options(changes, error, message):
    refused(error, message, deblur.reconstruct, **{"img": ONES, "psf": PSF, "lam": 1e-2, **changes})


def test_numbers_of_any_kind_are_numbers():
    options = {"method": "tv", "boundary": "zero", "check": False}
    plain = deblur.solve(G, PSF, 1e-3, max_iterations=3, **options)
    assert np.array_equal(plain.image, deblur.solve(G, PSF, 1e-3, max_iterations=np.array(3.0), **options).image)
    assert deblur.image.as_float(0) == 0
