"""Flows by the Python client, over real sockets: the names of ``host.flows``, without a store."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvicorn

import outlive
from outlive.client import Client, Flows
from outlive.client import FlowHandle as ClientHandle
from outlive.errors import (
    ConfigurationError,
    Conflict,
    FlowCancelled,
    FlowFailed,
    FlowTerminated,
    NotFound,
)
from outlive.model.bearer import Scope


@pytest.fixture
async def url(shop):
    """A real server on a real socket, in this process."""
    config = uvicorn.Config(shop.api.app, port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    serving = asyncio.create_task(server.serve())
    for _ in range(1000):
        if server.started:
            break
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    shop.api.app.close()
    server.should_exit = True
    await serving


@pytest.fixture
async def flows(shop, url):
    async with Client(url, shop.api.token, patience=1) as client:
        yield client.flows


async def test_a_flow_is_started_once_signalled_and_awaited(shop, flows):
    await shop.run()
    handle = await flows.start("approval", {"order": "o/1"}, id="o/1", attributes={"zip": "012"})
    again = await flows.start("approval", {"order": "o/1"}, id="o/1")
    assert (handle.entry, again.entry, again.id) == ("created", "existing", "o/1")
    await handle.signal("decided", "yes")
    assert await handle.result(timeout=30) == "o/1: yes"
    info = await flows.get("o/1").status()
    assert (info.name, info.status, info.input) == ("approval", "completed", {"order": "o/1"})
    assert info.created_at.tzinfo is not None
    assert [commit["version"] for commit in await handle.history()] == list(
        range(1, info.version + 1)
    )
    assert (await flows.list(attributes={"zip": "012"}))[0].id == "o/1"
    assert await flows.list(attributes={"zip": "013"}) == []
    with pytest.raises(Conflict, match="'o/1' belongs to a run of another flow"):
        await flows.start("checkout", id="o/1")
    await flows.purge("o/1")
    with pytest.raises(NotFound, match="o/1"):
        await flows.get("o/1").status()


async def test_how_a_flow_ended_is_raised_and_it_may_be_retried_and_forked(shop, flows):
    shop.broken.add("charge")
    await shop.run()
    handle = await flows.start("checkout", {"amount": 7})
    with pytest.raises(FlowFailed) as failed:
        await handle.result(timeout=30)
    assert (failed.value.id, failed.value.type) == (handle.id, "outlive.errors.StepFailed")
    shop.broken.clear()
    await handle.retry()
    assert await handle.result(timeout=30) == "paid 7"
    with pytest.raises(Conflict, match="only a failed"):
        await handle.retry()
    forked = await handle.fork(at="charge#0")
    assert await forked.result(timeout=30) == "paid 7"


async def test_a_flow_is_operated(shop, flows):
    await shop.run()
    waits = await flows.start("patience")
    with pytest.raises(TimeoutError):
        await waits.result(timeout=0.1)
    await waits.suspend()
    assert (await waits.status()).status == "suspended"
    await waits.resume()
    await waits.cancel("too late")
    with pytest.raises(FlowCancelled, match="too late"):
        await waits.result(timeout=30)
    ends = await flows.start("patience", delay=1000)
    await ends.terminate("enough")
    with pytest.raises(FlowTerminated, match="enough"):
        await ends.result(timeout=30)
    first, second = await flows.list(name="patience")
    assert [each.id for each in await flows.list(after=first)] == [second.id]
    assert [each.id for each in await flows.list(status="terminated", limit=1)] == [ends.id]


async def test_a_result_needs_a_token_that_may_see_it(shop, url):
    await shop.run()
    token = (await shop.may(Scope.ENQUEUE, Scope.READ)).token
    async with Client(url, token) as client:
        handle = await client.flows.start("checkout")
        with pytest.raises(ConfigurationError, match="payload:read"):
            await handle.result(timeout=30)


@pytest.mark.parametrize(
    ("ours", "theirs", "absent"),
    [
        (Flows, outlive.Flows, {"start_many", "schedule", "count"}),
        # Its attributes are made with it here.
        (ClientHandle, outlive.FlowHandle, {"query", "update", "id", "entry"}),
    ],
)
def test_the_names_are_those_of_a_host(ours, theirs, absent):
    def names(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(theirs) - absent == names(ours)
