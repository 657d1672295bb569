"""What happened to instances, in true time: what the store carried out, who ran and sent what.

Owns the record only; ``instance_checker`` judges it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outlive.model.instance import (
    Commit,
    Handback,
    HistoryRow,
    InstanceRecord,
    Letter,
    Message,
    NewInstance,
)

Asked = NewInstance | Commit | Handback | Message
"""What a member of a request asked for, where the record of it needs more than a few fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceServed:
    """One member of one request as the store carried it out, in the store's own order.

    ``op`` is the method of the port, or ``session.end``. ``outcome`` is the port's word for what
    became of it; ``ok`` and ``refused`` where the port says true and false. ``at_us`` is the
    store's wall clock, where the reply tells it.
    """

    at: float
    op: str
    instance: str
    outcome: str = "ok"
    token: int = 0
    session: str = ""
    version: int = 0
    at_us: int = 0
    request: str = ""
    events: str = "[]"
    asked: Asked | None = None
    letters: tuple[Letter, ...] = ()
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """An instant at which the body of a step ran, on a host that believed in its token.

    ``after`` is how much the store had carried out by then: the two records have one order. ``key``
    is the idempotency key that the body was given, ``input`` what it was called with.
    """

    at: float
    after: int
    proc: str
    instance: str
    key: str
    token: int
    input: str = ""
    once: bool = False


@dataclass(slots=True, kw_only=True)
class Posted:
    """A message as its sender knows it: asked for first, and acknowledged first."""

    to: str
    id: str
    asked_at: float
    acknowledged_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Left:
    """An instance as the store shows it when all had had time enough."""

    record: InstanceRecord
    rows: Sequence[HistoryRow]


@dataclass(slots=True)
class InstanceHistory:
    """Everything one run recorded of its instances.

    ``acknowledged`` are the ids whose start was answered with success. ``left`` is what the store
    said at the end; ``healed_at`` is when the last fault was over.
    """

    seed: int
    clock: Callable[[], float]
    served: list[InstanceServed] = field(default_factory=list[InstanceServed])
    ran: list[Ran] = field(default_factory=list[Ran])
    posted: dict[tuple[str, str], Posted] = field(default_factory=dict[tuple[str, str], Posted])
    acknowledged: set[str] = field(default_factory=set[str])
    left: dict[str, Left] | None = None
    healed_at: float = 0.0

    def run(
        self,
        proc: str,
        instance: str,
        key: str,
        token: int,
        *,
        input: str = "",  # noqa: A002 - it is one
        once: bool = False,
    ) -> None:
        """Note that ``proc`` runs the body of a step now, under a token it believes in."""
        self.ran.append(
            Ran(
                at=self.clock(),
                after=len(self.served),
                proc=proc,
                instance=instance,
                key=key,
                token=token,
                input=input,
                once=once,
            )
        )

    def post(self, message: Message) -> Posted:
        """Note that somebody sends a message now, or sends it again."""
        posted = Posted(to=message.to, id=message.id, asked_at=self.clock())
        return self.posted.setdefault((message.to, message.id), posted)

    def acknowledge(self, posted: Posted) -> None:
        """Note that the sender has heard that it is there."""
        posted.acknowledged_at = min(posted.acknowledged_at, self.clock())
