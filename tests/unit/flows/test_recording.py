"""Recorded runs: read while the flow goes on, written as a document, and read back."""

from __future__ import annotations

import asyncio
import json

import pytest

import outlive
from outlive.flows.checking import check_recording
from outlive.flows.recording import read_document, record_flow

pytestmark = pytest.mark.whitebox

app = outlive.App("recorded")


@app.step
async def echo(text: str) -> str:
    return text


@app.flow
async def rounds(number: int, text: str) -> None:
    await echo(text)
    await outlive.wait_signal("next")
    outlive.continue_as_new(number + 1, text)


class RestartsMeanwhile:
    """A store in which the flow begins anew between two questions about it."""

    def __init__(self, store, flow: outlive.FlowHandle) -> None:
        self._store = store
        self._flow = flow
        self._restarted = False
        self.get = store.get

    async def history(self, id, *, after, limit):  # noqa: A002 - it is one
        if not self._restarted:
            self._restarted = True
            await self._flow.signal("next")
            await _until(self._flow, number=1)
        return await self._store.history(id, after=after, limit=limit)


async def _until(flow: outlive.FlowHandle, *, number: int) -> None:
    """Wait for the first step of that round; a commit within a flow rings nobody."""
    while True:
        history = await flow.history()
        info = await flow.status()
        if info.input["number"] == number and "echo#0" in str(history):
            return
        await asyncio.sleep(0.001)


async def _recorded(*, restarting: bool):
    async with outlive.connect("memory://", app=app, name="a") as host, asyncio.timeout(30):
        running = asyncio.ensure_future(host.run())
        try:
            flow = await host.flows.start(rounds, 0, "grüße 1.50 \u2028", id="f")
            await _until(flow, number=0)
            store = host.driver.instances
            return await record_flow(
                RestartsMeanwhile(store, flow) if restarting else store, flow.id
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def test_a_run_that_began_anew_while_it_was_read_is_read_as_the_new_one():
    recording = asyncio.run(_recorded(restarting=True))
    assert json.loads(recording.input)["number"] == 1
    assert recording.base > 0
    assert recording.rows[0].version == recording.base + 1
    assert check_recording(app.flows, recording) is None


def test_a_document_says_all_that_was_recorded():
    recording = asyncio.run(_recorded(restarting=False))
    written = json.dumps(recording.document(), default=str, indent=2).encode()
    assert read_document(written) == recording
