"""Where a thread is, as the watchdog tells it."""

from __future__ import annotations

import tempfile
import threading

import pytest

from outlive.runtime.runtime import Runtime


def test_the_stack_of_a_thread_is_told_by_files_and_functions():
    stack = Runtime().stack_of(threading.get_ident())
    assert "in test_the_stack_of_a_thread_is_told_by_files_and_functions" in stack


def test_a_machine_without_a_folder_for_temporary_files_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
):
    # Whoever asks is about to tell the log that something is blocked.
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert "not known" in Runtime().stack_of(threading.get_ident())
