"""Steps inside transactions: their bodies begin while their host may run them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from outlive import App
from outlive.errors import ClaimLost
from outlive.flows.decision import StepTask
from outlive.flows.transacting import _Transaction
from tests.unit.flows.test_executing import Bench

pytestmark = pytest.mark.whitebox

app = App("transactions")


@pytest.mark.parametrize("paused", [False, True])
async def test_a_body_does_not_begin_when_its_session_ended_in_a_middleware(paused: bool):
    ran: list[str] = []

    @app.step(name=f"pays {paused}", transactional=True)
    async def pays() -> None:
        ran.append("paid")
        raise LookupError

    async def around(_current: object, call: Callable[[], Any]) -> Any:
        body = call()
        bench.owner.session.held = not paused
        return await body

    bench = Bench(around)
    call = StepTask(identity="pays#0", step=pays, input=msgspec.Raw(b"{}"))
    run = bench.executor.prepare(bench.owner, call)
    home: Any = SimpleNamespace(executor=bench.executor)
    live: Any = bench.owner
    with pytest.raises(ClaimLost if paused else LookupError):
        await _Transaction(home, live, run).body(object())
    assert ran == ([] if paused else ["paid"])
