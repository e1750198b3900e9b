"""Threads of the transforms and of BLAS."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import scipy.fft
from threadpoolctl import threadpool_info, threadpool_limits

from deblur.threads import all_cores, symmetric_products


@pytest.mark.parametrize(("granted", "used"), [("1", 1), ("3", 3), ("", None), ("0", None), ("4,2", None)])
def test_transforms_use_the_threads_of_the_environment(monkeypatch, granted, used):
    with scipy.fft.set_workers(-1):
        every = scipy.fft.get_workers()
    monkeypatch.setenv("OMP_NUM_THREADS", granted)
    with all_cores():
        assert scipy.fft.get_workers() == (used or every)
    assert scipy.fft.get_workers() == 1


def test_the_number_of_threads_set_by_the_caller_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with scipy.fft.set_workers(2), all_cores():
        assert scipy.fft.get_workers() == 2


def test_products_of_matrices_have_one_thread_while_anyone_is_inside():
    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(3, user_api="blas"), ThreadPoolExecutor(1) as other:
        first, second = all_cores(), all_cores()
        other.submit(first.__enter__).result()
        assert threads() == {1}
        second.__enter__()
        other.submit(first.__exit__, None, None, None).result()  # this thread is still inside
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {3}


@pytest.mark.parametrize(("n", "itemsize", "threads"), [(8192, 8, 2), (11_000, 8, 2), (12_000, 8, 1), (12_000, 4, 2)])
def test_long_symmetric_products_have_one_thread(n, itemsize, threads):
    with threadpool_limits(2, "blas"), symmetric_products(n, itemsize):
        assert {pool["num_threads"] for pool in threadpool_info()} == {threads}
