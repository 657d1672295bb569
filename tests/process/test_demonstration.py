"""``make demo``: what it shows really happens, and nothing it started is left."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


@pytest.mark.timeout(60)
def test_the_demonstration_tells_what_happened(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "outlive.demo"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert done.stderr == ""
    # One winner, a successor after the crash, another after the stall; tokens grow.
    assert re.findall(r"with (?:fencing )?token (\d+)\n", said)[:3] == ["1", "2", "3"]
    assert "refused by its own handle" in said
    assert "refused by the database" in said
    taken_over = re.findall(r"took job \d+ over after ([\d.]+) s", said)
    assert taken_over, "a worker was killed in mid-job, so that somebody took over"
    assert "24 jobs enqueued, 24 done" in said
    assert "0 missing" in said
    # The flow goes on with the step in which its host was killed, under a newer token.
    (killed, token), *_ = re.findall(r"(\S+) +runs step pack, with token (\d+)", said)
    taken = re.search(
        r"(\S+) +took the flow over after [\d.]+ s, with token (\d+), and begins with step pack",
        said,
    )
    assert taken is not None
    assert taken[1] != killed
    assert int(taken[2]) > int(token)
    assert (
        f"reserve on {killed}, charge on {killed}, pack on {taken[1]}, ship on {taken[1]}" in said
    )
    assert "4 steps ended, each recorded once; 0 of the ended" in said
    assert "Stale writes that reached the table: 0" in said
    assert list(tmp_path.iterdir()) == []
