"""``outlive serve``: the HTTP API for workers in any language."""

from __future__ import annotations

import logging

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
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--with-namespace",
    "more",
    multiple=True,
    help="Serve this namespace too; each token belongs to one namespace. May be repeated.",
)
@click.option(
    "--allowed-host",
    "names",
    multiple=True,
    help="Additional host name under which clients reach the server. May be repeated.",
)
@click.option(
    "--max-wait",
    type=click.FloatRange(0, 55),
    default=55.0,
    show_default=True,
    help="Maximum seconds that a request for work may wait.",
)
@click.option("--access-log", is_flag=True, help="Log each request to stderr, as -v does.")
@global_options
def serve(
    *,
    host: str,
    port: int,
    more: tuple[str, ...],
    names: tuple[str, ...],
    max_wait: float,
    access_log: bool,
) -> None:
    """Serve the HTTP API until stopped.

    Without tokens, only this machine can use the API. After the first `outlive token create`,
    every request needs a token.
    """
    # Starlette and uvicorn are an extra, and no other command needs them.
    from outlive.server.limits import Limits
    from outlive.server.serving import ServePlan
    from outlive.server.serving import serve as run

    if access_log:
        logging.getLogger("outlive.server.access").setLevel(logging.INFO)
    invocation = current()
    invocation.timed = True
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
        asked = "tokens required" if authenticated else "open to this machine: no token exists yet"
        say(f"listening on {address} ({asked})")

    signals.run(lambda _: run(plan, started=started))
