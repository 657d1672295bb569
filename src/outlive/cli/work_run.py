"""``outlive work run``: a command for each job of a queue, of a store or of a server.

The command has the payload on its standard input and ends with an exit status; all else (claims,
heartbeats, retries, the end in good order) is that of a worker. A command is stopped with its job,
but it is a process of its own: after ``kill -9`` of this one it goes on beside the next attempt,
and a write of its that matters must carry the token.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from outlive.app import App
from outlive.cli import signals
from outlive.cli.invocation import SECONDS, current, global_options
from outlive.cli.worker import stopping
from outlive.client import Client, HttpWorker, Item
from outlive.connect import connect
from outlive.errors import OutliveError
from outlive.work.current import current as current_job
from outlive.work.worker import GRACE_S

# Most programs end within five seconds of a SIGTERM.
_STOP_GRACE_S = 5.0


class CommandFailed(OutliveError):
    """The command of a job ended with a status that is not 0."""


@click.command()
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--concurrency", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--timeout", type=SECONDS, help="Seconds after which a command has failed.")
@click.option("--name", help="Name of this host; default the queue.")
@click.option(
    "--grace",
    type=SECONDS,
    default=GRACE_S,
    show_default=True,
    help="Seconds for running commands to end after SIGTERM, before their jobs are released.",
)
@global_options
def run(
    queue: str,
    command: tuple[str, ...],
    concurrency: int,
    timeout: float | None,
    name: str | None,
    grace: float,
) -> None:
    """Run a command for each job: outlive work run QUEUE [OPTIONS] -- COMMAND [ARGS]...

    The payload is JSON on the standard input of the command. Status 0 completes the job; any other
    is a failed attempt. OUTLIVE_JOB_ID, OUTLIVE_JOB_ATTEMPT and OUTLIVE_JOB_TOKEN are in its
    environment. With --url http://… the jobs are those of a server (`outlive serve`), and
    OUTLIVE_TOKEN is the token.
    """
    invocation = current()
    invocation.timed = True
    invocation.host_name = name or queue
    settings = invocation.settings()

    async def execute(payload: Any, about: Mapping[str, object]) -> None:
        await _execute(command, payload, about)

    async def at_server(heard: signals.Signals) -> None:
        async def work(item: Item) -> None:
            about = {"ID": item.id, "ATTEMPT": item.attempt, "TOKEN": item.token}
            async with asyncio.timeout(timeout):
                await execute(item.payload, about)

        async with Client(
            settings.url or "", os.environ.get("OUTLIVE_TOKEN"), worker_id=name or queue
        ) as client:
            worker = HttpWorker(client, queue, work, concurrency=concurrency, grace=grace)
            heard.forward = lambda _: worker.stop()
            await worker.run()

    async def at_store(heard: signals.Signals) -> None:
        app = App(name or queue)

        @app.handler(queue, concurrency=concurrency, timeout=timeout)
        async def work(payload: Any) -> None:
            job = current_job()
            await execute(payload, {"ID": job.job, "ATTEMPT": job.attempt, "TOKEN": job.token})

        connecting = connect(invocation.url, namespace=invocation.namespace, app=app, create=False)
        async with connecting as host:
            heard.forward = stopping(host)
            await host.run(grace=grace)

    served = (settings.url or "").startswith(("http://", "https://"))
    signals.run(at_server if served else at_store)


async def _execute(command: Sequence[str], payload: Any, about: Mapping[str, object]) -> None:
    """Run the command to its end; whatever ends this ends its whole group.

    Raises:
        CommandFailed: Its status is not 0, or it cannot be started.
    """
    environ = {f"OUTLIVE_JOB_{key}": str(value) for key, value in about.items()}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **environ},
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{command[0]!r} cannot be started: {error.strerror}") from error
    try:
        await process.communicate(msgspec.json.encode(payload))
    finally:
        await _end(process)
    if process.returncode:
        status = process.returncode
        how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
        raise CommandFailed(f"{shlex.join(command)!r} failed: {how}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the group of a command that has not ended: it is asked to, and killed after a while."""
    for number, patience_s in ((signal.SIGTERM, _STOP_GRACE_S), (signal.SIGKILL, _STOP_GRACE_S)):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
