"""What a backend can and cannot keep, as data.

The conformance suite asks these, never the driver's name, and the table in the documentation is
generated from them. A driver that cannot do a thing says so here; it never pretends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The promises of one backend.

    Attributes:
        backend: Its name, as people say it.
        fifo: Waiters are served in order of arrival.
        push: A waiter is woken when a key is released, without polling.
        history: The ended grants of a key can be read back.
        semaphore: A key may have more than one slot.
        multi_key: Several keys may be acquired together.
        sessions: Hosts keep a session (the ``HostStore`` port).
        guard: Kinds of transaction that ``Lease.guard`` accepts; empty if it cannot guard.
        across: How far one store reaches: ``process``, ``machine`` or ``network``.
        clock: Whose clock judges expiry, in a few words.
        drift: The clock rate difference to allow for; 0 where owner and store share one clock.
        ttl_min_s: The shortest ttl the backend accepts.
        ttl_max_s: The longest, or ``None`` for no limit of its own.
        jobs: Work can be queued and claimed (the ``JobStore`` port).
        ordering: Jobs may have an ordering key.
        queue_limits: A queue may have a limit of concurrency and of rate for the whole fleet.
        schedules: Ticks become jobs, one in the fleet for each (the ``ScheduleStore`` port).
        instances: Flows can be kept and taken over (the ``InstanceStore`` port).
        transact: A step's writes can commit with its record: ``sync`` or ``async`` as its body must
            be, or ``""`` for not at all.
        observes: A host that has watched a key for one ttl may take it from a silent owner, by the
            host's own clock and without the store's.
    """

    backend: str
    fifo: bool
    push: bool
    history: bool
    semaphore: bool
    multi_key: bool
    sessions: bool
    guard: tuple[str, ...]
    across: str
    clock: str
    drift: float
    ttl_min_s: float
    ttl_max_s: float | None
    jobs: bool = False
    ordering: bool = False
    queue_limits: bool = False
    schedules: bool = False
    instances: bool = False
    transact: str = ""
    observes: bool = False
