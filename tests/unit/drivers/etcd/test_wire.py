"""What gRPC raises besides its own errors is a failed call as well."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from outlive.drivers.etcd.translate import CallFailed
from outlive.drivers.etcd.wire import _told


async def _raise(error: BaseException) -> None:
    raise error


async def test_a_write_to_a_stream_that_had_ended_was_not_sent() -> None:
    with pytest.raises(CallFailed) as raised:
        await _told(grpc, _raise(asyncio.InvalidStateError("RPC already finished.")))
    assert not raised.value.sent


@pytest.mark.parametrize("error", [grpc.aio.UsageError("closed"), asyncio.CancelledError()])
async def test_a_channel_that_is_closed_under_a_call_may_have_sent_it(error) -> None:
    with pytest.raises(CallFailed) as raised:
        await _told(grpc, _raise(error))
    assert raised.value.sent


async def test_a_caller_that_is_cancelled_stays_cancelled() -> None:
    task = asyncio.ensure_future(_told(grpc, asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
