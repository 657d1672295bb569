"""Fencing for data that is not in the lease's own database: the rule, as pieces of SQL.

A row keeps the newest token that has written it, and a statement that carries an older one changes
nothing. Owns the words of that rule and the reading of its outcome; runs nothing itself. Where data
and leases share a database, ``Lease.guard`` is stronger and needs no column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from outlive.errors import Fenced, UsageError
from outlive.work.current import Current, current

# The name becomes part of a statement: plain identifiers, as every database knows them, with the
# table's name before it if one is wanted.
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

# How database libraries write the place of a value: ? ?1 :name $1 %s %(name)s @name
_PARAMETER = re.compile(r"\?\d*|[:@$][A-Za-z0-9_]+|%s|%\([A-Za-z0-9_]+\)s")


class Tokened(Protocol):
    """A lease, of either façade: what a fence needs to know of it."""

    @property
    def key(self) -> str:
        """The key that is owned."""
        ...

    @property
    def token(self) -> int:
        """The fencing token; raises ``LeaseLost`` once lost or released."""
        ...


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence column of a table, and how its library writes a value.

    ``UPDATE report SET text = :text, {fence.set} WHERE id = :id AND {fence.where}``

    Give the statement ``lease.token`` as the value, read anew for each write, and hand the number
    of rows it changed to ``check``. All who write the row must use the fence: one that leaves it
    out undoes it for all.

    Raises:
        UsageError: ``column`` is no plain name, or ``parameter`` no placeholder.
    """

    column: str = "fence"
    parameter: str = ":token"

    def __post_init__(self) -> None:
        if _COLUMN.fullmatch(self.column) is None:
            raise UsageError(f"column {self.column!r} is not a plain column name")
        if _PARAMETER.fullmatch(self.parameter) is None:
            raise UsageError(
                f"parameter {self.parameter!r} is not a placeholder such as :token, $1, %s or "
                "%(token)s"
            )

    @property
    def set(self) -> str:
        """For the SET clause: the row remembers this token."""
        return f"{self.column.rpartition('.')[2]} = {self.parameter}"

    @property
    def where(self) -> str:
        """For the WHERE clause: the row has seen no newer token."""
        return f"{self.column} <= {self.parameter}"


class RunningFence:
    """The fence of the handler or step that runs: its token, read anew for each write."""

    __slots__ = ("_current",)

    def __init__(self, running: Current) -> None:
        self._current = running

    def __repr__(self) -> str:
        return f"<fence of {self.key!r}>"

    @property
    def key(self) -> str:
        """What owns: the flow whose step runs, or the job."""
        return self._current.flow or self._current.job

    @property
    def token(self) -> int:
        """Grows with each owner; raises ``ClaimLost`` once this one does not own any more."""
        return self._current.token

    def check(self, changed: int | str) -> None:
        """Judge a fenced statement by the number of rows it changed; raises ``Fenced``."""
        check(self, changed)


def fence() -> RunningFence:
    """The fence of the handler or step that this code runs for, for a ``Fence`` column.

    Of one flow, or of one job, tokens only grow: a row that has seen a newer one was written by
    whoever took over.

    Raises:
        UsageError: Not inside a handler or a step.
    """
    return RunningFence(current())


def check(lease: Tokened, changed: int | str) -> None:
    """Judge a fenced statement by the number of rows it changed.

    ``changed`` is what the database library says: a row count, or a text that ends with one, such
    as asyncpg's ``UPDATE 1``. Nothing was changed if this raises.

    Raises:
        Fenced: No row: a newer owner has written it, or it is not there. Roll back and stop.
        UsageError: The library does not know how many rows were changed.
    """
    count = changed if isinstance(changed, int) else _count_of(changed)
    if count < 0:
        raise UsageError(f"check() needs the number of changed rows, not {changed!r}")
    if count == 0:
        raise Fenced(
            lease.key,
            message=f"the write under lease {lease.key!r} was refused: the row holds a newer "
            "token, or does not exist",
        )


def _count_of(status: object) -> int:
    # Whatever a library returns where it does not count, None included.
    last = status.rpartition(" ")[2] if isinstance(status, str) else ""
    return int(last) if last.isdecimal() else -1
