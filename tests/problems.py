"""Problems of the variational methods in one flat call, their solutions, and solutions that are spoiled."""

import dataclasses

from deblur.device import Device
from deblur.problem import Problem
from deblur.solvers import admm, collaborative, plug_and_play, quadratic
from deblur.terms import is_quadratic

_FIDELITY = {"data": "name", "background": "background", "delta": "delta", "weights": "weights"}
_STOP = ("rtol", "max_iterations", "callback", "consensus")


def problem_of(operator, regularizer, lam=0.0, **options):
    """The problem; `options` may also be fields of its data fidelity (`data` is its name) and of its stop, or `xp`."""
    return changed(Problem(operator, lam, regularizer), **options)


def changed(problem, **options):
    """The problem with other options."""
    if "xp" in options:
        options["device"] = Device.of(options.pop("xp").zeros(1))
    fidelity = {_FIDELITY[name]: options.pop(name) for name in list(options) if name in _FIDELITY}
    stop = {name: options.pop(name) for name in list(options) if name in _STOP}
    return dataclasses.replace(
        problem,
        fidelity=dataclasses.replace(problem.fidelity, **fidelity),
        stop=dataclasses.replace(problem.stop, **stop),
        **options,
    )


def solve(problem, g, start=None, solver=None):
    """The solution by `solver`, or by the module that the regularizer's method has."""
    if solver is None:
        others = {"denoiser": plug_and_play, "patches": collaborative}
        solver = quadratic if is_quadratic(problem.regularizer) else others.get(problem.regularizer, admm)
    return solver.prepare(problem).solve(g, start)


class Spoiled:
    """A factor whose solutions are changed by `change`."""

    def __init__(self, factor, change):
        self.factor, self.change = factor, change

    def solve(self, g, start=None):
        solution = self.factor.solve(g, start)
        return dataclasses.replace(solution, scene=self.change(solution.scene))
