"""``outlive work run``: a command for each job, of a store and of a server."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import wait_until

COMMAND = (
    "import json, os, pathlib, sys\n"
    "payload = json.load(sys.stdin)\n"
    "names = ('ID', 'ATTEMPT', 'TOKEN')\n"
    "about = [os.environ[f'OUTLIVE_JOB_{name}'] for name in names]\n"
    "pathlib.Path('ran').open('a').write(json.dumps([payload, *about]) + '\\n')\n"
    "sys.exit(payload['status'])\n"
)


def lines(folder: Path) -> list[str]:
    path = folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


def test_each_job_is_a_command_whose_status_decides(outlive, shell):
    shell("migrate")
    common = ("--retention", "60", "--max-attempts", "2", "--retry", '{"first": 0}')
    shell("work", "enqueue", "q", '{"status": 0}', "--id", "good", *common)
    shell("work", "enqueue", "q", '{"status": 3}', "--id", "bad", *common)
    worker = outlive.start("work", "run", "q", "--", sys.executable, "-c", COMMAND)

    def state(job: str) -> str:
        return shell("work", "show", job, "--json").document["state"]

    wait_until(lambda: (state("good"), state("bad")) == ("done", "dead"))
    ran = [json.loads(line)[:3] for line in lines(outlive.folder)]
    assert sorted(ran, key=str) == [
        [{"status": 0}, "good", "1"],
        [{"status": 3}, "bad", "1"],
        [{"status": 3}, "bad", "2"],
    ]
    assert "exit status 3" in shell("work", "show", "bad").stdout
    worker.send_signal(signal.SIGTERM)
    assert outlive.finish(worker).code == 0


def test_a_command_that_is_told_to_stop_is_ended_and_its_job_released(outlive, shell):
    shell("migrate")
    shell("work", "enqueue", "q", "1", "--id", "slow")
    script = "echo $$ > pid; exec sleep 600"
    worker = outlive.start("work", "run", "q", "--grace", "0", "--", "sh", "-c", script)
    path = outlive.folder / "pid"
    wait_until(lambda: path.exists() and bool(path.read_text()))
    worker.send_signal(signal.SIGTERM)
    assert outlive.finish(worker).code == 0
    assert not Path(f"/proc/{path.read_text().strip()}").exists()
    assert shell("work", "show", "slow", "--json").document["state"] == "ready"


def test_a_command_that_cannot_be_started_is_named(outlive, shell):
    shell("migrate")
    shell("work", "enqueue", "q", "1", "--id", "j", "--max-attempts", "1", "--retention", "60")
    worker = outlive.start("work", "run", "q", "--", "no-such-command")
    wait_until(lambda: shell("work", "show", "j", "--json").document["state"] == "dead")
    assert "'no-such-command' cannot be started" in shell("work", "show", "j").stdout
    worker.send_signal(signal.SIGTERM)
    assert outlive.finish(worker).code == 0


@pytest.mark.parametrize("status", [0, 4])
def test_jobs_of_a_server_are_run_as_well(outlive, shell, status):
    shell("migrate")
    shell(
        *("work", "enqueue", "q", f'{{"status": {status}}}', "--id", "j"),
        *("--retention", "60", "--max-attempts", "1"),
    )
    server = outlive.start("serve", "--port", "0")
    assert server.stderr is not None
    address = None
    for line in server.stderr:
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        if address is not None:
            break
    assert address is not None
    command = (sys.executable, "-c", COMMAND)
    worker = outlive.start("work", "run", "q", "--url", address[0], "--", *command)
    wanted = "done" if status == 0 else "dead"
    wait_until(lambda: shell("work", "show", "j", "--json").document["state"] == wanted)
    assert len(lines(outlive.folder)) == 1
    for process, code in ((worker, 0), (server, 143)):
        process.send_signal(signal.SIGTERM)
        assert outlive.finish(process).code == code
