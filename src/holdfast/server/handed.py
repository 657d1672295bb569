"""Claims that were handed out, and of which the worker has not been heard to know.

Owns the doubt about a lost reply. A claim lives as long as its session, which a worker keeps alive
though the reply that brought the claim never reached it: the item would be nobody's. This server
remembers what it gave until the worker names it once, in a heartbeat or by settling it.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.clock import Clock
from holdfast.names import HostId, JobId, Token

# Claims in doubt on one server: those of every worker that never sends a heartbeat. The oldest is
# forgotten, and then only its session ends it.
_DOUBTED_MAX = 10_000


class Handed:
    """The claims in doubt of one namespace, by session, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: OrderedDict[tuple[HostId, JobId], tuple[Token, float]] = OrderedDict()
        self._of: dict[HostId, set[JobId]] = {}

    def gave(self, session: HostId, job: JobId, token: Token) -> bool:
        """A reply with this claim is on its way; false if it is a repeat of an earlier one."""
        before = self._given.pop((session, job), None)
        self._given[session, job] = (token, self._clock.monotonic())
        self._of.setdefault(session, set()).add(job)
        if len(self._given) > _DOUBTED_MAX:
            self.heard(*next(iter(self._given)))
        return before is None or before[0] != token

    def heard(self, session: HostId, job: JobId) -> None:
        """The worker named it: it has the reply, and the claim is its own affair."""
        if self._given.pop((session, job), None) is not None:
            jobs = self._of[session]
            jobs.discard(job)
            if not jobs:
                del self._of[session]

    def lost(self, session: HostId, ttl_s: float) -> list[tuple[JobId, Token]]:
        """What the session was given ``ttl_s`` ago or earlier, without a word since.

        No reply takes that long: its worker would have to take the claim for ended by then.
        """
        until = self._clock.monotonic() - ttl_s
        given = ((job, *self._given[session, job]) for job in self._of.get(session, ()))
        return [(job, token) for job, token, at in given if at <= until]
