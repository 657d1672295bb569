"""``outlive serve``: the HTTP API for workers in any language."""

from __future__ import annotations

import click

from outlive.cli import signals
from outlive.cli.invocation import current, global_options
from outlive.cli.output import say


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8420,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--with-namespace",
    "more",
    multiple=True,
    help="Serve this namespace too; tokens say which one is theirs. May be repeated.",
)
@click.option(
    "--allowed-host",
    "names",
    multiple=True,
    help="A name that clients reach the server by, beside --host. May be repeated.",
)
@click.option(
    "--max-wait",
    type=click.FloatRange(0, 55),
    default=55.0,
    show_default=True,
    help="Seconds that a request for work may wait at most.",
)
@global_options
def serve(
    host: str, port: int, more: tuple[str, ...], names: tuple[str, ...], max_wait: float
) -> None:
    """Serve the HTTP API until stopped.

    Without tokens only this machine may use it. Make one with `outlive token create`, and every
    request is asked for one.
    """
    # Starlette and uvicorn are an extra, and no other command needs them.
    from outlive.server.limits import Limits
    from outlive.server.serving import ServePlan
    from outlive.server.serving import serve as run

    invocation = current()
    namespace = invocation.settings().namespace
    plan = ServePlan(
        url=invocation.url,
        namespaces=tuple(dict.fromkeys((namespace, *more))),
        host=host,
        port=port,
        allowed_hosts=names,
        bounds=Limits(wait_s=max_wait),
    )

    def started(address: str, authenticated: bool) -> None:
        asked = "asks for tokens" if authenticated else "open to this machine: no token exists yet"
        say(f"listening on {address} ({asked})")

    signals.run(lambda _: run(plan, started=started))
