"""Which work is captured as a CUDA graph. What a graph then does needs a GPU: see test_graphs_gpu.py."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from deblur import graphs


@pytest.fixture
def wanted(monkeypatch):
    """The names of the requested graphs; none is cached."""
    names = []
    cache = SimpleNamespace(budget=1 << 30, take=lambda key: names.append(key[1]))
    monkeypatch.setattr(graphs, "pool", lambda gpu: cache)
    yield names
    graphs.forget()


def array(n):
    return SimpleNamespace(shape=(n,), dtype=np.dtype("f4"), nbytes=4 * n, device=SimpleNamespace(id=0))


def test_a_part_of_captured_work_is_not_captured_again(wanted):
    with graphs.replay("whole", len, array(9)), graphs.replay("part", len, array(9)) as graph:
        assert graph is None
    with graphs.replay("part", len, array(9)):  # by itself it may be
        pass
    assert wanted == ["whole", "part"]


def test_after_an_error_work_may_be_captured_again(wanted):
    with pytest.raises(ZeroDivisionError), graphs.replay("whole", len, array(9)):
        raise ZeroDivisionError
    with graphs.replay("part", len, array(9)):
        pass
    assert wanted == ["whole", "part"]


def test_a_part_may_be_captured_where_the_whole_is_too_large(wanted):
    with graphs.replay("whole", len, array(1 << 28)), graphs.replay("part", len, array(9)):
        pass
    assert wanted == ["part"]


def test_what_outlives_the_names_of_the_module_ends_silently():
    text = "import os; from deblur import graphs as g; kept = [c.__new__(c) for c in (g.Loop, g.CachedGraph)];"
    text += "kept[0]._place = kept[1]._exec = 1; os.kept = g, kept"  # modules imported early end last
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
