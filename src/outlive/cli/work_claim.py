"""``outlive work claim``, ``complete``, ``fail``, ``release``: claimed here, settled elsewhere.

A claim lives as long as a session. The one made here belongs to no process: nobody renews it, and
when its ttl has passed the jobs are taken back, as those of a dead host are.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
from msgspec.structs import replace

from outlive.cli import errors, signals
from outlive.cli.invocation import SECONDS, Target, current, global_options
from outlive.cli.output import emit_rows, say
from outlive.cli.work_enqueue import json_value
from outlive.errors import ClaimLost, JobNotFound, UnsupportedByDriver, UsageError
from outlive.model.job import (
    CLAIM_MAX,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Completion,
    Failure,
    JobFilter,
    JobState,
    Return,
    Settled,
    Want,
)
from outlive.model.options import TTL_MAX_S, seconds
from outlive.model.retry import pause_s
from outlive.model.session import HostSession
from outlive.names import HostId, JobId, Token, check_host, check_key, check_queue
from outlive.ports.driver import Driver
from outlive.ports.host_store import HostStore
from outlive.ports.job_store import JobStore
from outlive.serialization import decode_plain, describe, encode
from outlive.work.bell import Alarm
from outlive.work.repeating import until_known

# How sessions of this command tell themselves apart from hosts, which look after the dead.
_TOOL = "outlive work claim"

# Behind the wake-up, as a running host does it.
_POLL_S = 1.0

# Ended and taken back at a time; the next claim goes on.
_REAP_MAX = 100

_COLUMNS = {
    "id": "ID",
    "queue": "QUEUE",
    "token": "TOKEN",
    "claim": "CLAIM",
    "attempt": "ATTEMPT",
    "payload": "PAYLOAD",
}


@click.command()
@click.argument("queue", nargs=-1)
@click.option("--job", help="Claim this job, regardless of its place in the queue.")
@click.option(
    "--limit",
    type=click.IntRange(1, CLAIM_MAX),
    default=1,
    show_default=True,
    help="Maximum number of jobs.",
)
@click.option(
    "--wait", type=SECONDS, default=0.0, show_default=True, help="Seconds to wait for a job."
)
@click.option(
    "--ttl",
    type=SECONDS,
    default=60.0,
    show_default=True,
    help="Seconds until the claim expires.",
)
@click.option("--worker", help="Name of the worker; default the machine's name.")
@global_options
def claim(
    queue: tuple[str, ...],
    job: str | None,
    limit: int,
    wait: float,
    ttl: float,
    worker: str | None,
) -> None:
    """Claim jobs of one or more queues; print each with its token and claim.

    The claim outlives this command: it has its own session, which is not renewed, and expires
    after --ttl seconds; then other workers can claim the jobs. Settle each job before that with
    `outlive work complete`, `fail` or `release`, which need the job's id, its --token and the
    --claim. Exits 75 if no job was available.
    """
    invocation = current()
    if not queue and job is None:
        raise UsageError("give at least one QUEUE, or a --job")
    target = invocation.target(create=False)
    name = check_host(worker or target.settings.name or socket.gethostname())
    session = HostSession(
        id=HostId(target.runtime.new_id()),
        name=name,
        ttl_us=round(seconds(ttl, "ttl", zero=False) * 1e6),
        metadata=json.dumps({"tool": _TOOL}),
    )
    request = ClaimRequest(
        session=session.id,
        worker=name,
        request=session.id,
        wants=tuple(Want(check_queue(each), limit) for each in dict.fromkeys(queue)),
        limit=limit,
        job=None if job is None else JobId(check_key(job, "the id of a job")),
    )
    wait_s = seconds(wait, "wait")

    async def ask(_: signals.Signals) -> list[dict[str, Any]]:
        async with invocation.open(target) as driver:
            return await _claim(target, driver, session, request, wait_s)

    rows = signals.run(ask)
    if rows or invocation.output == "json":
        emit_rows(invocation.output, "claims", rows, _COLUMNS)
    if not rows:
        say("no job is available to claim")
        click.get_current_context().exit(errors.HELD)


async def _claim(
    target: Target, driver: Driver, session: HostSession, request: ClaimRequest, wait_s: float
) -> list[dict[str, Any]]:
    hosts, _ = _ports(driver)
    clock = target.runtime.clock
    await hosts.open(session)
    opened_at = clock.now()
    claimed = Claimed(())
    try:
        claimed = await _wait(target, driver, request, wait_s)
    finally:
        if not claimed.jobs:
            # Also when a signal stops the wait: what came meanwhile is given to others.
            await hosts.close(session.id)
    until = opened_at + timedelta(microseconds=session.ttl_us)
    return [_row(each, request, until) for each in claimed.jobs]


async def _wait(target: Target, driver: Driver, request: ClaimRequest, wait_s: float) -> Claimed:
    hosts, jobs = _ports(driver)
    clock, alarm = target.runtime.clock, Alarm()
    until = clock.monotonic() + wait_s
    end = driver.wakeups.subscribe(lambda _: alarm.ring())
    number = 0
    try:
        while True:
            alarm.reset()
            await _take_back(hosts, jobs)
            left_s = max(0.0, until - clock.monotonic())
            number += 1
            asked = replace(
                request, request=f"{request.session}-{number}", wait_us=round(left_s * 1e6)
            )

            async def once(tries: int, asked: ClaimRequest = asked) -> Claimed:
                return await jobs.claim(replace(asked, again=tries > 0))

            claimed = await until_known(target.runtime, once)
            if claimed.jobs or left_s <= 0:
                return claimed
            due_s = _POLL_S if claimed.next_due_s is None else claimed.next_due_s
            await alarm.sleep(min(left_s, _POLL_S, due_s))
    finally:
        end()


async def _take_back(hosts: HostStore, jobs: JobStore) -> None:
    """Take back what dead sessions have claimed, where no host runs that would do it.

    Hosts wait before they judge others: after an outage every session is late at once. Where none
    is alive there is nobody to be unjust to.
    """
    sessions = await hosts.list(limit=_REAP_MAX)
    if any(each.alive and _is_host(each) for each in sessions):
        return
    if not all(each.alive for each in sessions):
        await hosts.reap(limit=_REAP_MAX)
    await jobs.reclaim(limit=_REAP_MAX)


def _is_host(session: HostSession) -> bool:
    try:
        return json.loads(session.metadata).get("tool") != _TOOL
    except (ValueError, AttributeError):
        return True


def _row(job: ClaimedJob, request: ClaimRequest, until: Any) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue,
        "token": job.token,
        "claim": request.session,
        "worker": request.worker,
        "attempt": job.attempts + 1,
        "losses": job.losses,
        "payload": decode_plain(job.payload),
        "headers": decode_plain(job.headers),
        "claimed_until": until,
    }


def _settling(command: Any) -> Any:
    """The arguments that say which claim is meant."""
    for option in (
        click.option(
            "--claim", help="Claim that `claim` printed; its session ends with its last job."
        ),
        click.option("--token", required=True, type=int, help="Token that `claim` printed."),
        click.argument("job"),
    ):
        command = option(command)
    return global_options(command)


@click.command()
@click.option("--result", default="null", help="Result of the job, as JSON.")
@_settling
def complete(job: str, token: int, claim: str | None, result: str) -> None:
    """Complete a claimed job. Exits 76 if the claim was lost."""
    text = encode(json_value(result, "the result"), "the result")
    done = Completion(_id(job), Token(token), None if text == "null" else text)

    async def settle(jobs: JobStore) -> Sequence[Settled]:
        return await jobs.complete([done])

    _settle(job, claim, settle)
    say(f"job {job!r} is done")


@click.command()
@click.option("--error", required=True, help="Message of the error.")
@click.option("--kind", help="Class name of the error, for the retry policy.")
@click.option(
    "--retry-in",
    type=SECONDS,
    help="Seconds until the next attempt, instead of the policy's, if attempts are left.",
)
@click.option("--dead", is_flag=True, help="Do not retry: move the job to the dead letters.")
@_settling
def fail(
    job: str,
    token: int,
    claim: str | None,
    error: str,
    kind: str | None,
    retry_in: float | None,
    dead: bool,
) -> None:
    """Fail a claimed job: its policy retries it, or it is dead. Exits 76 as `complete`."""
    if dead and retry_in is not None:
        raise UsageError("give --dead or --retry-in, not both")
    described = describe({"type": kind, "message": error} if kind else error)

    async def settle(jobs: JobStore) -> Sequence[Settled]:
        retry_us = None
        if not dead:
            retry_us = await _retry_us(jobs, _id(job), kind, retry_in)
        return await jobs.fail([Failure(_id(job), Token(token), described, retry_us)])

    _settle(job, claim, settle)
    say(f"job {job!r} has failed")


async def _retry_us(
    jobs: JobStore, job: JobId, kind: str | None, retry_in: float | None
) -> int | None:
    asked_s = None
    if retry_in is not None:
        asked_s = seconds(retry_in, "retry-in", most=TTL_MAX_S)
    record = await jobs.get(job)
    if record is None:
        raise JobNotFound(job)
    # Half: one job from a command line returns with no crowd that it should keep away from.
    delay_s = pause_s(record, kind, 0.5, asked_s=asked_s)
    return None if delay_s is None else round(delay_s * 1e6)


@click.command()
@click.option(
    "--delay", type=SECONDS, default=0.0, help="Seconds until the job may be claimed again."
)
@_settling
def release(job: str, token: int, claim: str | None, delay: float) -> None:
    """Release a claimed job unrun, to its old place. Exits 76 as `complete`."""
    back = Return(_id(job), Token(token), round(seconds(delay, "delay", most=TTL_MAX_S) * 1e6))

    async def settle(jobs: JobStore) -> Sequence[Settled]:
        return await jobs.release([back])

    _settle(job, claim, settle)
    say(f"job {job!r} is released")


def _settle(job: str, claim: str | None, settle: Any) -> None:
    invocation = current()
    target = invocation.target(create=False)

    async def ask(_: signals.Signals) -> Settled:
        async with invocation.open(target) as driver:
            hosts, jobs = _ports(driver)
            (settled,) = await until_known(target.runtime, lambda _: settle(jobs))
            if settled is Settled.LOST and await jobs.get(_id(job)) is None:
                raise JobNotFound(job)
            if claim is not None:
                await _end(hosts, jobs, HostId(claim))
            return settled

    if signals.run(ask) is Settled.LOST:
        raise ClaimLost(job, "fenced")


async def _end(hosts: HostStore, jobs: JobStore, session: HostId) -> None:
    """End the session of a claim once none of its jobs is claimed any more."""
    held = await jobs.list(
        JobFilter(session=session, states=(JobState.CLAIMED,)), after=None, limit=1
    )
    if not held:
        await hosts.close(session)


def _id(job: str) -> JobId:
    return JobId(check_key(job, "the id of a job"))


def _ports(driver: Driver) -> tuple[HostStore, JobStore]:
    if driver.hosts is None or driver.jobs is None:
        raise UnsupportedByDriver(f"{driver.capabilities.backend} does not support jobs")
    return driver.hosts, driver.jobs
