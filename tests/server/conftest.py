"""Servers for tests: in this process over ASGI, and real ones on a free port of the loopback."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest

from holdfast.model.bearer import Scope
from tests.server.api import Api, application, make_token, open_memory

_names = itertools.count(1)


@pytest.fixture
async def drivers():
    name = f"server-tests-{next(_names)}"
    opened = {namespace: await open_memory(name, namespace) for namespace in ("shop", "other")}
    yield opened
    for driver in opened.values():
        await driver.close()


@pytest.fixture
async def api(drivers) -> AsyncGenerator[Api, None]:
    """A client that may do everything in ``shop``."""
    app = application(drivers)
    _, token = await make_token(drivers["shop"], "shop", *Scope)
    yield Api(app, token)
    app.close()


@pytest.fixture
async def foreign(api, drivers) -> Api:
    """A client that may do everything, in another namespace."""
    _, token = await make_token(drivers["other"], "other", *Scope)
    return api.with_token(token)
