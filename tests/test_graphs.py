"""Which work is asked for as a CUDA graph. What a graph then does needs a GPU: see test_graphs_gpu.py."""

from types import SimpleNamespace

import numpy as np
import pytest

from deblur import graphs


@pytest.fixture
def asked(monkeypatch):
    """The keys that a graph was looked for under; there is none."""
    names = []
    monkeypatch.setattr(graphs, "_memory", lambda device: 1 << 30)
    monkeypatch.setattr(graphs, "_taken", lambda key, like, work: names.append(key[0]))
    return names


def array(n):
    return SimpleNamespace(shape=(n,), dtype=np.dtype("f4"), nbytes=4 * n, device=SimpleNamespace(id=0))


def test_a_part_is_not_captured_beside_the_whole(asked):
    with graphs.replay("whole", len, array(9)), graphs.replay("part", len, array(9)) as graph:
        assert graph is None
    with pytest.raises(ZeroDivisionError), graphs.replay("whole", len, array(9)):
        raise ZeroDivisionError
    with graphs.replay("part", len, array(9)):  # by itself it may be
        pass
    assert asked == ["whole", "whole", "part"]


def test_a_part_may_be_captured_where_the_whole_is_too_large(asked):
    with graphs.replay("whole", len, array(1 << 28)), graphs.replay("part", len, array(9)):
        pass
    assert asked == ["part"]
