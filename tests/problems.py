"""Problems of the variational methods in one flat call, and their solutions, for the tests of the solvers."""

import dataclasses

from deblur.device import Device
from deblur.problem import Problem
from deblur.solvers import admm, collaborative, plug_and_play, quadratic
from deblur.terms import is_quadratic

_FIT = {"data": "name", "background": "background", "delta": "delta", "weights": "weights"}
_STOP = ("rtol", "max_iterations", "callback")


def problem_of(operator, penalty, lam=0.0, **options):
    """The problem; `options` may also be fields of its fit (`data` is its name) and of its stop, or `xp`."""
    return changed(Problem(operator, lam, penalty), **options)


def changed(problem, **options):
    """The problem with other options."""
    if "xp" in options:
        options["device"] = Device.of(options.pop("xp").zeros(1))
    fit = {_FIT[name]: options.pop(name) for name in list(options) if name in _FIT}
    stop = {name: options.pop(name) for name in list(options) if name in _STOP}
    return dataclasses.replace(
        problem,
        fit=dataclasses.replace(problem.fit, **fit),
        stop=dataclasses.replace(problem.stop, **stop),
        **options,
    )


def solve(problem, g, start=None, solver=None):
    """The solution by `solver`, or by the module that the penalty's method has."""
    if solver is None:
        others = {"denoiser": plug_and_play, "patches": collaborative}
        solver = quadratic if is_quadratic(problem.penalty) else others.get(problem.penalty, admm)
    return solver.prepare(problem).solve(g, start)
