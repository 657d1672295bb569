"""Which flows are meant: filters as callers give them, checked, and as a store takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.codec import encode_json
from holdfast.errors import UsageError
from holdfast.flows.attributes import ATTRIBUTES_BYTES_MAX
from holdfast.model.instance import FINAL, InstanceFilter, InstanceStatus
from holdfast.names import InstanceId, check_key

Statuses = InstanceStatus | str | Iterable[InstanceStatus | str] | None
"""One status, several, or all of them."""


def flow_filter(
    *,
    name: str | None = None,
    status: Statuses = None,
    prefix: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    parent: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> InstanceFilter:
    """The flows to look at.

    Raises:
        UsageError: A status is unknown, an instant has no time zone, or attributes are no JSON.
    """
    return InstanceFilter(
        kind="flow",
        names=() if name is None else (name,),
        statuses=_statuses(status),
        prefix=prefix,
        parent=None if parent is None else InstanceId(check_key(parent)),
        attributes=None
        if not attributes
        else encode_json(dict(attributes), "the attributes", limit=ATTRIBUTES_BYTES_MAX),
        created_from_us=_micros(created_after, "created_after"),
        created_before_us=_micros(created_before, "created_before"),
    )


def ended_filter(
    *, name: str | None, status: Statuses, ended_before_us: int | None
) -> InstanceFilter:
    """The ended flows to purge.

    Raises:
        UsageError: A status is unknown, or not final.
    """
    statuses = _statuses(status) or FINAL
    if any(each not in FINAL for each in statuses):
        raise UsageError("only flows that have ended are purged: terminate live ones first")
    return InstanceFilter(
        kind="flow",
        names=() if name is None else (name,),
        statuses=statuses,
        ended_before_us=ended_before_us,
    )


def _statuses(status: Statuses) -> tuple[InstanceStatus, ...]:
    if status is None:
        return ()
    given = (status,) if isinstance(status, str) else tuple(status)
    if not given:
        # A caller who computed which are meant, and found none, does not mean every flow.
        raise UsageError("name at least one status, or leave status out")
    try:
        return tuple(InstanceStatus(each) for each in given)
    except ValueError:
        known = ", ".join(InstanceStatus)
        raise UsageError(f"{status!r} is no status of a flow; known: {known}") from None


def _micros(instant: datetime | None, what: str) -> int | None:
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise UsageError(f"{what} is an aware datetime, such as datetime.now(UTC)")
    return round(instant.timestamp() * 1e6)
