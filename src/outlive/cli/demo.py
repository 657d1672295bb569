"""``outlive demo``: shows a lock being fought over, on any store.

Owns how a competition is started and printed; what happens in it is ``outlive.demo``'s. Never
prompts without a terminal.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

import click

from outlive.cli import errors, signals
from outlive.cli.configure import Answers, can_ask, run_wizard
from outlive.cli.invocation import SECONDS, Invocation, current, global_options
from outlive.cli.output import clean, clean_lines, emit_line, say
from outlive.connect import connect, find_factory
from outlive.demo import __main__ as story_module
from outlive.demo.banners import COLOURS, lines_of
from outlive.demo.competition import KEY, Competitor, compete
from outlive.demo.race import RACE_MAX, Race
from outlive.errors import UsageError
from outlive.model.location import Location, parse_url
from outlive.model.options import seconds
from outlive.names import check_host, check_key
from outlive.runtime.runtime import Runtime
from outlive.settings import PREFIX

_WORK_S = 15.0

# A loser that is to take over waits for the winner's work and for the ttl of one that died.
_CRASH_WAIT_S = 120.0

_GUIDE = """\
Several processes compete for one lock on {store}.

1. One wins, the others are refused
   Start these within a few seconds of each other, each in a terminal of its own:

     outlive demo compete --instance us-east-1 --region us-east{flag}
     outlive demo compete --instance eu-west-1 --region eu-west{flag}
     outlive demo compete --instance ap-south-1 --region ap-south{flag}

   Watch for: one LOCK ACQUIRED with its token; LOCK ACQUISITION FAILED elsewhere, naming the
   owner and its region. While the winner works, renewals and version grow and the token stays.

2. All at the same instant, in one terminal
     outlive demo compete --race 3{flag}

   Watch for: one winner, whatever you do.

3. The winner dies, another takes over
   Kill the winner with kill -9 while it works, and start another one. It is refused until
   the ttl has passed; then it wins. Or let the losers wait, and have the winner killed:

     outlive demo compete --race 3 --crash{flag}

   Watch for: a greater token, and "taken over from". Never do two instances own the lock.

4. From the side, in one more terminal
     outlive lease watch {key}{flag}
     outlive lease show {key} --raw{flag}
     outlive lease history {key}{flag}

   Watch for: version and end move with each renewal, the token only with a new owner.

5. By force
     outlive lease break {key} --reason "I want to see what happens"{flag}

   Watch for: LOCK LOST at the winner, at its next renewal, with your reason, and exit code 76.
"""


@click.group(invoke_without_command=True)
@click.pass_context
def demo(context: click.Context) -> None:
    """Watch processes compete for a lock, win, lose, die and take over.

    `outlive demo compete` is one competitor: start it in several terminals, or start several
    together with --race. `outlive demo compete --guide` shows what to type and what to watch for.
    `outlive demo story` plays a whole story by itself, on a file that is removed afterwards.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@demo.command()
@global_options
@click.pass_context
def story(context: click.Context) -> None:
    """Play the story of `make demo`: a race, a crash and a stall, on a temporary SQLite file."""
    context.exit(story_module.main())


@demo.command("compete")
@click.option("--instance", help="The name of this competitor; default the machine's.")
@click.option("--region", default="local", show_default=True, help="Region that it reports.")
@click.option("--store", help="Store URL; the same as --url.")
@click.option("--key", default=KEY, show_default=True, help="Key of the lock.")
@click.option(
    "--work",
    type=SECONDS,
    default=_WORK_S,
    show_default=True,
    help="Seconds of work for the winner.",
)
@click.option("--ttl", type=SECONDS, help="Seconds until others may take over; default 10.")
@click.option(
    "--wait",
    type=SECONDS,
    default=0.0,
    show_default=True,
    help="Seconds that a loser waits for the lock.",
)
@click.option(
    "--race", type=click.IntRange(1, RACE_MAX), help="Start this many processes together."
)
@click.option("--crash", is_flag=True, help="With --race: kill the winner half-way.")
@click.option("--gate", is_flag=True, help="Connect, then wait for a line on stdin to begin.")
@click.option("--guide", "show_guide", is_flag=True, help="Show what to type in which terminal.")
@click.option("--configure", "ask", is_flag=True, help="Choose and try the store first.")
@global_options
@click.pass_context
def compete_command(context: click.Context, /, **options: Any) -> None:
    """Compete for a lock: work under it if you win, name the owner if you lose.

    Exits 0 whether the lock was won or not, 76 if it was won and then lost.
    """
    invocation = current()
    if invocation.output == "json":
        raise UsageError("a competition is shown as it happens: use -o jsonl")
    if options["store"] is not None:
        invocation.url = options["store"]
    if options["ask"]:
        run_wizard(invocation, Answers(url=invocation.url))
        invocation.url = None
    location = _settle_store(invocation, asks=not options["show_guide"])
    if options["show_guide"]:
        _print_guide(invocation, location, check_key(options["key"]))
        return
    _check(location, options)
    if options["race"] is not None:
        context.exit(signals.run(lambda _: _race(invocation, options)))
    context.exit(signals.run(lambda _: _compete(invocation, options)))


