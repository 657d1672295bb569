"""Rows of instances as callers see them: claims and records, and which of them a filter means.

Pure.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from outlive.clock import instant
from outlive.drivers.memory.instance_rows import InstanceRow
from outlive.model.instance import (
    LETTERS_MAX,
    ClaimedInstance,
    InstanceFilter,
    InstanceRecord,
    Letter,
)
from outlive.names import Token


def letters_of(row: InstanceRow, after: int, limit: int) -> tuple[Letter, ...]:
    """The letters of a mailbox behind a number."""
    behind = (letter for number, letter in row.letters.items() if number > after)
    return tuple(islice(behind, max(0, min(limit, LETTERS_MAX))))


def claimed_of(row: InstanceRow) -> ClaimedInstance:
    """What an owner is given."""
    return ClaimedInstance(
        row.id,
        row.new.kind,
        row.new.name,
        Token(row.token),
        row.version,
        row.base,
        row.input,
        row.began_us,
        row.new.parent,
        row.new.headers,
        row.attributes,
        row.custom,
        letters_of(row, 0, LETTERS_MAX),
        row.owner is not None and row.owner.first,
    )


def record_of(row: InstanceRow) -> InstanceRecord:
    """Everything that is known of an instance."""
    owner = row.owner
    return InstanceRecord(
        id=row.id,
        kind=row.new.kind,
        name=row.new.name,
        status=row.status,
        input=row.input,
        outcome=row.outcome,
        custom=row.custom,
        attributes=row.attributes,
        headers=row.new.headers,
        parent=row.new.parent,
        token=Token(row.token),
        version=row.version,
        base=row.base,
        owner=owner.session if owner is not None else None,
        owned_by=owner.worker if owner is not None else None,
        created_at=instant(row.created_us),
        began_at_us=row.began_us,
        updated_at=instant(row.updated_us),
        ended_at=instant(row.ended_us) if row.ended_us is not None else None,
        due_at=instant(row.due_us) if row.due_us is not None else None,
        cursor=str(row.number),
    )


def matches(row: InstanceRow, wanted: InstanceFilter) -> bool:
    """Whether an instance is meant."""
    new, ended_us = row.new, row.ended_us
    return (
        (wanted.kind is None or new.kind == wanted.kind)
        and (not wanted.names or new.name in wanted.names)
        and (not wanted.statuses or row.status in wanted.statuses)
        and (wanted.prefix is None or row.id.startswith(wanted.prefix))
        and (wanted.parent is None or new.parent == wanted.parent)
        and (wanted.created_from_us is None or row.created_us >= wanted.created_from_us)
        and (wanted.created_before_us is None or row.created_us < wanted.created_before_us)
        and (
            wanted.ended_before_us is None
            or (ended_us is not None and ended_us < wanted.ended_before_us)
        )
        and (wanted.attributes is None or _has(row.attributes, wanted.attributes))
        and (wanted.has_attribute is None or wanted.has_attribute in _members(row.attributes))
    )


def _has(attributes: str, wanted: str) -> bool:
    mine = _members(attributes)
    return all(_equal(mine.get(name), value) for name, value in _members(wanted).items())


def _members(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def _equal(one: object, other: object) -> bool:
    # To Python a boolean is a number; in JSON it is none.
    return one == other and isinstance(one, bool) == isinstance(other, bool)
