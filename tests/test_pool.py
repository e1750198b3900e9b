"""The cache of a device: one budget, the least recently used entry goes first."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deblur.pool import SMALLEST, Pool, holding


@pytest.fixture
def cache():
    """Room for three of the smallest entries."""
    pool = Pool(None)
    pool.budget = 3 * SMALLEST
    return pool


def test_a_value_is_made_once_for_all_threads(cache):
    made = []

    def make():
        made.append(threading.get_ident())
        return object()

    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda _: cache.get("key", make, 1), range(64)))
    assert len(made) == 1
    assert len(set(map(id, values))) == 1


def test_the_least_recently_used_entry_is_dropped(cache):
    for key in "abc":
        cache.get(key, key.upper, 1)
    cache.get("a", lambda: "not made again", 1)
    cache.get("d", lambda: "D", 1)
    assert cache.nbytes == cache.budget
    assert cache.get("a", lambda: "lost", 1) == "A"
    assert cache.get("b", lambda: "made again", 1) == "made again"


def test_an_entry_larger_than_the_budget_stays_until_the_next_is_made(cache):
    cache.get("large", lambda: "first", 10 * SMALLEST)
    assert cache.get("large", lambda: "second", 10 * SMALLEST) == "first"
    cache.get("small", lambda: "small", 1)
    assert cache.nbytes == SMALLEST


def test_a_lent_value_is_used_by_one_at_a_time(cache):
    with cache.lend("key", object, 1) as first, cache.lend("key", object, 1) as second:
        assert first is not second
        assert cache.nbytes == 0
    with cache.lend("key", object, 1) as again:
        assert again in (first, second)


def test_a_lent_value_larger_than_the_budget_is_not_kept(cache):
    with cache.lend("key", object, 10 * SMALLEST):
        pass
    assert cache.nbytes == 0
    assert cache.take("key") is None


def test_without_memory_the_cache_is_emptied_and_the_value_made_again(cache):
    cache.get("old", lambda: "old", 1)

    calls = []

    def make():
        calls.append(cache.nbytes)
        if len(calls) == 1:
            raise MemoryError
        return "made"

    assert cache.get("new", make, 1) == "made"
    assert calls == [SMALLEST, 0]
    assert cache.nbytes == SMALLEST


def test_a_failed_make_leaves_nothing(cache):
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 / 0, 1)
    assert cache.get("key", lambda: "made", 1) == "made"


def test_a_graph_can_hold_what_it_was_captured_with(cache):
    cache.get("before", object, 1)
    with holding() as held:
        value = cache.get("inside", object, 1)
    cache.get("after", object, 1)
    assert held == [value]
