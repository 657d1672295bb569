"""What the library logs, as the command line passes it on: when, in which words, and to whom."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from typing import Any

import click
import pytest

from outlive.cli.invocation import Invocation
from outlive.cli.main import cli
from tests.cli.conftest import log_of_one_command, wait_until
from tests.cli.flow_apps import Shop

LOGGING_MODULE = """
import logging

logging.getLogger("outlive.example").debug("a detail")
"""


@pytest.mark.parametrize(
    "arguments",
    [("-vv", "lease", "ls"), ("lease", "ls", "-vv"), ("lease", "ls", "--verbose", "--verbose")],
)
def test_everything_is_logged_wherever_on_the_line_that_is_asked_for(shell, arguments):
    shell("migrate")
    assert "outlive: connected to sqlite://" in shell(*arguments).stderr
    assert shell("lease", "ls").stderr == ""


@pytest.mark.parametrize("option", [0, 1, 2])
def test_a_worker_logs_everything_wherever_on_the_line_that_is_asked_for(shell, option):
    module = f"logs_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(LOGGING_MODULE)
    line = ["worker", f"{module}:app"]
    done = shell(*line[:option], "-vv", *line[option:])
    assert (done.code, "outlive: a detail\n" in done.stderr) == (2, True)


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


SPEAKING = """
import outlive

app = outlive.App("shop")


@app.step(retry=outlive.Retry(first=0.01))
async def charge() -> None:
    outlive.current().log.warning("the bank is slow")
    if outlive.current().attempt == 1:
        raise ConnectionError("no answer")


@app.flow
async def checkout() -> None:
    outlive.logger().warning("nobody knows this customer")
    outlive.logger().warning("%d of them", "many")
    await charge()


@app.handler("mails")
async def mail(to: str) -> None:
    outlive.current().log.warning("the mail is long")
"""


def test_what_flows_steps_and_jobs_log_under_a_worker_says_which_they_are(outlive, shell):
    shop = Shop(outlive.folder, outlive.url)
    shop.write(SPEAKING)
    shell("migrate")
    worker = outlive.start("worker", shop.name)
    shell("flow", "start", "checkout", "--id", "o-1")
    shell("work", "enqueue", "mails", '"ann"', "--id", "m-1", "--retention", "60")
    assert shell("flow", "watch", "o-1").code == 0
    wait_until(lambda: shell("work", "show", "m-1", "--json").document["state"] == "done")
    worker.send_signal(signal.SIGTERM)
    lines = outlive.finish(worker).stderr.splitlines()
    said = [line.split(" ", 2)[2] for line in lines if line.startswith("outlive: ")]
    assert "shop: nobody knows this customer [flow o-1]" in said
    assert "shop: %d of them (arguments not shown: TypeError) [flow o-1]" in said
    assert "shop: the bank is slow [flow o-1, step charge#0]" in said
    assert "shop: the bank is slow [flow o-1, step charge#0, attempt 2]" in said
    assert "shop: the mail is long [job m-1]" in said
    (failed,) = [line for line in said if "no answer" in line]
    assert failed.startswith("shop: step charge#0 of flow o-1 failed at attempt 1")
    assert "[" not in failed


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("message", "fields", "said"),
    [
        ("a\nb", {"flow": "o-1", "step": "charge#0"}, "a [flow o-1, step charge#0]|b"),
        ("slow", {"job": "j", "queue": "q", "host": "h", "attempt": 1}, "slow [job j]"),
        ("slow", {"job": "j", "attempt": 2}, "slow [job j, attempt 2]"),
        ("the end of flow o-1: it is over", {"flow": "o-1"}, "the end of flow o-1: it is over"),
        ("flow 'o-1'.", {"flow": "o-1"}, "flow 'o-1'."),
        ("child o-1 of flow o-1-b", {"flow": "o-1"}, "child o-1 of flow o-1-b [flow o-1]"),
        ("flow o.1 and overflow o", {"flow": "o"}, "flow o.1 and overflow o [flow o]"),
        ("order 1 of flow 12", {"flow": "1"}, "order 1 of flow 12 [flow 1]"),
        ("x", {"flow": "a\x1b[31m\nb"}, r"x [flow a\x1b[31m\nb]"),
        ("x", {"flow": "f" * 512}, f"x [flow {'f' * 100}… (512 characters)]"),
        ("x", {"flow": Hostile(), "attempt": 10**5000}, None),
        # A secret that begins before the cut is not shown by half.
        ("x", {"flow": f"{'f' * 97}hunter2"}, f"x [flow {'f' * 97}***]"),
        ("", {"flow": "o-1"}, ""),
    ],
)
def test_a_line_names_what_it_is_about_where_its_message_does_not(capsys, message, fields, said):
    record = logging.makeLogRecord({"msg": message, "levelno": 30, **fields})
    with log_of_one_command():
        Invocation(secrets=frozenset({"hunter2"})).listener.listen()
        logging.getLogger("outlive").handle(record)
    unprintable = "x [flow (unprintable: RuntimeError), attempt (unprintable: ValueError)]"
    lines = (unprintable if said is None else said).split("|")
    assert capsys.readouterr().err == "".join(f"outlive: {line}\n" for line in lines if line)


def test_a_record_that_cannot_be_put_together_does_not_stop_who_logs_it(capsys):
    logger = logging.getLogger("outlive.example")
    wrong: Any = "many"
    with log_of_one_command():
        Invocation().listener.listen()
        logger.warning("%d of them", wrong)
        logger.warning(Hostile())
    assert capsys.readouterr().err == (
        "outlive: %d of them (arguments not shown: TypeError)\n"
        "outlive: (unprintable: RuntimeError) (arguments not shown: RuntimeError)\n"
    )


# A record before the program sets up its log, and some after that.
CONFIGURED = """
import logging
import logging.config

