"""Lets a test interrupt what it starts, however the run itself was started.

Under ``nohup``, and as a background job of a script, a run is told to ignore signals, and every
program that it starts would ignore them as well. Owns SIGINT and SIGHUP from the start of a run.
"""

from __future__ import annotations

import signal

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
