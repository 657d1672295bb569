"""Calls in threads: made once, or certainly not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlive.runtime.threads import awaited_in, call_in

ANSWER_S = 5.0


class Scarce(ThreadPoolExecutor):
    """A pool that gets no thread when ``full``, and keeps what it was given, as Python's does."""

    def submit(self, fn, /, *args, **kwargs):
        queued = super().submit(fn, *args, **kwargs)
        if self.full:
            raise RuntimeError("can't start new thread")
        return queued

    full = False


def test_a_call_returns_and_raises():
    with ThreadPoolExecutor(1) as pool:
        assert call_in(pool, lambda: 1).result(ANSWER_S) == 1
        with pytest.raises(ZeroDivisionError):
            call_in(pool, lambda: 1 // 0).result(ANSWER_S)


def test_a_call_that_was_refused_is_not_made_when_a_thread_is_free():
    made, go = [], threading.Event()
    with Scarce(1) as pool:
        first = call_in(pool, lambda: go.wait(ANSWER_S))
        pool.full = True
        with pytest.raises(RuntimeError, match="new thread"):
            call_in(pool, lambda: made.append(1))
        pool.full = False
        go.set()
        assert first.result(ANSWER_S)
        # One thread makes them in order: this one comes after what was refused.
        call_in(pool, lambda: made.append(2)).result(ANSWER_S)
    assert made == [2]


def test_a_call_that_a_thread_has_is_heard_of_though_it_was_refused():
    begun, go = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        go.wait(ANSWER_S)
        return 1

    class Late(Scarce):
        def submit(self, fn, /, *args, **kwargs):
            ThreadPoolExecutor.submit(self, fn, *args, **kwargs)
            assert begun.wait(ANSWER_S)
            raise RuntimeError("can't start new thread")

    with Late(1) as pool:
        working = call_in(pool, slow)
        go.set()
        assert working.result(ANSWER_S) == 1


def test_a_call_that_the_pool_drops_is_cancelled():
    go = threading.Event()
    pool = ThreadPoolExecutor(1)
    call_in(pool, lambda: go.wait(ANSWER_S))
    waiting = call_in(pool, lambda: 1)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    go.set()


async def test_a_call_that_stops_an_iteration_does_not_keep_its_caller_waiting():
    with ThreadPoolExecutor(1) as pool:
        async with asyncio.timeout(ANSWER_S):
            with pytest.raises(RuntimeError, match="StopIteration") as caught:
                await awaited_in(pool, lambda: next(iter([])))
    assert isinstance(caught.value.__cause__, StopIteration)
