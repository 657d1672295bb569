"""The look for children that nobody tells of: others have their ids, or they ended with the flow.

Asks the store; what it says happens to the flow as if the child had told it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from outlive.errors import FlowNotFound, OutliveError
from outlive.flows.events import ChildEnded
from outlive.flows.failures import decode_failure, failure_of
from outlive.flows.intake import Taken
from outlive.flows.letters import Told
from outlive.model.instance import FINAL, InstanceRecord, InstanceStatus
from outlive.names import InstanceId
from outlive.work.repeating import while_held

if TYPE_CHECKING:
    from outlive.flows.activation import LiveFlow
    from outlive.flows.household import Household


async def look_for_taken(home: Household, live: LiveFlow) -> None:
    """Find children whose chosen ids others had: the last owner may have died knowing it."""
    if live.closed:
        return
    records = await _records(home, live, live.run.children.chosen)
    taken = [child for child, record in records if record is None or record.parent != live.id]
    if taken and not live.closed:
        live.happened(Taken(taken, home.clock.now_us()))


async def look_for_ended(home: Household, live: LiveFlow, wanted: dict[InstanceId, str]) -> None:
    """Find children that outlived a flow which is retried, and ended when nobody could be told.

    One that ends from now on tells of it, and is heard once.
    """
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
        except OutliveError as error:
            home.log.warning(
                "could not read the state of child %s of flow %s: %s",
                id,
                live.id,
                error,
            )
            break
        records.append((id, record))
    return records
