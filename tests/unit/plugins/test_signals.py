"""Programs that tests start hear signals, also when the run was told to ignore them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_program_hears(number):
    raising = "import signal; signal.raise_signal({})".format(int(number))
    done = subprocess.run([sys.executable, "-c", raising], stderr=subprocess.DEVNULL)
    assert done.returncode == -number
"""


def deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.process
def test_a_run_that_ignores_signals_starts_programs_that_hear_them(tmp_path):
    (tmp_path / "test_it.py").write_text(PROGRAM)
    root = Path(__file__).parents[3]
    plugins = ("-p", "tests.plugins.signals", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, *plugins, tmp_path],
        env={**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        preexec_fn=deaf,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