def _print_guide(invocation: Invocation, location: Location, key: str) -> None:
    store, flag = str(location), ""
    if invocation.url is not None:
        # What may hold a secret is not printed, and neither is it typed on a command line.
        if location.url == str(location):
            flag = f" --url {location}"
        else:
            store += f", with {PREFIX}URL set in each terminal"
    click.echo(clean_lines(guide(store, key, flag=flag)))


def _settle_store(invocation: Invocation, *, asks: bool) -> Location:
    """Where the store is; asked for at a terminal where nothing says it."""
    settings = invocation.settings()
    if settings.url is None and asks and can_ask():
        say("no store is configured here; a few questions come first")
        run_wizard(invocation, Answers())
        settings = invocation.settings()
    return parse_url(settings.url or "")


def _check(location: Location, options: Mapping[str, Any]) -> None:
    check_key(options["key"])
    for name in ("work", "wait", "ttl"):
        if options[name] is not None:
            seconds(options[name], name, zero=name == "wait")
    lonely = find_factory(location.scheme).capabilities.across == "process"
    if options["race"] is None:
        if options["crash"]:
            raise UsageError("--crash kills the winner of a --race; alone, use kill -9")
        if lonely:
            say(f"{location.scheme}:// exists only in this process: no other process can compete")
    elif lonely:
        raise UsageError(
            f"{location.scheme}:// exists only in one process, so each process would own a lock of "
            "its own: use sqlite:///demo.db, or any other store"
        )


async def _compete(invocation: Invocation, options: Mapping[str, Any]) -> int:
    runtime = Runtime()
    competitor = Competitor(
        instance=check_host(options["instance"] or socket.gethostname()),
        region=options["region"],
        work_s=options["work"],
        key=options["key"],
        ttl_s=options["ttl"],
        wait_s=options["wait"],
    )
    connecting = connect(
        invocation.url, namespace=invocation.namespace, name=competitor.instance, runtime=runtime
    )
    async with connecting as host:
        if options["gate"]:
            await _wait_at_gate(invocation)
        kept = await compete(host, competitor, runtime.clock, lambda e: _print(invocation, e))
    return errors.OK if kept else errors.LOST


async def _wait_at_gate(invocation: Invocation) -> None:
    _print(invocation, {"event": "ready"})
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except ValueError:
        raise UsageError("--gate waits on a pipe or a terminal, but stdin is a file") from None
    await reader.readline()


async def _race(invocation: Invocation, options: Mapping[str, Any]) -> int:
    wait_s = max(options["wait"], _CRASH_WAIT_S) if options["crash"] else options["wait"]
    arguments = ["--key", options["key"], "--work", str(options["work"]), "--wait", str(wait_s)]
    if options["ttl"] is not None:
        arguments += ["--ttl", str(options["ttl"])]
    # By the environment: a URL may hold a password, and others can see a command line.
    given = {"URL": invocation.url, "NAMESPACE": invocation.namespace}
    environ = {PREFIX + name: value for name, value in given.items() if value is not None}

    def hear(instance: str, event: Mapping[str, Any]) -> None:
        _print(invocation, event, label=instance)

    race = Race(arguments, environ, hear, crash=options["crash"])
    codes = await race.run(options["race"])
    winners = [{name: won[name] for name in ("instance", "token")} for won in race.winners]
    _print(invocation, {"event": "result", "instances": options["race"], "winners": winners})
    return next((code for code in codes if code), errors.OK if winners else errors.UNEXPECTED)


def _print(invocation: Invocation, event: Mapping[str, Any], *, label: str = "") -> None:
    if invocation.output == "jsonl":
        emit_line(event)
        return
    label = f"{label:<12} " if label else ""
    for line in lines_of(event):
        text = clean(f"{label}{line}")
        click.secho(text, fg=COLOURS.get(event["event"]), color=_colourful())
    sys.stdout.flush()


def _colourful() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def guide(store: str, key: str, *, flag: str = "") -> str:
    """The guide for ``store``; ``flag`` is what names it on a command line."""
    return _GUIDE.format(store=store, key=key, flag=flag)
