"""``check_replay``: does today's code still do what a stored history says?

Owns nothing: it runs a flow's code against recorded rows, without a store and without effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.app import App
from holdfast.errors import UsageError
from holdfast.flows.recording import recording_of, replayed
from holdfast.model.instance import HistoryRow, InstanceRecord


def check_replay(app: App, record: InstanceRecord, rows: Sequence[HistoryRow]) -> bool:
    """Run the flow of ``record`` through ``rows``; whether its code came to an end in them.

    No step is run and nothing is written: every result comes from the history. ``rows`` are those
    of its current run, from the first.

    Raises:
        NonDeterminism: The code does something else than what is recorded; it says what.
        UsageError: The app has no flow of this name.
    """
    flow = app.flows.get(record.name)
    if flow is None:
        raise UsageError(f"{app!r} has no flow {record.name!r}, so that nothing can be replayed")
    with replayed(flow, recording_of(record, rows)) as run:
        return run.ended
