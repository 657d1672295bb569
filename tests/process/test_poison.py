"""A job that kills each host that runs it dies alone, as an operator sees it from the command line.

A supervisor restarts ``outlive worker`` whenever it dies. The jobs beside the poisonous one are run
to their ends, and nothing but the poisonous one becomes a dead letter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.process

COMMAND = (sys.executable, "-m", "outlive.cli.main")

# What a supervisor restarts. The innocent ones take longer than the host lives beside the poison.
APP = """
import asyncio
import os

import outlive

app = outlive.App("inn")


@app.handler("poison")
async def poison(payload):
    await asyncio.sleep(0.1)
    os._exit(9)


@app.handler("ok")
async def ok(payload):
    await asyncio.sleep(0.4)
"""

RESTARTS_MAX = 16

# A start on a busy machine, and the time until the claims of the one before are free.
PATIENCE_S = 60


def test_a_job_that_kills_its_host_takes_no_neighbour_along(tmp_path):
    (tmp_path / "inn.py").write_text(APP)
    url = f"sqlite:///{tmp_path}/inn.db"
    environ = {**os.environ, "OUTLIVE_URL": url}

    def run(*arguments: str) -> str:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        ).stdout

    def ended() -> dict[str, str]:
        jobs = json.loads(run("work", "ls", "--output", "json"))["jobs"]
        return {job["id"]: job["state"] for job in jobs if job["ended_at"]}

    run("migrate")
    run("work", "enqueue", "poison", "1", "--id", "poison")
    for number in range(3):
        run("work", "enqueue", "ok", str(number), "--id", f"ok{number}")
    errors = ""
    for _ in range(RESTARTS_MAX):
        worker = subprocess.Popen(
            [*COMMAND, "worker", "inn:app", "--session-ttl", "1"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        patience = time.monotonic() + PATIENCE_S
        try:
            while worker.poll() is None and len(ended()) < 4:
                assert time.monotonic() < patience, "a worker neither died nor ended the jobs"
        finally:
            worker.terminate()
            errors += worker.communicate(timeout=PATIENCE_S)[1]
        if len(ended()) == 4:
            break
    assert ended() == {"poison": "dead", "ok0": "done", "ok1": "done", "ok2": "done"}
    (dead,) = json.loads(run("work", "dead", "--output", "json"))["jobs"]
    assert dead["reason"].startswith("lost too often: losses 11, max_losses 10, last host ")
    assert f"job poison of queue 'poison' is dead: {dead['reason']}" in errors
