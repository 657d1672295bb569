"""Roles: functions that one host of the fleet runs at a time, as an app defines them.

Values; nothing here runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from outlive.errors import UsageError
from outlive.leases.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRole:
    """A function that runs while its host leads."""

    key: str
    function: Callable[[Lease], Awaitable[None]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicRole:
    """A function that one host runs at each tick."""

    key: str
    interval_s: float
    function: Callable[..., Awaitable[None] | None]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def check_leader(function: object, key: str) -> None:
    """Look whether ``function`` can lead.

    Raises:
        UsageError: It is a plain ``def``.
    """
    if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
        raise UsageError(f"leader {key!r}: write it as `async def {function.__name__}(lease)`")
