"""Schedules from a shell, and a worker that runs the app of a module."""

from __future__ import annotations

import asyncio

import pytest

import outlive as library
from tests.cli.conftest import wait_until

pytestmark = pytest.mark.usefixtures("made_store")

APP = """
import outlive

app = outlive.App("shop")
not_an_app = 5


@app.handler("mails")
async def send(mail: dict) -> str:
    return "sent to " + mail["to"]


@app.cron("* * * * * *", key="each-second")
def tick() -> None:
    open("ticked", "a").write("x")
"""


def keep(shell, **schedules):
    async def put():
        url = f"sqlite:///{shell.folder}/leases.db"
        async with library.connect(url) as host:
            for name, options in schedules.items():
                await host.schedules.create(name, "reports", {"n": 1}, **options)

    asyncio.run(put())


def test_schedules_are_listed_steered_and_removed(shell):
    keep(shell, nightly={"cron": "0 3 * * *", "tz": "Europe/Berlin"}, often={"every": 90})
    listed = shell("schedule", "ls", "-o", "json").document
    assert [row["name"] for row in listed["schedules"]] == ["nightly", "often"]
    assert listed["next_after"] is None
    table = shell("schedule", "ls").stdout.splitlines()
    assert table[0].split() == ["NAME", "WHEN", "TZ", "QUEUE", "PAUSED", "NEXT", "LAST", "FIRED"]
    assert "every 90 s" in table[2]
    page = shell("schedule", "ls", "--limit", "1", "-o", "json").document
    assert page["next_after"] == "nightly"
    assert shell("schedule", "pause", "nightly", "-o", "json").document["paused"] is True
    job = shell("schedule", "run", "nightly", "-o", "json").document["id"]
    shown = shell("work", "show", job, "-o", "json").document
    assert (shown["queue"], shown["payload"]) == ("reports", {"n": 1})
    assert shell("schedule", "resume", "nightly", "-o", "json").document["paused"] is False
    fields = shell("schedule", "show", "nightly", "-o", "json").document
    assert (fields["cron"], fields["tz"], fields["fired"]) == ("0 3 * * *", "Europe/Berlin", 0)
    assert shell("schedule", "rm", "nightly").code == 0
    for verb in ("show", "pause", "resume", "run", "rm"):
        gone = shell("schedule", verb, "nightly")
        assert (gone.code, gone.stdout) == (66, ""), verb


def test_a_worker_imports_only_the_app_that_is_named(shell):
    (shell.folder / "shop_of_a_test.py").write_text(APP)
    for name in (
        "shop_of_a_test",
        "shop_of_a_test:",
        "shop_of_a_test:nothing",
        "shop_of_a_test:not_an_app",
        "no_such_module:app",
        "os:system",
    ):
        done = shell("worker", name)
        assert (done.code, done.stdout) == (2, ""), name


@pytest.mark.process
def test_a_worker_runs_handlers_and_crons_until_it_is_told_to_stop(outlive, shell):
    (outlive.folder / "shop_of_a_worker.py").write_text(APP)
    worker = outlive.start("worker", "shop_of_a_worker:app", "--name", "worker-1")
    job = shell("work", "enqueue", "mails", '{"to": "ann"}', "-o", "json").document["id"]

    def shown():
        return shell("work", "show", job, "-o", "json").document

    wait_until(lambda: shown()["state"] == "done")
    assert (shown()["result"], shown()["claimed_by"]) == ("sent to ann", "worker-1")
    wait_until((outlive.folder / "ticked").exists)
    worker.terminate()
    ended = outlive.finish(worker)
    assert ended.code == 0, ended.stderr
    assert ended.stdout == ""
    assert "worker-1 serves" in ended.stderr
    (row,) = shell("schedule", "ls", "-o", "json").document["schedules"]
    assert (row["name"], row["fired"] >= 1) == ("each-second", True)
