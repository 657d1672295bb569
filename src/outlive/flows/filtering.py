"""Which flows are meant: filters as callers give them, checked, and as a store takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from outlive.errors import UsageError
from outlive.flows.attributes import ATTRIBUTES_BYTES_MAX, STUCK
from outlive.model.instance import FINAL, LIVE, InstanceFilter, InstanceStatus
from outlive.names import InstanceId, check_key
from outlive.serialization import encode_json

Statuses = InstanceStatus | str | Iterable[InstanceStatus | str] | None
"""One status, several, or all of them."""


def flow_filter(  # noqa: PLR0913 - as many as callers have
    *,
    name: str | None = None,
    status: Statuses = None,
    prefix: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    parent: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    stuck: bool = False,
) -> InstanceFilter:
    """The flows to look at.

    Raises:
        UsageError: A status is unknown, an instant has no time zone, or an attribute is no string,
            number or boolean.
    """
    statuses = _statuses(status)
    nobody = False
    if stuck:
        # What was terminated while it was stuck keeps the reason, and needs no repair.
        statuses = tuple(each for each in statuses or LIVE if each in LIVE)
        nobody = not statuses
    return InstanceFilter(
        kind="flow",
        names=() if name is None else (name,),
        statuses=statuses,
        prefix=prefix,
        parent=None if parent is None else InstanceId(check_key(parent, "the id of a parent")),
        attributes=_attributes(attributes) if attributes else None,
        created_from_us=_micros(created_after, "created_after"),
        created_before_us=_micros(created_before, "created_before"),
        has_attribute=STUCK if stuck else None,
        # Nothing ended before 1970.
        ended_before_us=0 if nobody else None,
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
        raise UsageError("only ended flows can be purged: terminate live flows first")
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
        raise UsageError("status= is empty: name at least one status, or leave status= out")
    try:
        return tuple(InstanceStatus(each) for each in given)
    except ValueError:
        known = ", ".join(InstanceStatus)
        raise UsageError(f"{status!r} is not a status of a flow; known statuses: {known}") from None


def _attributes(attributes: Mapping[str, Any]) -> str:
    for name, value in attributes.items():
        if not isinstance(value, (str, int, float)):
            # None of them was ever set so: nothing would be found, whatever there is.
            raise UsageError(
                f"attribute {name!r} must be filtered by a string, a number or a boolean, not "
                f"{value!r}"
            )
    return encode_json(dict(attributes), "the attributes", limit=ATTRIBUTES_BYTES_MAX)


def _micros(instant: datetime | None, what: str) -> int | None:
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise UsageError(f"{what} must be a datetime with a time zone, such as datetime.now(UTC)")
    return round(instant.timestamp() * 1e6)
