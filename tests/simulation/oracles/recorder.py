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

_LEASES = {
    "leases.acquire": "acquire",
    "leases.renew": "renew",
    "leases.release": "release",
    "leases.break_lease": "break",
}


class Recorder(Interceptor):
    """Notes each call in ``history``. ``inner`` is what happens to it behind that."""

    def __init__(self, history: History, inner: Interceptor | None = None) -> None:
        self._history = history
        self._inner = inner or Interceptor()

    def on_host(self, host, operation, forward, args, kwargs):
        if operation in _LEASES and operation != "leases.break_lease":
            return self._call_lease(host, _LEASES[operation], forward, args, kwargs)
        if operation == "instances.send":
            return self._send(forward, args[0])
        if operation in ("jobs.enqueue", "instances.start"):
            return self._create(operation, forward, args[0])
        return forward(*args, **kwargs)

    def on_store(self, host, operation, forward, args, kwargs):
        carried_out = self._inner.on_store(host, operation, forward, args, kwargs)
        if operation in _LEASES:
            return self._serve_lease(host, _LEASES[operation], args, carried_out)
        if operation in _JOBS:
            return self._serve_jobs(operation, args, carried_out)
        if operation in _INSTANCES:
            return self._serve_instances(operation, args, kwargs, carried_out)
        if operation in ("hosts.close", "hosts.reap"):
            return self._end_sessions(args, carried_out)
        return carried_out

    # -- leases ---------------------------------------------------------------------------------

    async def _call_lease(self, host, op, forward, args, kwargs):
        asked = args[0]
        if op == "acquire":
            op = "resume" if asked.resume else op
            known = {"ttl_s": asked.ttl_us / 1e6, "capacity": asked.limit}
        else:
            known = _owned(*args)
        call = self._history.start(
            host.name, f"store.{op}", asked.key, grant=asked.owner, rate=host.rate, **known
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

    async def _serve_lease(self, host, op, args, carried_out):
        try:
            result = await carried_out
        except LeaseLost:
            self._note_lease(op, args[0].key, args[0].owner, ok=False, **_owned(*args))
            raise
        if op == "acquire":
            self._note_acquire(args[0], result)
        elif op == "break":
            self._note_break(host, args[0], result)
        else:
            self._note_lease(op, args[0].key, args[0].owner, ok=True, **_owned(*args))
        return result

    def _note_acquire(self, asked, result):
        granted = isinstance(result, Grant)
        self._note_lease(
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

    def _note_break(self, host, key, records):
        # Recorded where it happens: a break ends whoever owns the key by then, and late or
        # repeated ones end somebody else.
        for record in records:
            # Expired grants that nobody took are not ended by it, so only these are told.
            call = self._history.start(host.name, "store.break", key, rate=host.rate)
            call.finish(ok=True, slot=record.slot)
        self._note_lease("break", key, "", ok=True)

    def _note_lease(self, op, key, grant, **fields):
        at = self._history.clock()
        self._history.serve(Served(at=at, op=op, key=key, grant=grant, **fields))

    # -- jobs, instances, sessions --------------------------------------------------------------

    async def _send(self, forward, messages):
        instances = self._history.instances
        posted = [instances.post(message) for message in messages]
        outcomes = await forward(messages)
        for one, outcome in zip(posted, outcomes, strict=True):
            if outcome in (instance.Sent.SENT, instance.Sent.DUPLICATE):
                instances.acknowledge(one)
        return outcomes

    async def _create(self, operation, forward, members):
        outcomes = await forward(members)
        if operation == "instances.start":
            made = [one.id for one in outcomes if one.entry is instance.Entry.CREATED]
            self._history.instances.acknowledged.update(made)
        else:
            pairs = zip(members, outcomes, strict=True)
            stand = [one.id for one, outcome in pairs if outcome.stands(one)]
            self._history.jobs.acknowledged.update(stand)
        return outcomes

    async def _serve_jobs(self, operation, args, carried_out):
        result = await carried_out
        _JOBS[operation](self._note_job, args[0] if args else None, result)
        return result

    async def _serve_instances(self, operation, args, kwargs, carried_out):
        result = await carried_out
        _INSTANCES[operation](self._note_instance, args[0] if args else None, kwargs, result)
        return result

    async def _end_sessions(self, args, carried_out):
        result = await carried_out
        for session in args or [reaped.id for reaped in result]:
            # What is claimed hangs on sessions: whose has ended is part of its story.
            self._note_job("session.end", "", session=session)
            self._note_instance("session.end", "", session=session)
        return result

    def _note_job(self, op, id_, outcome="", **fields):
        at = self._history.clock()
        noted = JobServed(at=at, op=op, job=id_, outcome=outcome, **fields)
        self._history.jobs.served.append(noted)

    def _note_instance(self, op, id_, outcome="ok", **fields):
        at = self._history.clock()
        noted = InstanceServed(at=at, op=op, instance=id_, outcome=outcome, **fields)
        self._history.instances.served.append(noted)


def _owned(grant, ttl_us=None):
    ttl_s = (grant.ttl_us if ttl_us is None else ttl_us) / 1e6
    return {"token": grant.token, "slot": grant.slot, "ttl_s": ttl_s}


def _enqueued(note, jobs, outcomes):
    for one, outcome in zip(jobs, outcomes, strict=True):
        known = outcome.entry is job.Entry.EXISTING and outcome.id == one.id
        note(
            "known" if known else "enqueue",
            outcome.id,
            outcome.entry,
            queue=one.queue,
            delay_s=one.delay_us / 1e6,
            unique_key=one.unique_key,
            ordering_key=one.ordering_key,
        )


def _claimed_jobs(note, request, claimed):
    for one in claimed.jobs:
        note("claim", one.id, token=one.token, session=request.session)


def _settled(op):
    def settled(note, asked, outcomes):
        for one, outcome in zip(asked, outcomes, strict=True):
            note(op, one.id, outcome, token=one.token, delay_s=_delay_s(one))

    return settled


def _delay_s(asked):
    if isinstance(asked, job.Failure):
        return None if asked.retry_us is None else asked.retry_us / 1e6
    return asked.delay_us / 1e6 if isinstance(asked, job.Return) else 0.0


def _reclaimed_jobs(note, _, taken):
    for one in taken:
        note("reclaim", one.id, one.state)


def _changed(op):
    def changed(note, ids, outcomes):
        for one, outcome in zip(ids, outcomes, strict=True):
            note(op, one, outcome)

    return changed


_JOBS = {
    "jobs.enqueue": _enqueued,
    "jobs.claim": _claimed_jobs,
    "jobs.complete": _settled("complete"),
    "jobs.fail": _settled("fail"),
    "jobs.release": _settled("release"),
    "jobs.extend": _settled("extend"),
    "jobs.reclaim": _reclaimed_jobs,
    "jobs.cancel": _changed("cancel"),
    "jobs.retry": _changed("retry"),
}


def _started(note, asked, _, outcomes):
    for one, outcome in zip(asked, outcomes, strict=True):
        note(
            "start",
            one.id,
            outcome.entry,
            token=outcome.token,
            session=one.session or "",
            at_us=outcome.began_at_us,
            asked=one,
        )


def _claimed_instances(note, request, _, claimed):
    for one in claimed.instances:
        note(
            "claim",
            one.id,
            token=one.token,
            session=request.session,
            version=one.version,
            at_us=claimed.at_us,
            request=request.request,
            letters=one.letters,
        )


def _committed(note, commits, _, outcomes):
    for one, outcome in zip(commits, outcomes, strict=True):
        note(
            "commit",
            one.id,
            "ok" if outcome.ok else "refused",
            token=one.token,
            version=one.version,
            at_us=outcome.at_us,
            asked=one,
            taken=tuple(outcome.taken),
        )


def _released(note, handbacks, _, outcomes):
    for one, ok in zip(handbacks, outcomes, strict=True):
        note("release", one.id, "ok" if ok else "refused", token=one.token, asked=one)


def _read(note, id_, _, letters):
    note("letters", id_, letters=tuple(letters))


def _sent(note, messages, _, outcomes):
    for one, outcome in zip(messages, outcomes, strict=True):
        note("send", one.to, outcome, asked=one)


def _reclaimed_instances(note, _, __, taken):
    for one in taken:
        note("reclaim", one.id)


def _terminated(note, id_, how, opened):
    note("terminate" if how.get("below") is None else "terminate.family", id_, opened)
    if opened is instance.Opened.CHANGED:
        for message in how.get("sends", ()):
            note("send", message.to, "with", asked=message)


def _operated(op):
    return lambda note, id_, how, opened: note(op, id_, opened, **how)


def _purged(note, ids, _, outcomes):
    for one, opened in zip(ids, outcomes, strict=True):
        note("purge", one, opened)


_INSTANCES = {
    "instances.start": _started,
    "instances.claim": _claimed_instances,
    "instances.commit": _committed,
    "instances.release": _released,
    "instances.letters": _read,
    "instances.send": _sent,
    "instances.reclaim": _reclaimed_instances,
    "instances.terminate": _terminated,
    "instances.suspend": _operated("suspend"),
    "instances.resume": _operated("resume"),
    # With the version that it becomes, and the events of that.
    "instances.reopen": _operated("reopen"),
    "instances.purge": _purged,
}
