"""Loading: a flow that was claimed and has a history is read, and brought to where it stood.

Owns the reading of histories, page by page while the session is held. What cannot be read is handed
back: nothing of the flow begins.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError
from holdfast.flows.activation import LiveFlow
from holdfast.flows.heeding import look_for_taken
from holdfast.flows.household import Household
from holdfast.model.instance import ClaimedInstance, HistoryRow
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
    await look_for_taken(home, live)


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
