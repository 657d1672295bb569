"""Claims that were handed out, and of which the worker has not been heard to know.

Owns the doubt about a lost reply. A claim lives as long as its session, which a worker keeps alive
though the reply that brought the claim never reached it: the item would be nobody's. This server
remembers what it gave until the worker names it once, in a heartbeat or by settling it. What
another server gave, it finds in the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from outlive.clock import Clock
from outlive.names import HostId, JobId, Token

# Claims in doubt on one server: those of every worker that never sends a heartbeat. The oldest is
# forgotten, and then only its session ends it.
_DOUBTED_MAX = 10_000

# Sessions whose queues are remembered; for one that is forgotten, the store is not looked at.
_ASKED_MAX = 10_000


class Handed:
    """The claims in doubt of one namespace, by session, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: OrderedDict[tuple[HostId, JobId], tuple[Token, float]] = OrderedDict()
        self._of: dict[HostId, set[JobId]] = {}
        # The queues that a session asked for last, and when the store was looked at for it.
        self._asked: OrderedDict[HostId, tuple[Sequence[str], float]] = OrderedDict()

    def gave(self, session: HostId, job: JobId, token: Token) -> bool:
        """A reply with this claim is on its way; false if it is a repeat of an earlier one."""
        before = self._given.pop((session, job), None)
        self._given[session, job] = (token, self._clock.monotonic())
        self._of.setdefault(session, set()).add(job)
        if len(self._given) > _DOUBTED_MAX:
            self.heard(*next(iter(self._given)))
        return before is None or before[0] != token

    def found(self, session: HostId, job: JobId, token: Token) -> None:
        """The store has this claim, and the worker did not name it. In doubt from now on."""
        before = self._given.get((session, job))
        if before is None or before[0] != token:
            self.gave(session, job, token)

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

    def asked(self, session: HostId, queues: Sequence[str]) -> None:
        """The session wants work of these queues: what it has claimed is in one of them."""
        _, looked = self._asked.pop(session, ((), self._clock.monotonic()))
        self._asked[session] = (queues, looked)
        if len(self._asked) > _ASKED_MAX:
            self._asked.popitem(last=False)

    def to_look(self, session: HostId, ttl_s: float) -> Sequence[str]:
        """The queues in which to look for claims of the session now: none, most of the time.

        Once in a ttl is enough, because what is found stays in doubt for as long.
        """
        queues, looked = self._asked.get(session, ((), 0.0))
        now = self._clock.monotonic()
        if not queues or now - looked < ttl_s:
            return ()
        self._asked[session] = (queues, now)
        return queues
