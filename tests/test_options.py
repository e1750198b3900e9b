"""The one list of options: seen by signatures, checkers and the command line; unknown names are refused."""

import inspect

import numpy as np
import pytest

import deblur
from deblur import cli
from deblur.methods import METHODS
from deblur.options import Options, defaults

G = np.full((8, 8), 0.5)
PSF = np.ones((3, 3)) / 9


@pytest.mark.parametrize("call", [deblur.reconstruct, deblur.solve, deblur.Deblurrer])
def test_a_signature_names_every_option_with_its_default(call):
    parameters = inspect.signature(call).parameters
    shown = {name: p.default for name, p in parameters.items() if name in defaults()}
    assert shown == defaults()
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults())
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def test_every_option_is_documented_where_people_look():
    for call in (deblur.reconstruct, deblur.Deblurrer):
        text = inspect.getdoc(call)
        assert "{options}" not in text
        for name in defaults():
            assert any(line.split(" : ")[0].split(", ").count(name) for line in text.splitlines()), name


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: deblur.reconstruct(G, PSF, 1e-3, **o),
        lambda **o: deblur.solve(G, PSF, 1e-3, **o),
        lambda **o: deblur.Deblurrer(PSF, (8, 8), 1e-3, **o),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(call):
    with pytest.raises(TypeError, match="'bounday'.*did you mean boundary"):
        call(bounday="zero")
    with pytest.raises(TypeError, match="'zzz'.*there are method, boundary"):
        call(zzz=1)


def test_the_command_line_takes_every_option_that_text_can_give():
    parser = cli._parser()
    given = vars(parser.parse_args(["reconstruct", "in.png", "-o", "out.png", "--psf", "box:3"]))
    rows = set(defaults()) & set(given)
    assert rows == set(defaults()) - {"origin", "inverse", "callback", "weights", "delta", "psfs"}
    # What is not said on the command line is what the call does by itself.
    assert {name: given[name] for name in rows} == {name: defaults()[name] for name in rows}


def test_the_list_is_what_a_type_checker_reads():
    assert set(Options.__annotations__) == set(defaults())
    assert Options.__total__ is False


@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if not m.iterative])
def test_options_that_a_direct_method_would_not_look_at_are_errors(method):
    boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
    for idle in ({"rtol": 1e-3}, {"max_iterations": 5}):
        (name,) = idle
        with pytest.raises(deblur.MethodError, match=f"{method}.*does not iterate: {name}=.*leave it out"):
            deblur.reconstruct(G, PSF, 1e-3, method=method, boundary=boundary, **idle)
        deblur.reconstruct(G, PSF, 0.1, **idle, boundary=boundary)  # auto may iterate
        deblur.reconstruct(G, PSF, 1e-3, method=method, boundary=boundary, noise=0.1)  # a fact, not an order


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"rtol": "small"}, "rtol must lie between 0 and 1, not 'small'"),
        ({"max_iterations": "many"}, "positive whole number, not 'many'"),
        ({"max_iterations": np.inf}, "positive whole number, not inf"),
        ({"noise": "low"}, "noise.* must be a finite number >= 0, not 'low'"),
        ({"background": [0, 1]}, r"background must be a finite number >= 0, not \[0, 1\]"),
        ({"callback": 3}, "callback must be a function.*not 3"),
    ],
)
def test_what_is_no_number_and_no_function_is_told_so(option, error):
    with pytest.raises((TypeError, ValueError), match=error):
        deblur.reconstruct(G, PSF, 1e-3, **option)
