"""The progress line: it shows every phase, moves during long steps, and is silent in a pipe."""

import io
import sys
import time

import numpy as np
import pytest
from refusals import refused

import deblur
from deblur import terminal
from deblur.problem import Problem
from deblur.progress import listening, report_phase


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_pipeline_reports_its_phases(rng, monkeypatch):
    monkeypatch.setattr("deblur.methods.TOGETHER", 1)
    events = []
    with listening(events.append):
        deblur.solve(rng.random((40, 44, 3), np.float32), deblur.psf.motion(5, 30))
    report_phase("without a listener")
    assert events == ["boundary", "λ", "set-up", "solve 1 of 3", "solve 2 of 3", "solve 3 of 3"]
    events.clear()
    restore = deblur.Deblurrer(deblur.psf.motion(5, 30), (40, 44), 0.01, boundary="unknown", method="pcg")
    with listening(events.append):
        restore(rng.random((40, 44)))
        restore(rng.random((40, 44)))
    assert events == ["begin", "set-up", "solve", "solve"]  # of the second image all is set up


def test_the_line_moves_without_reports_and_is_cleared_at_the_end(monkeypatch):
    line = Terminal()
    monkeypatch.setattr(sys, "stderr", line)
    with terminal.progress("deblur", True) as show:
        report_phase("solve")
        terminal.iterations(show)(3, 1e-3)
        before = time.monotonic()
        while line.getvalue().count("deblur: solve") < 3 and time.monotonic() < before + 20:
            time.sleep(0.02)
    said = line.getvalue()
    assert said.count("deblur: solve") >= 3
    assert "3 iterations, residual 1.0e-03" in said
    assert said.split("\r")[-1].strip() == ""  # nothing is left of it


def test_parts_of_the_work_are_counted(monkeypatch):
    line = Terminal()
    monkeypatch.setattr(sys, "stderr", line)
    with terminal.progress("compare", True) as show:
        show(2, 5, "camera")
        before = time.monotonic()
        while "2/5" not in line.getvalue() and time.monotonic() < before + 20:
            time.sleep(0.02)
    assert "40%" in line.getvalue()
    assert "camera" in line.getvalue()


@pytest.mark.parametrize("stderr", [io.StringIO(), Terminal()], ids=["pipe", "quiet"])
def test_without_a_terminal_there_is_no_line(stderr, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr)
    with terminal.progress("deblur", not stderr.isatty()) as show:
        report_phase("solve")
        time.sleep(0.05)
    assert show is None
    assert terminal.iterations(show) is None
    assert stderr.getvalue() == ""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda f: deblur.solve(np.eye(9), np.ones((3, 3)), 1e-3, method="pcg", callback=f), "callback"),
        (lambda f: deblur.linalg.gauss_seidel(np.eye(3), np.ones(3), callback=f), "callback"),
        (lambda f: deblur.posterior_std(Problem(deblur.Blur(np.ones((3, 3)), (9, 9)), 1.0), callback=f), "callback"),
        (lambda f: deblur.psf.from_blurred(np.eye(32), 5, progress=f), "progress"),
        (lambda f: deblur.tiles.stream(np.eye(9), "never.zarr", np.ones((3, 3)), progress=f), "progress"),
        (lambda f: deblur.compare.run("camera64", progress=f), "progress"),
    ],
)
def test_a_listener_of_another_number_of_values_is_refused_before_work(call, name):
    for wrong in (lambda: None, lambda a, b, c, d: None, "print"):
        refused(TypeError, f"{name} must be a function that takes .* not ", call, wrong)
