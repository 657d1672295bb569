"""Fills the histories of one run with what passes the fault proxies of its hosts.

Owns the record only: what a caller knows of its call, and what the store carried out, in the
store's own order. The checkers judge it.
"""

from __future__ import annotations

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model import instance, job
from outlive.model.lease import Grant, Held
from outlive.testing.fault_proxy import Interceptor
from tests.simulation.oracles.history import History, Served
from tests.simulation.oracles.instance_history import InstanceServed
from tests.simulation.oracles.job_history import JobServed

_OWNED = ("leases.renew", "leases.release")


class Recorder(Interceptor):
    """Notes each call in ``history``. ``inner`` is what happens to it behind that."""

    def __init__(self, history: History, inner: Interceptor | None = None) -> None:
        self._history = history
        self._inner = inner or Interceptor()

    async def on_host(self, host, operation, forward, args, kwargs):
        if operation == "leases.acquire" or operation in _OWNED:
            return await self._call_lease(host, operation, forward, args, kwargs)
        instances = self._history.instances
        posted = []
        if operation == "instances.send":
            posted = [instances.post(message) for message in args[0]]
        outcomes = await forward(*args, **kwargs)
        for one, outcome in zip(posted, outcomes if posted else (), strict=True):
            if outcome in (instance.Sent.SENT, instance.Sent.DUPLICATE):
                instances.acknowledge(one)
        if operation == "jobs.enqueue":
            kept = (job.Entry.CREATED, job.Entry.REPLACED)
            self._history.jobs.acknowledged.update(one.id for one in outcomes if one.entry in kept)
        elif operation == "instances.start":
            made = [one.id for one in outcomes if one.entry is instance.Entry.CREATED]
            instances.acknowledged.update(made)
        return outcomes

    async def on_store(self, host, operation, forward, args, kwargs):
        try:
            result = await self._inner.on_store(host, operation, forward, args, kwargs)
        except LeaseLost:
            if operation in _OWNED:
                self._serve_owned(operation, args, ok=False)
            raise
        port, _, method = operation.partition(".")
        asked = args[0] if args else None
        if port == "leases":
            self._serve_leases(host, operation, args, result)
        elif port == "jobs" and method in _JOBS:
            for fields in _JOBS[method](asked, result):
                self._serve_job(method, **fields)
        elif port == "instances" and method in _INSTANCES:
            for fields in _INSTANCES[method](asked, kwargs, result):
                self._serve_instance(**{"op": method, **fields})
        elif operation in ("hosts.close", "hosts.reap"):
            ended = [asked] if method == "close" else [session.id for session in result]
            for session in ended:
                # What is claimed hangs on sessions: whose has ended is part of its story.
                self._serve_job("session.end", job="", session=session)
                self._serve_instance("session.end", instance="", session=session)
        return result

    # -- leases ---------------------------------------------------------------------------------

    async def _call_lease(self, host, operation, forward, args, kwargs):
        asked = args[0]
        if operation == "leases.acquire":
            op = "store.resume" if asked.resume else "store.acquire"
            known = {"ttl_s": asked.ttl_us / 1e6, "capacity": asked.limit}
        else:
            op, known = operation.replace("leases", "store"), _owned(operation, args)
        call = self._history.start(
            host.name, op, asked.key, grant=asked.owner, rate=host.rate, **known
        )
        try:
            result = await forward(*args, **kwargs)
        except OutcomeUnknown:
            call.finish(ok=None)
            raise
        except OutliveError:
            call.finish(ok=False)
            raise
        # A cancelled or killed caller never learns the outcome: the call stays open.
        if isinstance(result, Grant):
            call.finish(ok=True, token=result.token, slot=result.slot)
        else:
            call.finish(ok=not isinstance(result, Held))
        return result

    def _serve_leases(self, host, operation, args, result):
        if operation == "leases.acquire":
            self._serve_acquire(args[0], result)
        elif operation in _OWNED:
            self._serve_owned(operation, args, ok=True)
        elif operation == "leases.break_lease":
            self._serve_break(host, args[0], result)

    def _serve_acquire(self, asked, result):
        granted = isinstance(result, Grant)
        self._serve_lease(
            "acquire",
            asked.key,
            asked.owner,
            ok=granted,
            token=result.token if granted else 0,
            slot=result.slot if granted else 0,
            ttl_s=asked.ttl_us / 1e6,
            limit=asked.limit,
            ahead=0 if granted else result.ahead,
            resume=asked.resume,
        )

    def _serve_owned(self, operation, args, *, ok):
        grant, op = args[0], operation.removeprefix("leases.")
        self._serve_lease(op, grant.key, grant.owner, ok=ok, **_owned(operation, args))

    def _serve_break(self, host, key, records):
        # Recorded where it happens: a break ends whoever owns the key by then, and late or
        # repeated ones end somebody else.
        for record in records:
            # Expired grants that nobody took are not ended by it, so only these are told.
            call = self._history.start(host.name, "store.break", key, rate=host.rate)
            call.finish(ok=True, slot=record.slot)
        self._serve_lease("break", key, "", ok=True)

    def _serve_lease(self, op, key, grant, **fields):
        at = self._history.clock()
        self._history.serve(Served(at=at, op=op, key=key, grant=grant, **fields))

    # -- jobs, instances, sessions --------------------------------------------------------------

    def _serve_job(self, op, **fields):
        at = self._history.clock()
        self._history.jobs.served.append(JobServed(at=at, op=op, **fields))

    def _serve_instance(self, op, **fields):
        at = self._history.clock()
        self._history.instances.served.append(InstanceServed(at=at, op=op, **fields))


