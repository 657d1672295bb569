"""Where a thread is, as the watchdog tells it."""

from __future__ import annotations

import threading

from outlive.runtime.runtime import Runtime


def test_the_stack_of_a_thread_is_told_by_files_and_functions():
    stack = Runtime().stack_of(threading.get_ident())
    assert "in test_the_stack_of_a_thread_is_told_by_files_and_functions" in stack


def test_the_stack_of_one_thread_among_many_is_told():
    over = threading.Event()
    others = [threading.Thread(target=over.wait) for _ in range(150)]
    for each in others:
        each.start()
    try:
        stack = Runtime().stack_of(threading.get_ident())
    finally:
        over.set()
        for each in others:
            each.join()
    assert "test_the_stack_of_one_thread_among_many_is_told" in stack
