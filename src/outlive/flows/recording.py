"""A run of a flow as it was recorded: read from a store, or from a document, and run once more.

Owns the document, which releases to come must still read. Running one again writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from outlive.clock import instant
from outlive.errors import FlowNotFound, InvalidPayload
from outlive.flows.flow import Flow
from outlive.flows.run import FlowRun
from outlive.model.instance import HistoryRow, InstanceRecord, InstanceStatus
from outlive.names import InstanceId, Token
from outlive.ports.instance_desk import InstanceDesk
from outlive.serialization import decode_plain
from outlive.telemetry import UNBOUND, HostLogs

# Rows of a history that are read at once.
_ROWS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The current run of one flow: what it was given, and each of its commits."""

    id: InstanceId
    name: str
    status: InstanceStatus
    base: int
    input: str
    began_at_us: int
    headers: str = "{}"
    custom: str | None = None
    attributes: str = "{}"
    parent: InstanceId | None = None
    rows: tuple[HistoryRow, ...] = ()

    def document(self) -> dict[str, Any]:
        """The same as plain values, which ``read_document`` understands."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status.value,
            "parent": self.parent,
            "base": self.base,
            "began_at_us": self.began_at_us,
            "input": decode_plain(self.input),
            "custom": decode_plain(self.custom),
            "attributes": decode_plain(self.attributes),
            "headers": decode_plain(self.headers),
            "history": [
                {
                    "version": row.version,
                    "token": row.token,
                    "host": row.worker,
                    "at": instant(row.at_us),
                    "at_us": row.at_us,
                    "events": decode_plain(row.events),
                }
                for row in self.rows
            ],
        }


class _Commit(msgspec.Struct, kw_only=True):
    version: int
    token: Token
    host: str | None
    at_us: int
    events: list[Any]


class _Document(msgspec.Struct, kw_only=True):
    id: InstanceId
    name: str
    status: InstanceStatus
    parent: InstanceId | None
    base: int
    began_at_us: int
    input: dict[str, Any]
    custom: Any
    attributes: dict[str, Any]
    headers: dict[str, Any]
    history: list[_Commit]


def read_document(text: bytes | str) -> Recording:
    """The recording that a document holds.

    Raises:
        InvalidPayload: It is none.
    """
    try:
        read = msgspec.json.decode(text, type=_Document)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidPayload(f"not a history of a flow: {error}") from error
    return Recording(
        id=read.id,
        name=read.name,
        status=read.status,
        base=read.base,
        input=_text(read.input),
        began_at_us=read.began_at_us,
        headers=_text(read.headers),
        custom=None if read.custom is None else _text(read.custom),
        attributes=_text(read.attributes),
        parent=read.parent,
        rows=tuple(
            HistoryRow(row.version, row.token, row.host, row.at_us, _text(row.events))
            for row in read.history
        ),
    )


def _text(value: object) -> str:
    # As it is stored, whatever spaces and escapes the document was written with.
    return msgspec.json.encode(value).decode()


async def record_flow(
    store: InstanceDesk,
    id: InstanceId,  # noqa: A002 - it is one
) -> Recording:
    """Read the current run of a flow, also while it goes on.

    Raises:
        FlowNotFound: There is none of this id.
    """
    record = await store.get(id)
    while record is not None and record.kind == "flow":
        rows = await read_rows(store, id, after=record.base)
        before, record = record, await store.get(id)
        # A run that began anew meanwhile has another input, and rows of its own.
        if record is not None and record.base == before.base:
            return recording_of(record, rows)
    raise FlowNotFound(id)


async def read_rows(
    store: InstanceDesk,
    id: InstanceId,  # noqa: A002 - it is one
    *,
    after: int,
    limit: int | None = None,
) -> list[HistoryRow]:
    """The rows of the current run behind the version ``after``: all, or so many at most."""
    rows: list[HistoryRow] = []
    while limit is None or len(rows) < limit:
        most = _ROWS_MAX if limit is None else min(_ROWS_MAX, limit - len(rows))
        page = await store.history(id, after=after, limit=most)
        rows.extend(page)
        if len(page) < most:
            break
        after = page[-1].version
    return rows


def recording_of(record: InstanceRecord, rows: Sequence[HistoryRow]) -> Recording:
    """What a store said of one run."""
    return Recording(
        id=record.id,
        name=record.name,
        status=record.status,
        base=record.base,
        input=record.input,
        began_at_us=record.began_at_us,
        headers=record.headers,
        custom=record.custom,
        attributes=record.attributes,
        parent=record.parent,
        rows=tuple(rows),
    )


@contextlib.contextmanager
def replayed(
    flow: Flow[..., Any], recording: Recording, *, logs: HostLogs = UNBOUND
) -> Generator[FlowRun]:
    """A copy of a flow, run from its history by the code of ``flow``, which decides nothing.

    ``logs`` are those of the host that runs it, if one does.

    Raises:
        NonDeterminism: The code does something else than is recorded.
        HistoryTooNew: A newer release recorded it.
    """
    run = FlowRun(
        flow,
        id=recording.id,
        base=recording.base,
        input=recording.input,
        began_at_us=recording.began_at_us,
        headers=recording.headers,
        custom=recording.custom,
        attributes=recording.attributes,
        parent=recording.parent,
        on_error=_unheard,
        logs=logs,
    )
    try:
        run.begin(recording.rows)
        yield run
    finally:
        run.close()


def awaited_by(run: FlowRun) -> list[tuple[str, str]]:
    """What the code of a run waits for, as far as others have to do it: of which kind, and which.

    Signals by name, steps by identity and children by id. Of the clock its row tells.
    """
    waits = [("signal", name) for name in run.inbox.waiting]
    waits += [("step", identity) for identity in run.calling.steps]
    waits += [("child", call.id) for call in run.children.open.values()]
    return waits


def awaited_words(waits: Iterable[tuple[str, str]]) -> str:
    """The same on one line; empty if it is nothing."""
    # Of these three only the identity of a step cannot be taken for other words.
    return ", ".join(
        f"{kind} {name}" if kind == "step" else f"{kind} {name!r}" for kind, name in waits
    )


def _unheard(context: dict[str, Any]) -> None:
    """Leave errors of a copy alone: its flow has told of them."""
