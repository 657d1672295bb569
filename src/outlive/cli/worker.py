"""``outlive worker``: run what an app of a module defines, until told to stop.

Imports the one module that is named, from the current folder or the installed packages, and
nothing else; no name that comes from a store is ever imported.
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import click

from outlive.app import App
from outlive.cli import probes, signals
from outlive.cli.invocation import SECONDS, current, global_options
from outlive.connect import connect, importing
from outlive.errors import OutliveError, UsageError
from outlive.host import Host
from outlive.telemetry import installed
from outlive.work.worker import GRACE_S


@click.command()
@click.argument("app")
@click.option("--name", help="Name of this host; default the name of the app.")
@click.option(
    "--session-ttl", type=SECONDS, help="Seconds until other hosts take over if this host dies."
)
@click.option(
    "--grace",
    type=SECONDS,
    default=GRACE_S,
    show_default=True,
    help="Seconds for running jobs and flows to end after SIGTERM, before their release.",
)
@click.option(
    "--listen", help="Serve /metrics, /healthz and /readyz here, such as :9100 or 127.0.0.1:9100."
)
@global_options
def worker(
    app: str, name: str | None, session_ttl: float | None, grace: float, listen: str | None
) -> None:
    """Run the flows, handlers, schedules and roles of an app until SIGTERM or Ctrl-C.

    APP is MODULE:NAME, as in shop.tasks:app; the module is imported from the current folder or the
    installed packages. On SIGTERM, running jobs finish or are released, and flows continue on other
    hosts; a synchronous handler that does not end within --grace seconds ends with the process. A
    second signal ends the grace immediately.
    """
    invocation = current()
    with invocation.listener.giving_way():
        loaded = load_app(app)
    invocation.settings()
    invocation.timed = True
    # Measuring costs a little: only where it goes somewhere.
    traced = any(name.startswith("OTEL_") for name in os.environ)
    invocation.host_name = name or loaded.name

    telemetry = installed() if listen is not None or traced else None
    if telemetry is not None:
        # Here, because a worker that measures nothing may have no charts either.
        from outlive.charts.orchestrator import shared

        telemetry.watch(shared)

    async def serve(heard: signals.Signals) -> None:
        connecting = connect(
            invocation.url,
            namespace=invocation.namespace,
            app=loaded,
            name=name,
            session_ttl=session_ttl,
            telemetry=telemetry,
        )
        async with AsyncExitStack() as stack:
            host = await stack.enter_async_context(connecting)
            invocation.complain(f"{host.name} serves {loaded!r}")
            if listen is not None:
                bound = await stack.enter_async_context(probes.listening(host, listen))
                invocation.complain(f"metrics on http://{bound}/metrics")
            heard.forward = stopping(host)
            await host.run(grace=grace)

    signals.run(serve)


def stopping(host: Host) -> Callable[[int], None]:
    """What a host that runs does at a signal: what runs may end, and at the next one it may not."""
    again = False

    def stop(_: int) -> None:
        nonlocal again
        host.stop(now=again)
        again = True

    return stop


def load_app(name: str) -> App:
    """The app that MODULE:NAME means.

    Raises:
        UsageError: There is no such module, or it has no such app, or importing it fails.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"an app must be MODULE:NAME, as in shop.tasks:app, not {name!r}")
    if "/" in module or module.endswith(".py"):
        path = Path(module.removesuffix(".py"))
        elsewhere = path.is_absolute() or ".." in path.parts
        dotted = path.name if elsewhere else ".".join(path.parts)
        folder = ", in its folder" if elsewhere else ""
        raise UsageError(
            f"{name!r} is a file, not a module: write it as {dotted}:{attribute}{folder}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    token = importing.set(module)
    try:
        imported = importlib.import_module(module)
    except OutliveError:
        raise
    except Exception as error:
        raise UsageError(f"module {module!r} cannot be imported: {_told(error)}") from error
    finally:
        importing.reset(token)
    try:
        found: object = operator.attrgetter(attribute)(imported)
    except AttributeError:
        apps = [each for each, value in vars(imported).items() if isinstance(value, App)]
        hint = f"; its apps: {', '.join(apps)}" if apps else ""
        raise UsageError(f"module {module!r} has no {attribute!r}{hint}") from None
    if not isinstance(found, App):
        raise UsageError(f"{name} must be an outlive.App, not {type(found).__name__}")
    return found


def _told(error: Exception) -> str:
    """What failed an import, and the last line of the user's own code that led to it."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        # It names its own place, where no code ran yet.
        return f"{kind}: {error}"
    here = Path.cwd()
    # The first is the import itself.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if _is_own(Path(frame.filename), here)]
    if not own:
        return f"{kind}: {error}"
    path = Path(own[-1].filename).relative_to(here)
    return f"{kind}: {error} ({path}, line {own[-1].lineno})"


def _is_own(file: Path, here: Path) -> bool:
    # The environment, and with it every library, may be inside the folder of the code.
    return file.is_relative_to(here) and not file.is_relative_to(sys.prefix)
