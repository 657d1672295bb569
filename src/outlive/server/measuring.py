"""What is told of work that comes over HTTP: counters, spans, and whose trace an item belongs to.

Owns the names of these spans. A label is one of the fixed values of the telemetry; a queue, an item
or a worker is an attribute of a span and never a label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starlette.requests import Request

from outlive.clock import Clock
from outlive.model.job import ClaimedJob, Enqueued, Entry
from outlive.server.claim_ids import ClaimRef
from outlive.telemetry import Attribute, Span, Telemetry

# Of W3C trace context: what does not look like it is not passed on, because it would be kept with
# the item and sent to whoever runs it.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """Tells one telemetry of the work of one server."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock

    def span(self, verb: str, request: Request, **attributes: Attribute) -> Span:
        """A span around one act on jobs, which goes on with the trace of the request."""
        return self._telemetry.job_span(f"outlive.job.{verb}", trace_of(request), **attributes)

    def carried(self, request: Request) -> dict[str, str]:
        """The headers that an item brings to where it is run: those of the span around this."""
        own = self._telemetry.carrier() if self._telemetry.tracing else {}
        return own or trace_of(request)

    def enqueued(self, entries: Sequence[Enqueued]) -> None:
        """This became of items that somebody wanted to add."""
        added = sum(entry.entry in (Entry.CREATED, Entry.REPLACED) for entry in entries)
        if added and self._telemetry.active:
            self._telemetry.enqueued(added)

    def claimed(self, job: ClaimedJob) -> None:
        """An item was given to a worker."""
        if self._telemetry.active:
            enqueued_at = _EPOCH + timedelta(microseconds=job.enqueued_at_us)
            waited_s = (self._clock.now() - enqueued_at).total_seconds()
            self._telemetry.claimed(1)
            self._telemetry.job_waited(max(0.0, waited_s))

    def settling(self, verb: str, request: Request, claim: ClaimRef) -> Span:
        """A span around the end of a claim."""
        return self.span(verb, request, id=claim.job, token=claim.token)

    def ended(self, outcome: str) -> None:
        """A claim ended so; nobody here knows how long the item was worked on."""
        if self._telemetry.active:
            self._telemetry.job_ended(outcome, None)
