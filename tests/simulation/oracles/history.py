"""What happened, in true time: calls with their outcome, and a resource that keeps its own log.

Owns the record only. Must never judge it: that is the checker's part, which is pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.simulation.oracles.instance_history import InstanceHistory
from tests.simulation.oracles.job_history import JobHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One call of one process, from its start to its reply.

    ``ok`` is ``None`` where the outcome is unknown; ``t_end`` is infinite where no reply came.
    Operations by a user of leases are ``acquire renew release break write believe lost``; the
    same with ``store.`` before them is one request to the store. ``believe`` is an instant at
    which the owner's handle said that it owns the key. ``grant`` is unique to one acquire, across
    its retries, in the whole history.
    ``deadline`` is the owner's own, in true time, where it is known; ``rate`` is that of its clock.
    """

    proc: str
    op: str
    key: str
    t_start: float
    t_end: float
    ok: bool | None
    token: int | None = None
    ttl_s: float = 0.0
    slot: int = 0
    capacity: int = 1
    grant: str = ""
    deadline: float | None = None
    rate: float = 1.0

    def __str__(self) -> str:
        outcome = {True: "ok", False: "refused", None: "unknown"}[self.ok]
        return (
            f"{self.proc} {self.op} {self.key!r} [{self.t_start:.6f}, {self.t_end:.6f}] {outcome}"
            f" token={self.token} grant={self.grant}"
        )


@dataclass(slots=True, kw_only=True)
class Call:
    """A call under way; ``finish`` makes it an event with a reply."""

    clock: Callable[[], float]
    proc: str
    op: str
    key: str
    t_start: float
    ttl_s: float = 0.0
    capacity: int = 1
    grant: str = ""
    rate: float = 1.0
    token: int | None = None
    slot: int = 0
    ok: bool | None = None
    t_end: float = math.inf
    deadline: float | None = None

    def finish(
        self,
        *,
        ok: bool | None,
        token: int | None = None,
        slot: int | None = None,
        deadline: float | None = None,
    ) -> None:
        """The reply is here."""
        self.t_end = self.clock()
        self.ok = ok
        if token is not None:
            self.token = token
        if slot is not None:
            self.slot = slot
        self.deadline = deadline

    def event(self) -> Event:
        """The event as it stands now."""
        return Event(
            proc=self.proc,
            op=self.op,
            key=self.key,
            t_start=self.t_start,
            t_end=self.t_end,
            ok=self.ok,
            token=self.token,
            ttl_s=self.ttl_s,
            slot=self.slot,
            capacity=self.capacity,
            grant=self.grant,
            deadline=self.deadline,
            rate=self.rate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One write as the resource saw it, in its own order; ``t_start`` is when it was decided."""

    sequence: int
    key: str
    proc: str
    token: int
    accepted: bool
    t_start: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request as the store carried it out, in the store's own order, replies or not.

    Repeated and late requests are here as often as they were carried out. ``ahead`` is how many
    waiters a refused acquire was told to stand behind.
    """

    at: float
    op: str
    key: str
    grant: str
    ok: bool
    token: int = 0
    slot: int = 0
    ttl_s: float = 0.0
    limit: int = 1
    ahead: int = 0
    resume: bool = False


class FencedResource:
    """Something leases protect: it refuses a token lower than the newest it has seen.

    ``fenced=False`` accepts everything, which is the mistake fencing tokens exist to prevent.
    """

    def __init__(self, key: str, clock: Callable[[], float], *, fenced: bool = True) -> None:
        self.key = key
        self.newest = 0
        self.log: list[Applied] = []
        self._clock = clock
        self._fenced = fenced

    def apply(self, proc: str, token: int, t_start: float) -> bool:
        """Apply one write; whether it was accepted. Atomic."""
        accepted = token >= self.newest or not self._fenced
        if accepted:
            self.newest = max(self.newest, token)
        self.log.append(
            Applied(
                sequence=len(self.log),
                key=self.key,
                proc=proc,
                token=token,
                accepted=accepted,
                t_start=t_start,
                at=self._clock(),
            )
        )
        return accepted


@dataclass(slots=True)
class History:
    """Everything one run recorded. ``crashed`` maps a process to when it was killed."""

    seed: int
    clock: Callable[[], float]
    calls: list[Call] = field(default_factory=list[Call])
    served: list[Served] = field(default_factory=list[Served])
    resources: dict[str, FencedResource] = field(default_factory=dict[str, FencedResource])
    crashed: dict[str, float] = field(default_factory=dict[str, float])
    frozen: bool = False
    jobs: JobHistory = field(init=False)
    instances: InstanceHistory = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = JobHistory(self.seed, self.clock)
        self.instances = InstanceHistory(self.seed, self.clock)

    def start(
        self,
        proc: str,
        op: str,
        key: str,
        *,
        ttl_s: float = 0.0,
        capacity: int = 1,
        grant: str = "",
        rate: float = 1.0,
        token: int | None = None,
        slot: int = 0,
    ) -> Call:
        """Note that a call begins now."""
        call = Call(
            clock=self.clock,
            proc=proc,
            op=op,
            key=key,
            t_start=self.clock(),
            ttl_s=ttl_s,
            capacity=capacity,
            grant=grant,
            rate=rate,
            token=token,
            slot=slot,
        )
        if not self.frozen:
            self.calls.append(call)
        return call

    def note(self, proc: str, op: str, key: str, *, grant: str, token: int, slot: int = 0) -> None:
        """Note something that took no time, such as ``believe`` or ``lost``."""
        self.start(proc, op, key, grant=grant, token=token, slot=slot).finish(ok=True)

    def serve(self, served: Served) -> None:
        """Note that the store carried out a request."""
        if not self.frozen:
            self.served.append(served)

    def resource(self, key: str, *, fenced: bool = True) -> FencedResource:
        """The resource that ``key`` protects; the same one each time."""
        if key not in self.resources:
            self.resources[key] = FencedResource(key, self.clock, fenced=fenced)
        return self.resources[key]

    def crash(self, proc: str) -> None:
        """Note that ``proc`` was killed now: it believes nothing any more."""
        self.crashed.setdefault(proc, self.clock())

    def freeze(self) -> None:
        """Record nothing further: what follows is the dismantling of the run."""
        self.frozen = True

    def events(self) -> Sequence[Event]:
        """All events, in order of their start."""
        return [call.event() for call in self.calls]

    def applied(self) -> Sequence[Applied]:
        """All writes, resource by resource, in the order each resource saw them."""
        return [entry for key in sorted(self.resources) for entry in self.resources[key].log]
