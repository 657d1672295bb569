"""``holdfast work retry``, ``cancel``, ``pause``, ``resume``, ``drain``: steer jobs and queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from holdfast.cli import signals
from holdfast.cli.invocation import current, global_options
from holdfast.cli.output import emit_fields, say
from holdfast.errors import UsageError
from holdfast.host import Holdfast
from holdfast.model.job import JobState
from holdfast.names import check_reason

_STATES = [state.value for state in JobState]


def _which(command: Any) -> Any:
    """The arguments that say which jobs are meant: by id, or all that match."""
    for option in (
        click.option(
            "--state",
            type=click.Choice(_STATES),
            multiple=True,
            help="All in this state, instead of naming jobs.",
        ),
        click.option("--queue", help="All of this queue, instead of naming jobs."),
        click.argument("job", nargs=-1),
    ):
        command = option(command)
    return global_options(command)


@click.command()
@_which
def retry(job: tuple[str, ...], queue: str | None, state: tuple[str, ...]) -> None:
    """Make jobs ready now: named ones, or all of a --queue or --state.

    Those that wait for their time, and dead and cancelled ones, which begin again.
    """

    def act(host: Holdfast, **which: Any) -> Awaitable[int]:
        return host.work.retry(**which)

    _change(job, queue, state, act, "retried")


@click.command()
@click.option(
    "--reason",
    default="cancelled from the command line",
    show_default=True,
    help="Kept with the job.",
)
@_which
def cancel(job: tuple[str, ...], queue: str | None, state: tuple[str, ...], reason: str) -> None:
    """Cancel jobs: named ones, or all live ones of a --queue or --state.

    One that is being run hears of it, and ends as cancelled unless it completes first.
    """
    check_reason(reason)

    def act(host: Holdfast, **which: Any) -> Awaitable[int]:
        return host.work.cancel(reason=reason, **which)

    _change(job, queue, state, act, "cancelled")


def _change(
    named: tuple[str, ...],
    queue: str | None,
    state: tuple[str, ...],
    act: Callable[..., Awaitable[int]],
    word: str,
) -> None:
    invocation = current()
    matching = queue is not None or bool(state)
    if bool(named) == matching:
        raise UsageError("name jobs, or say --queue or --state to mean all that match")

    async def change(_: signals.Signals) -> int:
        async with invocation.host() as host:
            if matching:
                return await act(host, queue=queue, state=state or None)
            return sum([await act(host, id=each) for each in named])

    emit_fields(invocation.output, {word: signals.run(change)})


@click.command()
@click.argument("queue")
@global_options
def pause(queue: str) -> None:
    """Give out no more jobs of QUEUE, in the whole fleet. What runs goes on."""
    _steer(lambda host: host.work.pause(queue))
    say(f"queue {queue!r} is paused")


@click.command()
@click.argument("queue")
@global_options
def resume(queue: str) -> None:
    """Open QUEUE again after pause or drain."""
    _steer(lambda host: host.work.resume(queue))
    say(f"queue {queue!r} is open")


@click.command()
@click.argument("queue")
@global_options
def drain(queue: str) -> None:
    """Take no more jobs into QUEUE; those in it are run."""
    _steer(lambda host: host.work.drain(queue))
    say(f"queue {queue!r} drains")


def _steer(act: Callable[[Holdfast], Awaitable[None]]) -> None:
    invocation = current()

    async def steer(_: signals.Signals) -> None:
        async with invocation.host() as host:
            await act(host)

    signals.run(steer)
