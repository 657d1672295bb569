"""Doorbells between real processes, and what becomes of them when hosts die or send rubbish."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from outlive.drivers.sqlite import wakeups as bells
from outlive.model.lease import Grant, Held
from outlive.names import HostId
from outlive.ports.wakeups import Wakeup
from tests.unit.drivers.sqlite.support import ask, open_store

pytestmark = pytest.mark.whitebox

# Owns the key, says so, and releases it when told to.
OWNER = """
import asyncio, sys, time
from pathlib import Path
from tests.unit.drivers.sqlite.support import ask, open_store

async def main():
    driver = await open_store(Path(sys.argv[1]), "host-2")
    for _ in range(20):
        grant = await driver.leases.acquire(ask("key", "b/1", host="host-2"))
        print("owned", flush=True)
        sys.stdin.readline()
        await driver.leases.release(grant)
        print(time.monotonic(), flush=True)
        sys.stdin.readline()
    await driver.close()

asyncio.run(main())
"""


async def say(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    await process.stdin.drain()


async def hear(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.process
async def test_a_release_in_another_process_wakes_the_waiter_at_once(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    heard: asyncio.Queue[tuple[float, Wakeup]] = asyncio.Queue()
    driver.wakeups.subscribe(lambda wakeup: heard.put_nowait((time.monotonic(), wakeup)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parents[4],
    )
    delays: list[float] = []
    for number in range(20):
        assert await hear(process) == "owned"
        held = await driver.leases.acquire(ask("key", f"a/{number}", queue_us=15_000_000))
        assert isinstance(held, Held)
        assert held.waiter is not None
        await say(process)
        async with asyncio.timeout(5):
            at, wakeup = await heard.get()
        assert wakeup == Wakeup("lease/key", held.waiter, 0)
        delays.append(at - float(await hear(process)))
        await driver.leases.leave("key", held.waiter, ask("key", f"a/{number}").owner)
        await say(process)
    assert await process.wait() == 0
    await driver.close()
    # Counted from when the owner's release returned; busy machines get some slack.
    assert sorted(delays)[len(delays) // 2] < 0.005


async def test_a_very_long_path_has_a_doorbell_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    driver = await open_store(deep)
    heard = asyncio.Event()
    driver.wakeups.subscribe(lambda _: heard.set())
    assert not driver.wakeups.deaf
    await driver.wakeups.ring(Wakeup("lease/key"))
    async with asyncio.timeout(5):
        await heard.wait()
    await driver.close()
    assert list((deep / "store.db-bells").iterdir()) == []


async def test_the_bell_of_a_dead_host_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await open_store(tmp_path)
    folder = tmp_path / "store.db-bells"
    # An address has 107 bytes, and the folder of a test may take more.
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind("dead")
    assert len(list(folder.iterdir())) == 2
    await driver.wakeups.ring(Wakeup("lease/key"))
    assert len(list(folder.iterdir())) == 1
    await driver.wakeups.ring(Wakeup("lease/key"), host=HostId("never-seen"))
    await driver.close()


async def test_rubbish_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = await open_store(tmp_path)
    heard: list[Wakeup] = []
    arrived = asyncio.Event()

    def listen(wakeup: Wakeup) -> None:
        heard.append(wakeup)
        arrived.set()

    driver.wakeups.subscribe(listen)
    (bell,) = (tmp_path / "store.db-bells").iterdir()
    monkeypatch.chdir(bell.parent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for data in (
            *(b"", b"\xff\xfe", b"{}", b"[" * 5000, b'{"n":"default","b":[["x",1]]}'),
            *(b'{"n":"default","b":7}', b'{"n":"other","b":[["lease/key",1,0]]}'),
        ):
            stranger.sendto(data, bell.name)
    await driver.wakeups.ring(Wakeup("lease/real"))
    async with asyncio.timeout(5):
        await arrived.wait()
    assert heard == [Wakeup("lease/real")]
    await driver.close()


async def test_a_full_bell_is_no_error(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    for _ in range(5000):
        driver.wakeups.send([Wakeup("lease/key")], HostId("host-1"))
    await driver.close()


async def test_a_keeper_hangs_up_no_bell_but_rings(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    keeper = await open_store(tmp_path, role="keeper")
    heard = asyncio.Event()
    driver.wakeups.subscribe(lambda _: heard.set())
    grant = await keeper.leases.acquire(ask("key"))
    assert isinstance(grant, Grant)
    await driver.leases.acquire(ask("key", "a/2", queue_us=15_000_000))
    await keeper.leases.release(grant)
    async with asyncio.timeout(5):
        await heard.wait()
    assert len(list((tmp_path / "store.db-bells").iterdir())) == 1
    await keeper.close()
    await driver.close()


async def test_without_sockets_the_file_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> socket.socket:
        raise PermissionError(1, "sockets are not allowed here")

    other = await open_store(tmp_path, "host-2")
    monkeypatch.setattr(bells, "_datagram_socket", refuse)
    driver = await open_store(tmp_path)
    assert driver.wakeups.deaf
    assert any(finding.level == "warning" for finding in await driver.check())
    grant = await other.leases.acquire(ask("key", "b/1", host="host-2"))
    assert isinstance(grant, Grant)
    held = await driver.leases.acquire(ask("key", "a/1", queue_us=15_000_000))
    assert isinstance(held, Held)
    assert held.waiter is not None
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    stop = driver.wakeups.subscribe(heard.put_nowait)
    await other.leases.release(grant)
    async with asyncio.timeout(5):
        assert await heard.get() == Wakeup("lease/key", held.waiter)
    stop()
    await driver.close()
    await other.close()
