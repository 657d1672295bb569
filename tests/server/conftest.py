"""Servers for tests: in this process over ASGI, and real ones on a free port of the loopback."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

import outlive
from outlive.model.bearer import Scope
from tests.server.api import Api, application, make_token, open_memory
from tests.server.flow_shop import Shop, open_shop

_names = itertools.count(1)


@pytest.fixture
def store() -> str:
    """The name of a store in memory of the test's own."""
    return f"server-tests-{next(_names)}"


@pytest.fixture
async def drivers(store):
    opened = {namespace: await open_memory(store, namespace) for namespace in ("shop", "other")}
    yield opened
    for driver in opened.values():
        await driver.close()


@pytest.fixture
async def hosts(store):
    """The server's own hosts, which have no app."""
    async with AsyncExitStack() as stack:
        yield {
            namespace: await stack.enter_async_context(
                outlive.connect(f"memory://{store}", namespace=namespace)
            )
            for namespace in ("shop", "other")
        }


@pytest.fixture
async def api(drivers, hosts) -> AsyncGenerator[Api, None]:
    """A client that may do everything in ``shop``."""
    app = application(drivers, flows={name: host.flows for name, host in hosts.items()})
    _, token = await make_token(drivers["shop"], "shop", *Scope)
    yield Api(app, token)
    app.close()


@pytest.fixture
async def foreign(api, drivers) -> Api:
    """A client that may do everything, in another namespace."""
    _, token = await make_token(drivers["other"], "other", *Scope)
    return api.with_token(token)


@pytest.fixture(params=["memory", "sqlite"])
async def shop(request, store, tmp_path) -> AsyncGenerator[Shop, None]:
    """A server of one namespace with flows, on more than one kind of store."""
    url = f"memory://{store}" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db"
    async with open_shop(url) as opened:
        yield opened
