"""What the library logs, as the command line passes it on: when, in which words, and to whom."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from holdfast.cli.main import cli

LOGGING_MODULE = """
import logging

logging.getLogger("holdfast.example").debug("a detail")
"""


@pytest.mark.parametrize(
    "arguments",
    [("-v", "lease", "ls"), ("lease", "ls", "-v"), ("lease", "ls", "--verbose")],
)
def test_everything_is_logged_wherever_on_the_line_that_is_asked_for(shell, arguments):
    shell("migrate")
    assert "holdfast: connected to sqlite://" in shell(*arguments).stderr
    assert shell("lease", "ls").stderr == ""


@pytest.mark.parametrize("option", [0, 1, 2])
def test_a_worker_logs_everything_wherever_on_the_line_that_is_asked_for(shell, option):
    module = f"logs_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(LOGGING_MODULE)
    line = ["worker", f"{module}:app"]
    done = shell(*line[:option], "-v", *line[option:])
    assert (done.code, "holdfast: a detail\n" in done.stderr) == (2, True)


def verbs(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from verbs(found, context)


def test_every_command_takes_the_global_options():
    without = [
        verb.name
        for verb in verbs(cli, click.Context(cli))
        if "--verbose" not in {option for each in verb.params for option in each.opts}
    ]
    assert without == []
