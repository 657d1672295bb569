"""A server that stands still carries a claim out after its sender has asked again elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

import outlive

pytestmark = [pytest.mark.service, pytest.mark.process]

# What the host gives up waiting after; the server's processes stand still for longer.
COMMAND_TIMEOUT_S = 0.5
# A late claim is found at the second or third look.
PATIENCE_S = 30

OTHERS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def until(count: Callable[[], Awaitable[int]]) -> None:
    for _ in range(PATIENCE_S * 20):
        if await count():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not come to pass")


async def test_what_is_claimed_late_is_given_back(postgres_url):
    options = {"command_timeout": COMMAND_TIMEOUT_S}
    watcher = await asyncpg.connect(postgres_url)
    async with outlive.connect(postgres_url, name="a", options=options) as host:
        await host.work.enqueue_many("q", [1, 2, 3])
        # Prepared by this, the next claim is carried out as soon as it is read.
        (first,) = await host.work.claim("q")
        await first.complete()
        frozen = [row["pid"] for row in await watcher.fetch(OTHERS)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            (claim,) = await host.work.claim("q")
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        late = "SELECT count(*) FROM outlive.job WHERE token > $1"
        await until(lambda: watcher.fetchval(late, claim.token))
        await until(lambda: host.work.count(state="ready"))
        await claim.complete()
    await watcher.close()
