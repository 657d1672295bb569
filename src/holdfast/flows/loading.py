"""Loading: a flow that was claimed and has a history is read, and brought to where it stood.

Owns the reading of histories, page by page while the session is held, and the look for children
that nobody tells of: those whose ids others had, and those that ended while the flow had. What
cannot be read is handed back: nothing of the flow begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import FlowNotFound, HoldfastError
from holdfast.flows.activation import LiveFlow
from holdfast.flows.events import ChildEnded
from holdfast.flows.failures import decode_failure, failure_of
from holdfast.flows.household import Household
from holdfast.flows.intake import Taken
from holdfast.flows.letters import Told
from holdfast.model.instance import (
    FINAL,
    ClaimedInstance,
    HistoryRow,
    InstanceRecord,
    InstanceStatus,
)
from holdfast.names import InstanceId
from holdfast.work.repeating import while_held

# Rows of a history that are read at once.
_ROWS_MAX = 1000


async def load(home: Household, live: LiveFlow, claimed: ClaimedInstance) -> None:
    """Read the history of a flow, and run it again from there."""
    try:
        rows = await _history(home, live, claimed)
    except HoldfastError as error:
        home.log.warning("the history of flow %s was not read: %s", live.id, error)
        if not live.closed:
            home.hand_back(live)
        return
    if live.closed:
        return
    if home.telemetry.active:
        home.telemetry.flows_counted("replayed")
    home.stuck_flows.enter(live)
    live.begin(rows, claimed.letters)
    await _look_for_taken(home, live)
    await _look_for_ended(home, live)


async def _history(home: Household, live: LiveFlow, claimed: ClaimedInstance) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    after = claimed.base

    async def read() -> Any:
        return await home.store.history(live.id, after=after, limit=_ROWS_MAX)

    while after < claimed.version and not live.closed:
        page = await while_held(home.runtime, live.session, read)
        if not page:
            break
        rows.extend(page)
        after = rows[-1].version
    return rows


async def _look_for_taken(home: Household, live: LiveFlow) -> None:
    """Find children whose chosen ids others had: the last owner may have died knowing it."""
    if live.closed:
        return
    records = await _records(home, live, live.run.children.chosen)
    taken = [child for child, record in records if record is None or record.parent != live.id]
    if taken and not live.closed:
        live.happened(Taken(taken, home.clock.now_us()))


async def _look_for_ended(home: Household, live: LiveFlow) -> None:
    """Find children that outlived a flow which is retried, and ended when nobody could be told.

    One that ends from now on tells of it, and is heard once.
    """
    if live.closed or not live.run.rewinds:
        return
    wanted = {call.id: call.identity for call in live.run.children.abandoned}
    for id, record in await _records(home, live, list(wanted)):  # noqa: A001 - it is one
        told = _told(id, record)
        if told is not None and not live.closed:
            at_us = home.clock.now_us()
            child = wanted[id]
            live.happened(ChildEnded(at=at_us, child=child, result=told.result, error=told.error))


def _told(id: InstanceId, record: InstanceRecord | None) -> Told | None:  # noqa: A002 - it is one
    """How a child ended; ``None`` if it has not."""
    if record is None:
        return Told(error=failure_of(FlowNotFound(id)))
    if record.status not in FINAL:
        return None
    if record.status is InstanceStatus.COMPLETED:
        return Told(msgspec.Raw(record.outcome or "null"))
    return Told(error=decode_failure(record.outcome))


async def _records(
    home: Household, live: LiveFlow, ids: Sequence[InstanceId]
) -> list[tuple[InstanceId, InstanceRecord | None]]:
    """What the store says of these children; as far as it says something."""
    records: list[tuple[InstanceId, InstanceRecord | None]] = []
    for id in ids:  # noqa: A001 - it is one
        try:
            record = await while_held(home.runtime, live.session, partial(home.store.get, id))
        except HoldfastError as error:
            home.log.warning("child %s of flow %s was not looked at: %s", id, live.id, error)
            break
        records.append((id, record))
    return records
