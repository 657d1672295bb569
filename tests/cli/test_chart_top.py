"""``outlive chart top``: what another process sees of an orchestrator, and what it cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from outlive.charts import Chart
from outlive.charts.orchestrator import Orchestrator, monitor
from outlive.cli import chart_top
from outlive.errors import ConfigurationError, NotFound

CHART = Chart.load({"id": "c", "on": {"GO": {}}})


async def cli(*arguments: str, code: int = 0) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outlive", "chart", "top", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    said, _ = await process.communicate()
    assert process.returncode == code, said
    return said.decode()


@pytest.fixture
def own_folder(monkeypatch):
    # An address has 107 bytes, and the folder of a test may take more.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


async def test_one_look_at_another_process(own_folder):
    hub = Orchestrator()
    group = hub.group("tenant \x1b[31m[red]")
    machine = await group.start(CHART)
    await machine.request("GO")
    async with hub.published() as place:
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        told = json.loads(await cli("--once", "-o", "json"))
        shown = await cli("--once", str(os.getpid()))
        by_path = await cli("--once", str(place))
    assert told["pid"] == os.getpid()
    assert told["metrics"]["processed"] == 1
    assert told["health"]["level"] == "healthy"
    assert [each["machines"] for each in told["groups"]] == [1]
    assert "\x1b" not in shown
    assert "[red]" in shown
    assert "1 of 1 run" in shown
    assert by_path.splitlines()[0] == shown.splitlines()[0]
    assert not place.exists()
    await hub.force_cleanup()


async def test_nobody_offers_machines(own_folder):
    said = await cli("--once", code=66)
    assert "no process publishes its machines" in said
    assert "cannot read machines from" in await cli("--once", "1", code=66)


async def test_what_an_onlooker_writes_is_never_read(own_folder):
    hub = Orchestrator()
    async with hub.published() as place:
        reader, writer = await asyncio.open_unix_connection(str(place))
        writer.write(b'{"stop": "everything"}\n' * 100)
        # It is hung up on, which the kernel calls a reset because nobody read what was written.
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        assert (await asyncio.to_thread(chart_top.look, place))["metrics"]["groups"] == 0


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        async with Orchestrator().published(tmp_path / "mine"):
            pass
    assert (tmp_path / "mine").read_text() == "precious"


async def test_a_folder_of_somebody_else_is_refused(own_folder):
    monitor.folder().chmod(0o755)
    with pytest.raises(ConfigurationError, match="directory of this user"):
        async with Orchestrator().published():
            pass


def test_an_answer_without_end_is_cut_off(own_folder, monkeypatch):
    monkeypatch.setattr(chart_top, "DOCUMENT_MAX", 1000)
    place = monitor.folder() / f"1{monitor.SUFFIX}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        pid = os.fork()
        if pid == 0:
            connection, _ = server.accept()
            connection.sendall(b"x" * 5000)
            os._exit(0)
        with pytest.raises(NotFound, match="too long"):
            chart_top.look(place)
        os.waitpid(pid, 0)


async def test_many_groups_are_cut_short():
    hub = Orchestrator()
    for number in range(60):
        hub.group(f"g{number}")
    told = monitor.document(hub)
    assert len(told["groups"]) == monitor.GROUPS_SHOWN
    assert told["groups_left_out"] == 10
    assert chart_top._picture({**told}, {**told}, 1.0) is not None