def _owned(operation, args):
    grant, ttl_us = args if operation == "leases.renew" else (args[0], args[0].ttl_us)
    return {"token": grant.token, "slot": grant.slot, "ttl_s": ttl_us / 1e6}


def _enqueued(jobs, outcomes):
    for one, outcome in zip(jobs, outcomes, strict=True):
        yield {
            "job": outcome.id,
            "outcome": outcome.entry,
            "queue": one.queue,
            "delay_s": one.delay_us / 1e6,
            "unique_key": one.unique_key,
            "ordering_key": one.ordering_key,
        }


def _claimed_jobs(request, claimed):
    for one in claimed.jobs:
        yield {"job": one.id, "token": one.token, "session": request.session}


def _settled(asked, outcomes):
    for one, outcome in zip(asked, outcomes, strict=True):
        delay_us = 0
        if isinstance(one, job.Failure):
            delay_us = one.retry_us
        elif isinstance(one, job.Return):
            delay_us = one.delay_us
        delay_s = None if delay_us is None else delay_us / 1e6
        yield {"job": one.id, "outcome": outcome, "token": one.token, "delay_s": delay_s}


def _reclaimed_jobs(_, taken):
    for one in taken:
        yield {"job": one.id, "outcome": one.state}


def _changed(ids, outcomes):
    for one, outcome in zip(ids, outcomes, strict=True):
        yield {"job": one, "outcome": outcome}


_JOBS = {
    "enqueue": _enqueued,
    "claim": _claimed_jobs,
    "complete": _settled,
    "fail": _settled,
    "release": _settled,
    "extend": _settled,
    "reclaim": _reclaimed_jobs,
    "cancel": _changed,
    "retry": _changed,
}


def _started(asked, _, outcomes):
    for one, outcome in zip(asked, outcomes, strict=True):
        yield {
            "instance": one.id,
            "outcome": outcome.entry,
            "token": outcome.token,
            "session": one.session or "",
            "at_us": outcome.began_at_us,
            "asked": one,
        }


def _claimed_instances(request, _, claimed):
    for one in claimed.instances:
        yield {
            "instance": one.id,
            "token": one.token,
            "session": request.session,
            "version": one.version,
            "at_us": claimed.at_us,
            "request": request.request,
            "letters": one.letters,
        }


def _committed(commits, _, outcomes):
    for one, outcome in zip(commits, outcomes, strict=True):
        yield {
            "instance": one.id,
            "outcome": "ok" if outcome.ok else "refused",
            "token": one.token,
            "version": one.version,
            "at_us": outcome.at_us,
            "asked": one,
            "taken": tuple(outcome.taken),
        }


def _released(handbacks, _, outcomes):
    for one, ok in zip(handbacks, outcomes, strict=True):
        outcome = "ok" if ok else "refused"
        yield {"instance": one.id, "outcome": outcome, "token": one.token, "asked": one}


def _read(id_, _, letters):
    yield {"instance": id_, "letters": tuple(letters)}


def _sent(messages, _, outcomes):
    for one, outcome in zip(messages, outcomes, strict=True):
        yield {"instance": one.to, "outcome": outcome, "asked": one}


def _reclaimed_instances(_, __, taken):
    for one in taken:
        yield {"instance": one.id}


def _terminated(id_, how, opened):
    op = "terminate" if how.get("below") is None else "terminate.family"
    yield {"op": op, "instance": id_, "outcome": opened}
    if opened is instance.Opened.CHANGED:
        for message in how.get("sends", ()):
            yield {"op": "send", "instance": message.to, "outcome": "with", "asked": message}


def _operated(id_, how, opened):
    yield {"instance": id_, "outcome": opened, **how}


def _purged(ids, _, outcomes):
    for one, opened in zip(ids, outcomes, strict=True):
        yield {"instance": one, "outcome": opened}


_INSTANCES = {
    "start": _started,
    "claim": _claimed_instances,
    "commit": _committed,
    "release": _released,
    "letters": _read,
    "send": _sent,
    "reclaim": _reclaimed_instances,
    "terminate": _terminated,
    "suspend": _operated,
    "resume": _operated,
    # Which version it becomes, and by which events.
    "reopen": _operated,
    "purge": _purged,
}
