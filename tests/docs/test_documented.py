"""What a user can meet is documented: errors, events, options, commands, settings, names."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import click
import pytest
from prometheus_client import CollectorRegistry

import outlive
from outlive import errors, settings
from outlive.charts.orchestrator import Group, Machine, Metrics
from outlive.cli.errors import exit_code_of
from outlive.cli.main import cli
from outlive.connect import driver_schemes, find_factory
from outlive.leases import events
from outlive.ports.capabilities import Capabilities
from outlive.telemetry.events import JOB_OUTCOMES, REASONS
from outlive.work.drafting import JobOptions
from tests.docs import log_events
from tests.docs.pages import ROOT, pages, reference
from tools import capabilities_table


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading that is a name in code, up to the next of its kind."""
    parts = re.split(r"^#{2,4} ", text, flags=re.MULTILINE)
    found = [part for part in parts if part.startswith(f"`{heading}`")]
    assert len(found) == 1, f"{heading} has {len(found)} sections"
    return found[0]


def missing(text: str, names: list[str]) -> list[str]:
    assert names
    return [name for name in names if f"`{name}`" not in text]


WORK = (outlive.Work, outlive.Job, outlive.Claim, outlive.Current)
ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.OutliveError)
]
EVENTS = [
    value
    for value in vars(events).values()
    if inspect.isclass(value) and issubclass(value, events.LeaseEvent)
]


def test_every_public_error_is_documented_with_its_fields_and_exit_code():
    assert len(ERRORS) >= 18
    text = page("errors.md")
    for error in ERRORS:
        said = section(text, error.__name__)
        parameters = inspect.signature(error).parameters if "__init__" in vars(error) else {}
        fields = [name for name in parameters if name not in ("message", "detail")]
        assert not fields or missing(said, fields) == [], error.__name__


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_the_exit_code_of_an_error_is_the_documented_one(error):
    stated = re.search(r"Exit\s+code\s+(\d+)", section(page("errors.md"), error.__name__))
    assert stated is not None
    assert int(stated[1]) == exit_code_of(error.__new__(error))


def test_every_reason_of_a_loss_is_documented():
    assert missing(section(page("errors.md"), "LeaseLost"), list(REASONS)) == []


def test_every_event_is_documented_with_its_fields():
    assert len(EVENTS) >= 6
    text = page("events.md")
    common = {field.name for field in dataclasses.fields(events.LeaseEvent)}
    for event in EVENTS:
        own = [field.name for field in dataclasses.fields(event)]
        if event is not events.LeaseEvent:
            own = [name for name in own if name not in common]
        said = section(text, event.__name__)
        assert not own or missing(said, own) == [], event.__name__


def test_every_lease_option_is_documented_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", page("options.md"), re.MULTILINE))
    fields = dataclasses.fields(outlive.LeaseOptions)
    assert len(fields) >= 11
    for field in fields:
        assert rows.get(field.name) == _said(field.default), field.name


def _said(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(f"{part:g} s" for part in value)
        case float() if value == 2 / 3:
            return "2/3"
        case float() if value >= 1:
            return f"{value:g} s"
        case _:
            return f"{value:g}"


def commands(command: click.Command, path: str):
    yield path, command
    if isinstance(command, click.Group):
        # Asked for as click does: a command may be imported only then.
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{path} {name}"
            yield from commands(child, f"{path} {name}")


def test_every_command_and_option_is_documented():
    text = reference()
    found = list(commands(cli, "outlive"))
    assert len(found) >= 20
    absent = [path for path, _ in found if path not in text]
    options = {
        option
        for _, command in found
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    assert len(options) >= 15
    absent += sorted(option for option in options if option not in text)
    assert absent == []


def test_every_setting_is_documented():
    text = reference()
    names = [settings.PREFIX + name.upper().replace(".", "_") for name in settings._KINDS]
    assert len(names) >= 16
    given = [f"OUTLIVE_LEASE_{name}" for name in ("KEY", "TOKEN", "OWNER")]
    assert [name for name in (*names, *given) if f"`{name}`" not in text] == []
    assert "OUTLIVE_OPTIONS_" in text


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "postgresql", "redis", "azblob", "cosmos"])
def test_every_option_of_a_driver_is_documented_on_its_page(scheme):
    options = sorted(find_factory(scheme).options)
    text = page(f"drivers/{scheme.removesuffix('ql')}.md")
    assert scheme == "memory" or len(options) >= 3
    assert [name for name in options if f"`{name}`" not in text] == []


def test_every_public_name_is_documented():
    text = page("api.md")
    names = [name for name in outlive.__all__ if name != "__version__"]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
    kinds = (outlive.Lease, outlive.Leases, outlive.Host, outlive.App, *WORK)
    for kind in kinds:
        members = [
            name
            for name, value in vars(kind).items()
            if not name.startswith("_") and (callable(value) or isinstance(value, property))
        ]
        assert len(members) >= 2
        absent = [name for name in members if not re.search(rf"`{name}\b", text)]
        assert absent == [], kind.__name__


