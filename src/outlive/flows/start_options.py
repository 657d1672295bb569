"""What may be said of flows beside their arguments, for type checkers, and what may not.

A flow's arguments stand before its options in one call. Python's types cannot join the two for any
number of parameters without losing defaults, or what a list is to be a list of: so the calls are
declared once for each number of arguments, and say their options by these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, NoReturn, TypedDict

from outlive.errors import UsageError
from outlive.model.options import Duration
from outlive.model.schedule import CatchUp
from outlive.work.drafting import JobOptions


class StartOptions(TypedDict, total=False):
    """Of one start; see ``Flows.start``."""

    id: str | None
    at: datetime | None
    delay: Duration | None
    attributes: Mapping[str, Any] | None
    anywhere: bool
    tx: object


class StartManyOptions(TypedDict, total=False):
    """Of many starts; see ``Flows.start_many``."""

    ids: Sequence[str] | None
    at: datetime | None
    delay: Duration | None
    attributes: Mapping[str, Any] | None
    tx: object


class TickOptions(JobOptions, total=False):
    """Of a flow that a timetable starts; see ``Schedules.create``."""

    tz: str | tzinfo
    catch_up: CatchUp | str
    catch_up_limit: int


class TimetableOptions(TickOptions, total=False):
    """The same, and the timetable itself; see ``Flows.schedule``."""

    cron: str | None
    every: Duration | None


def refuse_options(unknown: Mapping[str, Any]) -> NoReturn:
    """Refuse what no start has for an option: it may be meant for the flow.

    Raises:
        UsageError: Always.
    """
    shown = ", ".join(f"{name!r}: …" for name in unknown)
    raise UsageError(
        f"{', '.join(map(repr, unknown))} is not a start option; pass the arguments of the flow "
        f"by position, or by name as kwargs={{{shown}}}"
    )
