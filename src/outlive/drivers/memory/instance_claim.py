"""Which instances a claim takes, and what it says beside them.

Works on one ``InstanceStep``; checks no session and rings nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlive.drivers.memory.instance_rows import DefinitionRow, InstanceRow, OwnerRow
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.model.instance import CLAIM_MAX, InstanceClaimRequest
from outlive.names import HostId, InstanceId


class _Candidate(NamedTuple):
    since_us: int
    number: int
    id: InstanceId


def claimed_before(step: InstanceStep, request: InstanceClaimRequest) -> list[InstanceRow]:
    """What the session owns by the same request and has not committed since."""
    rows = step.table.rows
    mine = [rows[id_] for id_ in step.table.owned.get(request.session, ())]
    return [
        row
        for row in mine
        if row.owner is not None
        and row.owner.request == request.request
        and row.owner.version == row.version
    ]


def take(step: InstanceStep, request: InstanceClaimRequest, host: HostId) -> list[InstanceRow]:
    """Claim instances of the wanted definitions, the longest due first."""
    table, taken = step.table, list[InstanceRow]()
    wanted = _wanted(step, request)
    while len(taken) < min(request.limit, CLAIM_MAX):
        candidates = [found for one in wanted if (found := _first(one, step.now_us)) is not None]
        if not candidates:
            break
        row = table.rows[min(candidates).id]
        owner = OwnerRow(
            request.session, host, request.worker, request.request, row.version, row.token == 0
        )
        step.begin_by_now(row)
        step.take(row, owner)
        taken.append(row)
    return taken


def next_due_s(step: InstanceStep, request: InstanceClaimRequest) -> float | None:
    """How long until the next instance of the wanted definitions comes due."""
    firsts = [found for one in _wanted(step, request) if (found := one.due.first()) is not None]
    if not firsts:
        return None
    return max(0, min(key[0] for key, _ in firsts) - step.now_us) / 1e6


def leave_notes(step: InstanceStep, request: InstanceClaimRequest, host: HostId) -> None:
    """Remember that a host waits for the wanted definitions."""
    until_us = step.clock_us + request.wait_us
    for name in request.names:
        notes = step.table.definition(request.kind, name).notes
        notes[host] = max(until_us, notes.get(host, 0))


def with_letters(
    step: InstanceStep, session: HostId, taken: Sequence[InstanceRow]
) -> tuple[InstanceId, ...]:
    """What the session owned before this claim and has letters for."""
    new = {row.id for row in taken}
    rows = step.table.rows
    owned = step.table.owned.get(session, ())
    return tuple(id_ for id_ in owned if rows[id_].letters and id_ not in new)


def _wanted(step: InstanceStep, request: InstanceClaimRequest) -> list[DefinitionRow]:
    definitions = step.table.definitions
    keys = dict.fromkeys((request.kind, name) for name in request.names)
    return [definitions[key] for key in keys if key in definitions]


def _first(definition: DefinitionRow, now_us: int) -> _Candidate | None:
    """What has waited longest: a letter makes an instance due when it is sent."""
    firsts = [found for found in (definition.mailed.first(),) if found is not None]
    due = definition.due.first()
    if due is not None and due[0][0] <= now_us:
        firsts.append(due)
    return min((_Candidate(key[0], key[1], id_) for key, id_ in firsts), default=None)