def test_every_option_of_work_is_documented_with_its_default():
    text = page("options.md")
    handler = list(inspect.signature(outlive.App.handler).parameters.values())[2:]
    job = [*JobOptions.__annotations__, "tx"]
    for heading, names in (
        ("Handlers", [parameter.name for parameter in handler]),
        ("Retry", [field.name for field in dataclasses.fields(outlive.Retry)]),
        ("Jobs", job),
    ):
        said = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        assert missing(said, names) == [], heading


def test_every_metric_is_documented():
    registry = CollectorRegistry()
    outlive.PrometheusTelemetry(registry)
    names = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in registry.collect()
    }
    assert len(names) >= 15
    assert missing(page("metrics.md"), sorted(names)) == []
    assert missing(page("metrics.md"), list(JOB_OUTCOMES)) == []


def test_everything_of_the_orchestrator_is_documented():
    text = page("orchestrator.md")
    options = list(inspect.signature(outlive.Orchestrator).parameters)
    fields = [field.name for field in dataclasses.fields(Metrics)]
    assert missing(text, [*options, *fields]) == []
    for kind in (outlive.Orchestrator, Group, Machine):
        documented = section(text, kind.__name__)
        called = [
            name
            for name, value in vars(kind).items()
            if not name.startswith("_") and inspect.iscoroutinefunction(value)
        ]
        assert len(called) >= 2
        assert [name for name in called if not re.search(rf"`{name}\b", documented)] == []


def test_every_argument_of_connect_is_documented():
    names = list(inspect.signature(outlive.connect).parameters)
    assert missing(page("options.md"), names) == []


def test_the_row_url_of_the_options_lists_every_scheme():
    row = re.search(r"^\| `url` .*$", page("options.md"), re.MULTILINE)
    assert row is not None
    assert [name for name in driver_schemes() if f"`{name}://" not in row[0]] == []


def test_the_capabilities_tables_are_fresh():
    for name, wanted in capabilities_table.DOCUMENTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert capabilities_table.with_table(text, wanted) == text, (
            f"{name} is stale: run python tools/capabilities_table.py"
        )


def test_the_capabilities_table_says_all_there_is():
    fields = {field.name for field in dataclasses.fields(Capabilities)}
    assert {name for name, _, _ in capabilities_table.ROWS} == fields - {"backend"}


def test_exactly_once_is_said_of_one_transaction_only():
    careless = [
        f"{document.name}: {sentence.strip()}"
        for document in pages()
        for sentence in re.split(r"(?<=[.!?|])\s", document.text)
        if re.search(r"exactly[ -]once", sentence, re.IGNORECASE)
        and "same transaction" not in " ".join(sentence.split())
    ]
    assert careless == []


def test_the_readme_begins_in_the_words_of_the_field_and_shows_a_worker():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = " ".join(text.split("\n\n")[1].split()).partition(". ")[0]
    for words in (
        *("distributed locks", "leader election", "background jobs", "cron", "durable workflows"),
        *("PostgreSQL, SQLite or Redis you already run", "XState-compatible statecharts"),
    ):
        assert words in first
    assert "**Do not use it**" in text
    assert "$ outlive worker shop:app" in text


@pytest.mark.parametrize(
    "name", ["distributed-leasing", "durable-functions", "xstatenet", "claiming-table"]
)
def test_a_page_for_those_who_move_compares_warns_and_runs(name):
    found = [each for each in pages() if each.path.parts[-2:] == ("coming-from", f"{name}.md")]
    assert len(found) == 1
    text = found[0].text
    assert re.search(r"^> \*\*A (mixed fleet holds two locks|chart is no lock)", text, re.MULTILINE)
    assert "\n## Names\n" in text
    assert "\n## What differs, and why\n" in text
    before, after = (found[0].blocks[0], found[0].blocks[1:])
    assert before.language in ("csharp", "python")
    assert any(block.language == "python" for block in after)


def test_the_glossary_has_the_words_of_logs_and_errors():
    headings = re.findall(r"^### (.+)$", page("glossary.md"), re.MULTILINE)
    words = {word.strip().lower() for heading in headings for word in heading.split(",")}
    assert {
        *("host", "session", "namespace", "owner", "token", "fence", "take-over", "keeper"),
        *("lease", "grant", "ttl", "deadline", "break", "guard", "slot"),
        *("job", "handler", "worker", "claim", "attempt", "loss", "dead letter", "role", "tick"),
        *("flow", "step", "history", "replay", "message", "signal", "inbox", "park", "stuck"),
        *("retry", "fork", "cut", "child", "saga", "chart", "machine", "lane", "mailbox"),
        *("notification", "outcome unknown", "retention", "prune", "purge"),
    } <= words


def test_how_a_system_fails_is_headed_failure_modes():
    assert [each.name for each in pages() if re.search(r"bad day", each.text, re.IGNORECASE)] == []


def test_every_log_record_is_listed_with_its_level_and_fields():
    assert page("logs.md") == log_events.written(page("logs.md")), (
        "write the tables anew: python -m tests.docs.log_events write"
    )
