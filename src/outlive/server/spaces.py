"""The namespaces that a server serves, each with its open ports.

Owns what the routes reach: a request gets the space of its principal's namespace, and never any
other.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from starlette.requests import Request

from outlive.clock import Clock, instant
from outlive.errors import ConfigurationError, UnsupportedByDriver
from outlive.flows.flows import Flows
from outlive.model.job import ClaimedJob, Enqueued, Entry
from outlive.names import HostId, JobId, Token
from outlive.ports.driver import Driver
from outlive.ports.job_store import JobStore
from outlive.ports.token_store import TokenStore
from outlive.runtime.hosts import Hosts
from outlive.runtime.runtime import Runtime
from outlive.server.access import Principal
from outlive.server.claim_ids import ClaimRef
from outlive.server.limits import Limits
from outlive.server.sessions import Sessions
from outlive.server.waiting import Waiters
from outlive.telemetry import Attribute, Span, Telemetry, events

Opened = Callable[[str, float], None]
"""Told of each session that is opened for a worker: the namespace, and the ttl in seconds."""

# Of W3C trace context: what does not look like it is not passed on, because it would be kept with
# the item and sent to whoever runs it.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")


# Claims in doubt on one server: those of every worker that never sends a heartbeat. The oldest is
# forgotten, and then only its session ends it.
_DOUBTED_MAX = 10_000

# Sessions whose queues are remembered; for one that is forgotten, the store is not looked at.
_ASKED_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One namespace: its jobs, its tokens, and the sessions and claims of its workers."""

    namespace: str
    driver: Driver
    jobs: JobStore
    tokens: TokenStore
    hosts: Hosts
    sessions: Sessions
    handed: Handed


def _space(namespace: str, driver: Driver, runtime: Runtime, opened: Opened) -> Space:
    jobs, hosts, tokens = driver.jobs, driver.hosts, driver.tokens
    if jobs is None or hosts is None or tokens is None:
        raise ConfigurationError(
            f"{driver.capabilities.backend} does not support jobs, so there is nothing to serve: "
            "use sqlite://, postgresql:// or redis://"
        )
    sessions = Sessions(hosts, runtime.clock, runtime.new_id, partial(opened, namespace))
    return Space(
        namespace=namespace,
        driver=driver,
        jobs=jobs,
        tokens=tokens,
        hosts=Hosts(driver),
        sessions=sessions,
        handed=Handed(runtime.clock),
    )


class Spaces:
    """All namespaces of one server, and what its routes share."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        runtime: Runtime,
        bounds: Limits,
        flows: Mapping[str, Flows],
        opened: Opened,
        telemetry: Telemetry,
    ) -> None:
        self._spaces = {
            name: _space(name, driver, runtime, opened) for name, driver in drivers.items()
        }
        self._flows = flows
        self.runtime = runtime
        self.bounds = bounds
        self.measuring = Measuring(telemetry, runtime.clock)
        self.waiters = Waiters(bounds.waiters_per_bearer)
        self._unsubscribe: list[Callable[[], None]] = []
        for name, driver in drivers.items():
            listener = partial(self.waiters.ring, name)
            self._unsubscribe.append(driver.wakeups.subscribe(listener))

    @property
    def clock(self) -> Clock:
        """The server's clock."""
        return self.runtime.clock

    @property
    def tokens(self) -> dict[str, TokenStore]:
        """The tokens of every namespace."""
        return {name: space.tokens for name, space in self._spaces.items()}

    @property
    def all(self) -> list[Space]:
        """Every namespace."""
        return list(self._spaces.values())

    def of(self, principal: Principal) -> Space:
        """The namespace that the principal's token belongs to."""
        return self._spaces[principal.namespace]

    def flows_of(self, principal: Principal) -> Flows:
        """The flows of the namespace that the principal's token belongs to.

        Raises:
            UnsupportedByDriver: Its store keeps none.
        """
        flows = self._flows.get(principal.namespace)
        if flows is None:
            raise UnsupportedByDriver("the store of this namespace does not support flows")
        return flows

    def at(self, deadline: float) -> tuple[datetime, float]:
        """A monotonic deadline as an instant for people, and the seconds until then."""
        left_s = max(0.0, deadline - self.clock.monotonic())
        return self.clock.now() + timedelta(seconds=left_s), left_s

    def close(self) -> None:
        """Stop listening and let waiters go. Repeatable."""
        self.waiters.stop()
        while self._unsubscribe:
            self._unsubscribe.pop()()


def trace_of(request: Request) -> dict[str, str]:
    """The trace that a request belongs to, as headers of W3C trace context; empty without one."""
    parent = request.headers.get("traceparent", "").strip()
    if _TRACEPARENT.fullmatch(parent) is None:
        return {}
    state = request.headers.get("tracestate", "").strip()
    if _TRACESTATE.fullmatch(state) is None:
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


class Measuring:
    """Tells one telemetry of the work of one server.

    An item or a worker is an attribute of a span and never a label.
    """

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock

    def span(self, verb: str, request: Request, **attributes: Attribute) -> Span:
        """A span around one act on jobs, which goes on with the trace of the request."""
        return self._telemetry.span(f"outlive.job.{verb}", trace_of(request), **attributes)

    def carried(self, request: Request) -> dict[str, str]:
        """The headers that an item brings to where it is run: those of the span around this."""
        own = self._telemetry.carrier() if self._telemetry.tracing else {}
        return own or trace_of(request)

    def enqueued(self, queue: str, entries: Sequence[Enqueued]) -> None:
        """This became of items that somebody wanted to add."""
        added = sum(entry.entry in (Entry.CREATED, Entry.REPLACED) for entry in entries)
        if added and self._telemetry.active:
            self._telemetry.record(events.JOBS_ENQUEUED, added, queue=queue)

    def claimed(self, job: ClaimedJob) -> None:
        """An item was given to a worker."""
        if self._telemetry.active:
            enqueued_at = instant(job.enqueued_at_us)
            waited_s = (self._clock.now() - enqueued_at).total_seconds()
            self._telemetry.record(events.JOBS_CLAIMED, queue=job.queue)
            self._telemetry.record(events.JOB_WAIT, max(0.0, waited_s), queue=job.queue)

    def settling(self, verb: str, request: Request, claim: ClaimRef) -> Span:
        """A span around the end of a claim."""
        return self.span(verb, request, id=claim.job, token=claim.token)

    def ended(self, queue: str, outcome: str) -> None:
        """A claim ended so; the server does not know how long its worker worked on the item."""
        if self._telemetry.active:
            self._telemetry.record(events.JOBS_ENDED, queue=queue, outcome=outcome)


class Handed:
    """The claims in doubt of one namespace, by session, oldest first.

    A claim lives as long as its session, which a worker keeps alive though the reply that brought
    the claim never reached it: the item would be nobody's. This server remembers what it gave until
    the worker names it once, in a heartbeat or by settling it. What another server gave, it finds
    in the store.
    """

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
