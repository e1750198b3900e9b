"""The progress line: every phase is told, it moves while the work stands still, and a pipe sees nothing."""

import io
import sys
import time

import numpy as np
import pytest

import deblur
from deblur import terminal
from deblur.progress import listening, tell


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_road_tells_its_phases_with_the_time_left(rng, monkeypatch):
    monkeypatch.setattr("deblur.methods.TOGETHER", 1)
    told = []
    with listening(told.append):
        deblur.solve(rng.random((40, 44, 3), np.float32), deblur.psf.motion(5, 30))
    tell("nobody hears this")
    assert [p.phase for p in told] == [
        "boundary",
        "λ",
        "set-up",
        "solve 1 of 3",
        "solve 2 of 3",
        "solve 3 of 3",
    ]
    assert all(p.left >= 0 for p in told if p.phase not in ("boundary", "set-up"))


def test_the_first_phase_foretells_all_of_it(rng):
    told, options = [], {"boundary": "unknown", "method": "pcg"}
    h = deblur.psf.motion(5, 30)
    with listening(told.append):
        deblur.solve(rng.random((40, 44), np.float32), h, **options)
    assert [p.phase for p in told] == ["begin", "λ", "set-up", "solve"]
    lefts = [p.left for p in told]
    assert lefts[0] >= lefts[1] > lefts[2] > 0
    restore = deblur.Deblurrer(h, (40, 44), 0.01, **options)
    restore(rng.random((40, 44)))
    told.clear()
    with listening(told.append):
        restore(rng.random((40, 44)))
    assert [p.phase for p in told] == ["solve"]  # all is set up


def test_the_line_moves_though_the_work_says_nothing_and_goes_when_it_is_done(monkeypatch):
    line = Terminal()
    monkeypatch.setattr(sys, "stderr", line)
    monkeypatch.setattr(terminal, "_REDRAWN", 0.02)
    with terminal.progress("deblur", True) as shown:
        shown.phase("reading")
        tell("solve", 100.0)
        shown.iterated(3, 1e-3)
        before = time.monotonic()
        while line.getvalue().count("solve") < 3 and time.monotonic() < before + 20:
            time.sleep(0.02)
    said = line.getvalue()
    assert said.count("deblur: solve") >= 3
    assert "s left, 3 iterations, residual 1.0e-03" in said
    assert said.split("\r")[-1].strip() == ""  # nothing is left of it


@pytest.mark.parametrize("enabled", [True, False])
def test_where_there_is_no_terminal_there_is_no_line(enabled, monkeypatch):
    line = io.StringIO() if enabled else Terminal()
    monkeypatch.setattr(sys, "stderr", line)
    with terminal.progress("deblur", enabled) as shown:
        shown.phase("reading")
        tell("solve", 1.0)
        time.sleep(0.05)
    assert shown.iterated is None
    assert line.getvalue() == ""
