"""Drafting: what a caller says of a job becomes the ``NewJob`` that a store takes, or is refused.

Everything is checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

import msgspec

from outlive.clock import microseconds
from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.job import MAX_LOSSES, PRIORITY_MAX, NewJob, OnDuplicate
from outlive.model.options import TTL_MAX_S, Duration, seconds
from outlive.model.retry import Retry, check_max_attempts
from outlive.names import JobId, check_key
from outlive.ports.capabilities import Capabilities
from outlive.runtime.runtime import Runtime
from outlive.serialization import METADATA_BYTES_MAX, encode, encode_json
from outlive.telemetry import Telemetry
from outlive.work.handler import Handler, check_target

# Results are looked at within a day; who keeps them longer says so.
RETENTION_S = 86_400.0

# The stores keep instants in microseconds as whole numbers that a double holds: until June 2255.
DUE_AT_US_MAX = 2**53


_DEFAULT_RETRY = Retry()


class JobOptions(TypedDict, total=False):
    """What may be said of a job beside its payload; see ``Work.enqueue``."""

    id: str | None
    priority: int
    delay: Duration
    at: datetime | None
    unique_key: str | None
    on_duplicate: str
    ordering_key: str | None
    max_attempts: int | None
    retry: Retry | None
    expires: Duration | None
    retention: Duration | None
    headers: Mapping[str, str] | None


class Drafts:
    """Makes new jobs for one host."""

    def __init__(self, runtime: Runtime, capabilities: Capabilities, telemetry: Telemetry) -> None:
        self._runtime = runtime
        self._capabilities = capabilities
        self._telemetry = telemetry

    def draft(
        self, target: Handler[Any, Any] | str, payload: object, options: JobOptions
    ) -> NewJob:
        """The job of one payload.

        Raises:
            UsageError, InvalidName: The arguments are wrong.
            UnsupportedByDriver: An ordering key, where the backend has none.
        """
        return msgspec.structs.replace(
            self.template(target, options),
            id=self._id(options.get("id")),
            payload=self.payload(target, payload),
        )

    def drafts(
        self, target: Handler[Any, Any] | str, payloads: list[Any], options: JobOptions
    ) -> list[NewJob]:
        """The jobs of many payloads that have everything else in common. Raises as ``draft``."""
        if options.get("id") is not None and len(payloads) > 1:
            raise UsageError(
                "id= names one job: leave it out, and enqueue_many gives every job its own id"
            )
        shared = msgspec.structs.asdict(self.template(target, options))
        del shared["id"], shared["payload"]
        wanted = options.get("id")
        ids = (
            self._runtime.ordered_ids(len(payloads))
            if wanted is None
            else [check_key(wanted, "id")]
        )
        return [
            NewJob(id=JobId(each), payload=self.payload(target, payload), **shared)
            for each, payload in zip(ids, payloads, strict=False)
        ]

    def payload(self, target: Handler[Any, Any] | str, payload: object) -> str:
        """The JSON of a payload; one that does not fit its handler is refused."""
        if isinstance(target, Handler):
            payload = target.takes.fitted(payload, f"queue {target.queue!r}")
        return encode(payload, "the payload")

    def template(self, target: Handler[Any, Any] | str, options: JobOptions) -> NewJob:
        """A job with everything but its id and payload."""
        if isinstance(target, Handler):
            queue, handled = target.queue, target.options
            base, losses = handled.retry, handled.max_losses
        else:
            queue, base, losses = check_target(target), _DEFAULT_RETRY, MAX_LOSSES
        headers = self._headers(options.get("headers"))
        if not options:
            # The usual case: nothing to check.
            return NewJob(
                id=JobId(""),
                queue=queue,
                payload="",
                max_attempts=base.max_attempts,
                max_losses=losses,
                headers=headers,
            )
        retry, attempts = _retry(base, options)
        return NewJob(
            id=JobId(""),
            queue=queue,
            payload="",
            priority=_priority(options.get("priority", 0)),
            delay_us=_microseconds(options.get("delay", 0), "delay"),
            due_at_us=_due_at(options),
            unique_key=_key(options, "unique_key"),
            on_duplicate=_on_duplicate(options),
            ordering_key=self._ordering(_key(options, "ordering_key")),
            max_attempts=attempts,
            max_losses=losses,
            retry=retry,
            expires_us=_optional(options.get("expires"), "expires"),
            retention_us=_retention(options.get("retention")),
            headers=headers,
        )

    def _id(self, wanted: str | None) -> JobId:
        return JobId(self._runtime.ordered_id() if wanted is None else check_key(wanted, "id"))

    def _ordering(self, key: str | None) -> str | None:
        if key is not None and not self._capabilities.ordering:
            raise UnsupportedByDriver(
                f"{self._capabilities.backend} does not support ordering keys"
            )
        return key

    def _headers(self, given: Mapping[str, str] | None) -> str:
        carried = self._telemetry.carrier() if self._telemetry.tracing else None
        if not given and not carried:
            return "{}"
        if not isinstance(given, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"headers must be a mapping of str to str, such as {{'tenant': 'a'}}, not {given!r}"
            )
        headers = {**(carried or {}), **(given or {})}
        for name, value in cast("dict[object, object]", headers).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise UsageError(
                    f"headers must be a mapping of str to str; {name!r}: {value!r} is not"
                )
        return encode_json(headers, "the headers", limit=METADATA_BYTES_MAX)


def _retry(base: Retry, options: JobOptions) -> tuple[str, int]:
    """The policy that travels with the job, and the attempts it allows.

    What the caller does not say is left to the handler that will run the job, whose policy may
    have changed by then.
    """
    retry, most = options.get("retry"), options.get("max_attempts")
    if most is not None:
        check_max_attempts(most)
    if retry is None:
        said = "{}" if most is None else f'{{"max_attempts":{most}}}'
        return said, base.max_attempts if most is None else most
    if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"retry must be an outlive.Retry, not {retry!r}")
    if most is not None:
        retry = retry.overridden(f'{{"max_attempts":{most}}}')
    return retry.to_json(), retry.max_attempts


def _priority(value: object) -> int:
    if type(value) is not int or abs(value) > PRIORITY_MAX:
        raise UsageError(
            f"priority must be a whole number from -{PRIORITY_MAX:,} to {PRIORITY_MAX:,}, not "
            f"{value!r}"
        )
    return value


def _key(options: JobOptions, name: str) -> str | None:
    value = options.get(name)
    return None if value is None else check_key(cast("str", value), name)


def _microseconds(value: Duration, what: str, *, zero: bool = True) -> int:
    value_s = seconds(value, what, zero=zero)
    if value_s > TTL_MAX_S:
        raise UsageError(f"{what} of {value_s:g} s is longer than {TTL_MAX_S:g} s (ten years)")
    return round(value_s * 1e6)


def _optional(value: Duration | None, what: str) -> int | None:
    return None if value is None else _microseconds(value, what, zero=False)


def _retention(value: Duration | None) -> int:
    return _microseconds(RETENTION_S if value is None else value, "retention")


def _due_at(options: JobOptions) -> int | None:
    at = options.get("at")
    if at is None:
        return None
    if options.get("delay"):
        raise UsageError("give either delay or at, not both")
    if not isinstance(cast("object", at), datetime) or at.tzinfo is None:
        raise UsageError(f"at must be a datetime with a time zone, not {at!r}")
    at_us = microseconds(at)
    if abs(at_us) > DUE_AT_US_MAX:
        raise UsageError(f"at must be before June 2255, not {at}")
    return at_us


def _on_duplicate(options: JobOptions) -> OnDuplicate:
    value = options.get("on_duplicate", OnDuplicate.REJECT)
    try:
        return OnDuplicate(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in OnDuplicate)
        raise UsageError(f"on_duplicate must be one of {known}, not {value!r}") from None