import outlive

app = outlive.App("shop")
log, root, ours = map(logging.getLogger, ("outlive.example", None, "outlive"))
theirs = logging.StreamHandler()
theirs.setFormatter(logging.Formatter("theirs: %(message)s"))
log.warning("too early")
{}
log.debug("a detail")
log.info("a remark")
log.warning("a warning")
"""

TO_ROOT = "root.addHandler(theirs)"
TO_OURS = "ours.addHandler(theirs)"


def records(handler: str, *said: str) -> list[str]:
    """Lines of that handler, while the app is imported and again while it runs."""
    return [f"{handler}: {each}" for each in said] * 2


WARNINGS = records("theirs", "a warning")
EVERYTHING = records("theirs", "a detail", "a remark", "a warning")
REMARKS = records("theirs", "a remark", "a warning")


@pytest.mark.parametrize(
    ("setup", "verbose", "said"),
    [
        (TO_ROOT, False, WARNINGS),
        (TO_OURS, False, WARNINGS),
        # Who asks for it hears everything.
        (TO_ROOT, True, records("outlive", "a detail", "a remark", "a warning")),
        # What prints nothing takes nobody's place.
        ("ours.addHandler(logging.NullHandler())", False, records("outlive", "a warning")),
        (f"{TO_ROOT}; root.setLevel('INFO')", False, REMARKS),
        # Set as it was already: that is said, too.
        (f"{TO_ROOT}; root.setLevel('INFO'); ours.setLevel('WARNING')", False, WARNINGS),
        (f"{TO_ROOT}; {TO_OURS}; ours.propagate = False", False, WARNINGS),
        ("", False, records("outlive", "a warning")),
        ("", True, records("outlive", "a detail", "a remark", "a warning")),
        ("ours.setLevel('INFO')", False, records("outlive", "a remark", "a warning")),
    ],
)
def test_a_program_with_handlers_of_its_own_has_the_log_of_a_worker_for_itself(
    shell, monkeypatch, setup, verbose, said
):
    module = f"configured_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(CONFIGURED.format(setup))

    def run(_: object) -> None:
        log = logging.getLogger("outlive.example")
        log.debug("a detail")
        log.info("a remark")
        log.warning("a warning")

    monkeypatch.setattr("outlive.cli.signals.run", run)
    done = shell("worker", f"{module}:app", *(["-vv"] if verbose else []))
    assert done.code == 0, done.stderr
    # A worker that runs says the time as well.
    lines = [
        re.sub(r"^outlive: \d\S+ shop:", "outlive:", each) for each in done.stderr.splitlines()
    ]
    assert lines == ["outlive: too early", *said]


def test_a_module_that_sets_up_the_log_and_fails_is_told_all_the_same(shell):
    module = f"fails_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(f"{CONFIGURED.format(TO_ROOT)}\n1 / 0\n")
    done = shell("worker", f"{module}:app")
    *_, warned, failed = done.stderr.splitlines()
    assert (done.code, warned) == (2, "theirs: a warning")
    assert failed.startswith(f"outlive: module '{module}' cannot be imported: ZeroDivisionError")


DICTIONARY = """logging.config.dictConfig({
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"theirs": {"format": "theirs: %(message)s"}},
    "handlers": {"theirs": {"class": "logging.StreamHandler", "formatter": "theirs"}},
    "root": {"handlers": ["theirs"]},
    "loggers": {"outlive": {"level": "WARNING"}},
})"""


@pytest.mark.parametrize(
    "setup", ["logging.basicConfig(format='theirs: %(message)s', level='INFO')", DICTIONARY]
)
def test_a_worker_leaves_its_log_to_what_configures_all_logging(outlive, shell, setup):
    shop = Shop(outlive.folder, outlive.url)
    configured = CONFIGURED.format(setup)
    shop.write(f"{configured}\n{SPEAKING}")
    shell("migrate")
    worker = outlive.start("worker", shop.name)
    shell("flow", "start", "checkout", "--id", "o-1")
    assert shell("flow", "watch", "o-1").code == 0
    worker.send_signal(signal.SIGTERM)
    lines = outlive.finish(worker).stderr.splitlines()
    assert ("theirs: a remark" in lines) == setup.startswith("logging.basicConfig")
    assert lines.count("theirs: the bank is slow") == 2
    ours = [line for line in lines if line.startswith("outlive: ")]
    # What the command says of itself is no record of the log.
    assert [line.split(" ", 2)[-1] for line in ours] == ["early", "shop serves <App 'shop'>"]
