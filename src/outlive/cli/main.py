"""``outlive``: the group of all commands, and the last place an error can reach.

Every end of the process passes here and becomes a documented exit code.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import NoReturn

import click

from outlive import __version__
from outlive.cli import errors, leaving, streams
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import clean_lines, say, talk

_NAME = "outlive"

# How a shell asks click for completions.
_COMPLETION = "_OUTLIVE_COMPLETE"


# Where each command is, under its own name: only the one that is asked for is imported, because
# all of them together take longer to import than most of them take to run.
_COMMANDS = {
    "bench": "outlive.cli.bench",
    "chart": "outlive.cli.chart",
    "config": "outlive.cli.config",
    "configure": "outlive.cli.configure",
    "demo": "outlive.cli.demo",
    "doctor": "outlive.cli.doctor",
    "flow": "outlive.cli.flow",
    "host": "outlive.cli.host",
    "lease": "outlive.cli.lease",
    "migrate": "outlive.cli.migrate",
    "provision": "outlive.cli.provision",
    "schedule": "outlive.cli.schedule",
    "serve": "outlive.cli.serve",
    "token": "outlive.cli.token",
    "work": "outlive.cli.work",
    "worker": "outlive.cli.worker",
}


class _Commands(click.Group):
    """All commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in alphabetical order."""
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        del ctx
        module = _COMMANDS.get(cmd_name)
        return None if module is None else getattr(importlib.import_module(module), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with.

        Raises:
            click.UsageError: There is none; it names the nearest.
        """
        near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
        if near and args[0] not in _COMMANDS:
            # click looks for it among commands that were imported, and none is.
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="outlive %(version)s")
@global_options
def cli() -> None:
    """Leases, work queues, durable flows and statecharts on the database you already run.

    Results go to stdout, messages to stderr. Exit codes: 0 done, 2 usage, 66 not found, 69 store
    unavailable, 73 output not written, 74 outcome unknown, 75 lease (or job) not available, 76
    lease (or claim) lost, 78 schema mismatch, 1 anything else.
    """
    current().listener.listen()


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    streams.prepare()
    invocation = Invocation()
    try:
        code = _run(invocation)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. Python would flush stdout once more while it ends.
        streams.discard(sys.stdout)
        code = errors.SIGNALLED + 13
    except OSError as error:
        if not streams.takes_no_more(error):
            raise
        streams.discard(sys.stdout)
        say(f"the output could not be written: {error.strerror}")
        code = errors.OUTPUT
    except KeyboardInterrupt:
        code = errors.SIGNALLED + 2
    leaving.exit_now(code, len(invocation.left_behind))


def _run(invocation: Invocation) -> int:
    try:
        _invoke(invocation)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        context = error.ctx
        if context is not None and type(error).__name__ == "NoArgsIsHelpError":
            # A group without a command: its help is the answer, on all its lines.
            talk(clean_lines(context.get_help()))
            return errors.USAGE
        if context is not None:
            talk(clean_lines(context.get_usage()))
        # click lists choices on lines of their own.
        said = error.format_message().replace("\n\t", " ")
        say(errors.scrub(said, invocation.secrets))
        return errors.USAGE
    except click.ClickException as error:
        say(errors.scrub(error.format_message(), invocation.secrets))
        return errors.UNEXPECTED
    except errors.Stopped as stop:
        return errors.SIGNALLED + stop.number
    except BrokenPipeError:
        raise
    except Exception as error:
        if streams.takes_no_more(error):
            raise
        return invocation.report(error)
    return errors.OK


def _invoke(invocation: Invocation) -> None:
    if _COMPLETION in os.environ:
        cli.main(prog_name=_NAME)
    # Not cli.main: it ends the process with 1 when a pipe breaks, before we hear of it.
    with cli.make_context(_NAME, sys.argv[1:], obj=invocation) as context:
        cli.invoke(context)


if __name__ == "__main__":
    main()
