"""``host.hosts``: which processes live, and what each of them owns."""

from __future__ import annotations

import asyncio
import os

import pytest

import outlive
from outlive import blocking


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return (
        f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"
    )


async def test_each_host_is_listed_with_what_it_owns(url):
    async with outlive.connect(url, name="web") as web, outlive.connect(url, name="api") as api:
        await web.leases.acquire("a")
        await web.leases.acquire("b")
        await api.work.enqueue_many("mails", [1, 2, 3])
        await api.work.claim("mails", limit=2)
        first, second = await web.hosts.list()
        assert (first.name, first.id, first.kind) == ("web", web.id, "host")
        assert (first.version, first.alive, first.draining) == (outlive.__version__, True, False)
        assert first.pid == second.pid == os.getpid()
        assert first.since <= second.since
        assert 0 <= first.heartbeat_age_s < first.ttl_s
        assert (first.leases, first.jobs) == (2, 0)
        assert (second.name, second.leases, second.jobs) == ("api", 0, 2)
        assert [info.name for info in await web.hosts.list(limit=1)] == ["web"]
    async with outlive.connect(url, name="late") as late:
        assert [info.name for info in await late.hosts.list()] == ["late"]


async def test_a_host_that_was_told_to_stop_is_draining_until_it_runs_again(url):
    app, begun, may_end = outlive.App("shop"), asyncio.Event(), asyncio.Event()

    @app.handler("slow")
    async def slow(payload):
        begun.set()
        await may_end.wait()

    async with outlive.connect(url, app=app) as host, outlive.connect(url, name="x") as other:

        async def draining():
            return next(info for info in await other.hosts.list() if info.id == host.id).draining

        async with host.running():
            await host.work.enqueue("slow", None)
            await begun.wait()
            assert not await draining()
            host.stop()
            for _ in range(500):
                if await draining():
                    break
                await asyncio.sleep(0.01)
            assert await draining()
            may_end.set()
        async with host.running():
            assert not await draining()


async def test_a_host_without_a_session_is_not_listed():
    async with outlive.connect("memory://none", session=False) as host:
        assert await host.hosts.list() == []


def test_hosts_are_listed_without_await(url):
    with blocking.connect(url, name="script") as host:
        (info,) = host.hosts.list()
        assert (info.name, info.leases, info.jobs) == ("script", 0, 0)
