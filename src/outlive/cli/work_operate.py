"""``outlive work retry``, ``cancel``, ``pause``, ``resume``, ``drain``, ``limit``: steer work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from outlive.cli import audit, signals
from outlive.cli.invocation import current, global_options
from outlive.cli.output import emit_fields, say
from outlive.errors import JobNotFound, NotFound, UsageError
from outlive.flows.checking import near
from outlive.host import Host
from outlive.model.job import JobState
from outlive.names import check_key, check_queue, check_reason
from outlive.work.handler import LIMIT_MAX, rate_of

_STATES = [state.value for state in JobState]

_CREATE = click.option(
    "--create", is_flag=True, help="Also a queue that has no jobs and no settings yet."
)


async def check_known(host: Host, queue: str | None, more: str = "") -> None:
    """Refuse a queue that has neither jobs nor settings: a mistyped name must not pass for one.

    Raises:
        NotFound: It names the nearest queue.
    """
    if queue is not None:
        names = {info.name: info for info in await host.work.queues()}
        if check_queue(queue) not in names:
            known = f"no queue {queue!r} in this namespace{near(queue, names)}"
            raise NotFound(f"{known}{more}")


def _which(command: Any) -> Any:
    """The arguments that say which jobs are meant: by id, or all that match."""
    for option in (
        click.option(
            "--state",
            type=click.Choice(_STATES),
            multiple=True,
            help="Select all jobs in this state.",
        ),
        click.option("--queue", help="Select all jobs of this queue."),
        click.argument("job", nargs=-1),
    ):
        command = option(command)
    return global_options(command)


@click.command()
@_which
def retry(job: tuple[str, ...], queue: str | None, state: tuple[str, ...]) -> None:
    """Make jobs ready now: the given ids, or all jobs of a --queue or --state.

    Applies to jobs that wait for a due time, and to dead and cancelled jobs, which start again.
    """

    def act(host: Host, **which: Any) -> Awaitable[int]:
        return host.work.retry(**which)

    _change(job, queue, state, act, ("retry", "retried"))


@click.command()
@click.option(
    "--reason",
    default="cancelled from the command line",
    show_default=True,
    help="Reason, stored with the job.",
)
@_which
def cancel(job: tuple[str, ...], queue: str | None, state: tuple[str, ...], reason: str) -> None:
    """Cancel jobs: the given ids, or all live jobs of a --queue or --state.

    A running job receives the request, and ends as cancelled unless it completes first.
    """
    check_reason(reason)

    def act(host: Host, **which: Any) -> Awaitable[int]:
        return host.work.cancel(reason=reason, **which)

    _change(job, queue, state, act, ("cancel", "cancelled"))


def _change(
    named: tuple[str, ...],
    queue: str | None,
    state: tuple[str, ...],
    act: Callable[..., Awaitable[int]],
    words: tuple[str, str],
) -> None:
    invocation = current()
    matching = queue is not None or bool(state)
    if bool(named) == matching:
        raise UsageError("give either ids of jobs, or --queue or --state to select them")

    verb, done = words

    missing: list[JobNotFound] = []

    async def one(host: Host, subject: str, **which: Any) -> int:
        await audit.record(host, f"work {verb}", subject)
        try:
            return await act(host, **which)
        except JobNotFound as error:
            # The others were meant as well.
            missing.append(error)
            return 0

    async def change(_: signals.Signals) -> int:
        async with invocation.host() as host:
            if matching:
                await check_known(host, queue)
                queues = [] if queue is None else [f"queue {check_queue(queue)}"]
                all_of = ", ".join(["all", *queues, *(f"state {each}" for each in state)])
                return await one(host, all_of, queue=queue, state=state or None)
            jobs = [check_key(each, "the id of a job") for each in named]
            return sum([await one(host, each, id=each) for each in jobs])

    changed = signals.run(change)
    if matching or len(missing) < len(named):
        emit_fields(invocation.output, {done: changed})
    for error in missing[:-1]:
        say(str(error))
    if missing:
        raise missing[-1]


@click.command()
@click.argument("queue")
@_CREATE
@global_options
def pause(queue: str, create: bool) -> None:
    """Pause QUEUE in the whole fleet: no job is claimed. Running jobs continue."""
    _steer("pause", queue, lambda host: host.work.pause(queue), create=create)
    say(f"queue {queue!r} is paused")


@click.command()
@click.argument("queue")
@global_options
def resume(queue: str) -> None:
    """Resume QUEUE after pause or drain."""
    _steer("resume", queue, lambda host: host.work.resume(queue))
    say(f"queue {queue!r} is open")


@click.command()
@click.argument("queue")
@_CREATE
@global_options
def drain(queue: str, create: bool) -> None:
    """Drain QUEUE: new jobs are refused, the jobs in it are run."""
    _steer("drain", queue, lambda host: host.work.drain(queue), create=create)
    say(f"queue {queue!r} is draining")


class _Rate(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """How many jobs may start: a number per second, or ``N/SECONDS``."""

    name = "n[/seconds]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        """Read the number, and the seconds that it is for."""
        number, _, per = str(value).partition("/")
        try:
            return rate_of((int(number), float(per) if "/" in value else 1.0))
        except (ValueError, UsageError):
            self.fail(f"{value!r} is not a rate such as 5 or 100/60", param, ctx)


@click.command()
@click.option(
    "--concurrency",
    type=click.IntRange(1, LIMIT_MAX),
    help="Maximum number of jobs that run at the same time.",
)
@click.option("--rate", type=_Rate(), help="At most N jobs start in any SECONDS (default 1).")
@click.option("--lift", is_flag=True, help="Remove all limits.")
@click.argument("queue")
@_CREATE
@global_options
def limit(
    queue: str,
    concurrency: int | None,
    rate: tuple[int, float] | None,
    lift: bool,
    create: bool,
) -> None:
    """Limit QUEUE in the whole fleet, regardless of its handler, until --lift.

    An omitted limit means no limit. After --lift, the next worker that starts sets the limits of
    its handler.
    """
    number, per_s = rate or (None, 1.0)
    words: list[str] = ["limits removed"] if lift else []
    if concurrency is not None:
        words.append(f"concurrency {concurrency}")
    if rate is not None:
        words.append(f"rate {number} in {per_s:g} s")
    if not words or (lift and len(words) > 1):
        raise UsageError("give --concurrency, --rate or both, or --lift to remove all limits")

    def act(host: Host) -> Awaitable[None]:
        return host.work.limit(queue, concurrency=concurrency, rate=number, per=per_s)

    said = ", ".join(words)
    _steer("limit", queue, act, said, create=create)
    say(f"queue {queue!r}: {said}")


def _steer(
    verb: str,
    queue: str,
    act: Callable[[Host], Awaitable[None]],
    how: str | None = None,
    *,
    create: bool = False,
) -> None:
    invocation = current()

    async def steer(_: signals.Signals) -> None:
        async with invocation.host() as host:
            subject = check_queue(queue) if how is None else f"{check_queue(queue)}, {how}"
            if not create:
                more = "" if verb == "resume" else f"; --create to {verb} it all the same"
                await check_known(host, queue, more)
            await audit.record(host, f"work {verb}", subject)
            await act(host)

    signals.run(steer)
