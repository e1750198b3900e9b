"""The progress line: it shows every phase, moves during long steps, and is silent in a pipe."""

import io
import sys
import time

import numpy as np
import pytest

import deblur
from deblur import terminal
from deblur.progress import listening, report_phase


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_pipeline_reports_its_phases_with_the_time_left(rng, monkeypatch):
    monkeypatch.setattr("deblur.methods.TOGETHER", 1)
    events = []
    with listening(events.append):
        deblur.solve(rng.random((40, 44, 3), np.float32), deblur.psf.motion(5, 30))
    report_phase("without a listener")
    assert [p.phase for p in events] == [
        "boundary",
        "λ",
        "set-up",
        "solve 1 of 3",
        "solve 2 of 3",
        "solve 3 of 3",
    ]
    assert all(p.left >= 0 for p in events if p.phase not in ("boundary", "set-up"))


def test_the_first_phase_predicts_the_whole_call(rng):
    events, options = [], {"boundary": "unknown", "method": "pcg"}
    h = deblur.psf.motion(5, 30)
    with listening(events.append):
        deblur.solve(rng.random((40, 44), np.float32), h, **options)
    assert [p.phase for p in events] == ["begin", "λ", "set-up", "solve"]
    lefts = [p.left for p in events]
    assert lefts[0] >= lefts[1] >= lefts[2] > 0
    restore = deblur.Deblurrer(h, (40, 44), 0.01, **options)
    restore(rng.random((40, 44)))
    events.clear()
    with listening(events.append):
        restore(rng.random((40, 44)))
    assert [p.phase for p in events] == ["solve"]  # all is set up


def test_the_line_moves_without_reports_and_is_cleared_at_the_end(monkeypatch):
    line = Terminal()
    monkeypatch.setattr(sys, "stderr", line)
    with terminal.progress("deblur", True) as show:
        report_phase("solve", 100.0)
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
        report_phase("solve", 1.0)
        time.sleep(0.05)
    assert show is None
    assert terminal.iterations(show) is None
    assert stderr.getvalue() == ""
