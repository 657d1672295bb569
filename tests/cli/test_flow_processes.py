"""Flows and real processes: a worker that serves them, a watch that sees them end, a death."""

from __future__ import annotations

import re
import signal
from datetime import datetime

import pytest

from tests.cli.conftest import wait_until
from tests.cli.flow_apps import Shop


@pytest.fixture
def shop(outlive):
    return Shop(outlive.folder, outlive.url)


def test_a_worker_serves_flows_and_a_watch_sees_one_end(outlive, shell, shop):
    shell("migrate")
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    worker = outlive.start("worker", shop.name, "--name", "w-1")
    watch = outlive.start("flow", "watch", "o", "-o", "jsonl", "--interval", "0.1")
    wait_until(lambda: shell("flow", "show", "o", "--json").document["version"] > 0)
    assert watch.poll() is None
    assert shell("flow", "signal", "o", "approved", "true").code == 0
    seen = outlive.finish(watch)
    assert seen.code == 0, seen.stderr
    assert {line["host"] for line in seen.lines if line["event"] == "commit"} == {"w-1"}
    assert (seen.lines[-1]["event"], seen.lines[-1]["outcome"]) == ("ended", 2)
    worker.send_signal(signal.SIGTERM)
    stopped = outlive.finish(worker)
    assert (stopped.code, "w-1 serves" in stopped.stderr) == (0, True)


def test_a_worker_that_is_killed_leaves_its_flows_to_another(outlive, shell, shop):
    shell("migrate")
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    first = outlive.start("worker", shop.name, "--name", "w-1", "--session-ttl", "1")
    wait_until(lambda: shell("flow", "show", "o", "--json").document["version"] > 0)
    first.kill()
    first.wait()
    shell("flow", "signal", "o", "approved", "true")
    second = outlive.start("worker", shop.name, "--name", "w-2", "--session-ttl", "1")
    watched = outlive("flow", "watch", "o", "--json")
    assert (watched.code, watched.document["outcome"]) == (0, 2)
    commits = shell("flow", "history", "o", "-o", "jsonl").lines
    assert (commits[0]["host"], commits[-1]["host"]) == ("w-1", "w-2")
    reserved = [line for line in commits if "step reserve#0" in line["what"]]
    assert len(reserved) == 1
    second.send_signal(signal.SIGTERM)
    lines = outlive.finish(second).stderr.splitlines()
    said = [re.fullmatch(r"outlive: (\S+) (.+)", line) for line in lines]
    assert all(datetime.fromisoformat(each[1]).tzinfo is not None for each in said)
    taken = [each[2] for each in said if " recovered " in each[2]]
    assert taken == ["w-2: recovered 0 jobs and 1 flow from dead hosts; hosts found dead: w-1"]


def test_a_watch_ends_by_ctrl_c_and_the_flow_goes_on(outlive, shell):
    shell("migrate")
    shell("flow", "start", "checkout", "{}", "--id", "o")
    watch = outlive.start("flow", "watch", "o")
    assert watch.stdout is not None
    assert "pending" in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    ended = outlive.finish(watch)
    assert (ended.code, ended.stderr) == (130, "")
    assert shell("flow", "show", "o", "--json").document["status"] == "pending"
