"""Steps that say ``Later`` run again, and no attempt is counted."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, Later, Retry
from outlive.errors import FlowFailed


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("async", {}), ("async", {"queue": "elsewhere"})),
        # One that is transactional runs in the writer's thread on SQLite.
        *(("thread", {}), ("thread", {"queue": "elsewhere"}), ("thread", {"transactional": True})),
    ],
)
async def test_a_step_that_raises_later_is_run_again_and_no_attempt_counts(tmp_path, options, kind):
    app, attempts = App("a"), []

    def body() -> str:
        attempts.append(outlive.current().attempt)
        if len(attempts) < 4:
            raise Later(0.01)
        return "now"

    if kind == "async":

        @app.step(retry=Retry(max_attempts=2, first=0.01), **options)
        async def step() -> str:
            return body()
    else:

        @app.step(retry=Retry(max_attempts=2, first=0.01), **options)
        def step() -> str:
            return body()

    @app.flow
    async def flow() -> str:
        return await step()

    url = f"sqlite:///{tmp_path / 'outlive.db'}"
    async with outlive.connect(url, app=app) as host, host.running():
        assert await (await host.flows.start(flow)).result(timeout=20) == "now"
    assert attempts == [1, 1, 1, 1]


async def test_a_step_does_not_say_later_for_longer_than_it_may_be_retried(tmp_path):
    app = App("a")

    @app.step(retry=Retry(max_attempts=2), retry_for=0.05)
    async def step() -> None:
        await asyncio.sleep(0.01)
        raise Later(60)

    @app.flow
    async def flow() -> None:
        await step()

    async with outlive.connect(f"sqlite:///{tmp_path / 'o.db'}", app=app) as host, host.running():
        with pytest.raises(FlowFailed, match="Later"):
            await (await host.flows.start(flow)).result(timeout=20)
