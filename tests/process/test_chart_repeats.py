"""The orchestrator's own tests, a hundred times in a row: none may depend on luck."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

TIMES = 100


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(3600)
def test_the_tests_of_the_orchestrator_pass_a_hundred_times_in_a_row():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/unit/charts/orchestrator"]
    for number in range(TIMES):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "OUTLIVE_SOAK": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"time {number + 1}: {done.stdout[-4000:]}"
