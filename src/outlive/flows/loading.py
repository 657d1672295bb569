"""Loading: what a claim did not bring along is read, and the flow is brought to where it stood.

Owns the reading of histories, and of mailboxes that may hold a wish to cancel, page by page while
the session is held. What cannot be read is handed back: nothing of the flow begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from outlive.errors import OutliveError
from outlive.flows.activation import LiveFlow
from outlive.flows.attributes import STUCK, unstuck
from outlive.flows.heeding import look_for_taken
from outlive.flows.household import Household
from outlive.flows.letters import CANCEL
from outlive.model.instance import LETTERS_MAX, ClaimedInstance, HistoryRow, Letter
from outlive.telemetry import events
from outlive.work.repeating import while_held

# Rows of a history that are read at once.
_ROWS_MAX = 1000


def may_hide_a_wish(claimed: ClaimedInstance) -> bool:
    """Whether a wish to cancel may stand behind the letters that came along.

    Only of a flow that nobody has had: it then ends without beginning. One that has begun comes to
    its letters in their order.
    """
    full = claimed.first and len(claimed.letters) >= LETTERS_MAX
    return full and all(letter.kind != CANCEL for letter in claimed.letters)


async def load(home: Household, live: LiveFlow, claimed: ClaimedInstance) -> None:
    """Read what the claim did not bring along, and run the flow again from there."""
    try:
        rows = await _history(home, live, claimed)
        letters = await _letters(home, live, claimed)
    except OutliveError as error:
        home.log.warning(
            "could not read the history of flow %s, releasing the flow: %s", live.id, error
        )
        if not live.closed:
            home.hand_back(live)
        return
    if live.closed:
        return
    if rows and home.telemetry.active:
        home.telemetry.record(events.FLOWS, event="replayed")
    if STUCK in live.row.attributes:
        # If it is replayed, it is not stuck any more.
        live.mark(unstuck(live.row.attributes))
    live.begin(rows, letters)
    live.write_mark()
    await look_for_taken(home, live)


async def _history(home: Household, live: LiveFlow, claimed: ClaimedInstance) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    after = claimed.base
    while after < claimed.version and not live.closed:
        read = partial(home.store.history, live.id, after=after, limit=_ROWS_MAX)
        page = await while_held(home.runtime, live.session, read)
        if not page:
            break
        rows.extend(page)
        after = rows[-1].version
    return rows


async def _letters(home: Household, live: LiveFlow, claimed: ClaimedInstance) -> Sequence[Letter]:
    """The letters that came along, and a wish to cancel that stands behind them."""
    page: Sequence[Letter] = claimed.letters
    if not may_hide_a_wish(claimed):
        return page
    # A mailbox is limited, and so is this.
    while len(page) >= LETTERS_MAX and not live.closed:
        read = partial(home.store.letters, live.id, after=page[-1].number, limit=LETTERS_MAX)
        page = await while_held(home.runtime, live.session, read)
        wishes = [letter for letter in page if letter.kind == CANCEL]
        if wishes:
            return (*claimed.letters, *wishes)
    return claimed.letters
