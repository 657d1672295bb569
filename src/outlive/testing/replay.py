"""``check_replay``: does today's code still do what a stored history says?

Owns nothing: it runs a flow's code against recorded rows, without a store and without effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import msgspec

from outlive.app import App
from outlive.errors import UsageError
from outlive.flows.recording import Recording, read_document, recording_of, replayed
from outlive.model.instance import HistoryRow, InstanceRecord


@overload
def check_replay(app: App, record: str | bytes | Mapping[str, Any]) -> bool: ...
@overload
def check_replay(app: App, record: InstanceRecord, rows: Sequence[HistoryRow]) -> bool: ...
def check_replay(
    app: App,
    record: InstanceRecord | str | bytes | Mapping[str, Any],
    rows: Sequence[HistoryRow] = (),
) -> bool:
    """Run a recorded flow by the code of ``app``; whether its code came to an end in its history.

    ``record`` is what ``outlive flow history FLOW --json`` printed, as text or parsed; or what a
    store says of the flow, with the ``rows`` of its current run, from the first. No step is run and
    nothing is written: every result comes from the history.

    Raises:
        NonDeterminism: The code does something else than what is recorded; it says what.
        UsageError: The app has no flow of this name, or ``record`` is no history.
    """
    recording = _recording(record, rows)
    flow = app.flows.get(recording.name)
    if flow is None:
        raise UsageError(f"{app!r} has no flow {recording.name!r}, so that nothing can be replayed")
    with replayed(flow, recording) as run:
        return run.ended


def _recording(
    record: InstanceRecord | str | bytes | Mapping[str, Any], rows: Sequence[HistoryRow]
) -> Recording:
    if isinstance(record, InstanceRecord):
        return recording_of(record, rows)
    return read_document(msgspec.json.encode(record) if isinstance(record, Mapping) else record)
