"""``outlive flow start`` and ``fork``: the verbs that make a flow."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import click

from outlive.app import App
from outlive.cli import audit, signals
from outlive.cli.invocation import SECONDS, create_option, current, global_options
from outlive.cli.output import emit_fields, say
from outlive.cli.work_enqueue import instant, json_value
from outlive.cli.worker import load_app
from outlive.errors import UsageError
from outlive.flows.checking import near
from outlive.flows.flow import Flow
from outlive.flows.handle import FlowHandle
from outlive.model.instance import Entry

_BY_NAME = """without --app, the arguments are one JSON object, such as '{"order": "o-3"}'"""


def attributes_of(pairs: Sequence[str]) -> dict[str, Any]:
    """What NAME=VALUE says, each; a value that is a number or true or false is no text.

    Raises:
        UsageError: A pair is none.
    """
    attributes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"an attribute must be NAME=VALUE, not {pair!r}")
        attributes[name] = _scalar(text)
    return attributes


def _scalar(text: str) -> str | float | bool:
    try:
        value = json_value(text, "an attribute")
    except UsageError:
        return text
    return value if isinstance(value, (str, int, float)) else text


@click.command()
@click.argument("name")
@click.argument("arguments", metavar="[JSON]...", nargs=-1)
@click.option("--id", "id_", help="Id of the flow; a second start with this id starts nothing.")
@click.option("--delay", type=SECONDS, help="Seconds until the flow may begin.")
@click.option("--at", help="Instant instead of a delay, in ISO 8601 with its offset.")
@click.option("--attribute", multiple=True, help="Attribute to find the flow by, as NAME=VALUE.")
@click.option("--app", help="MODULE:NAME of its app; checks name and arguments.")
@create_option
@global_options
def start(
    name: str,
    arguments: tuple[str, ...],
    id_: str | None,
    at: str | None,
    attribute: tuple[str, ...],
    app: str | None,
    create: bool,
    **options: Any,
) -> None:
    """Start the flow NAME; a host that runs its app executes it.

    The arguments are one JSON object by name; '-' reads it from stdin. With --app, they may also be
    given by position, one JSON value each.
    """
    invocation = current()
    values = [
        json_value(sys.stdin.read() if text == "-" else text, "an argument") for text in arguments
    ]
    loaded = None if app is None else load_app(app)
    if loaded is not None:
        definition(loaded, name)
    elif len(values) > 1 or not all(isinstance(value, dict) for value in values):
        raise UsageError(_BY_NAME)
    given = values[:1] if len(values) <= 1 else [values]
    options["at"] = None if at is None else instant(at)

    async def begin(_: signals.Signals) -> FlowHandle[Any]:
        async with invocation.host(app=loaded, create=create) as host:
            attributes = attributes_of(attribute)
            handle = await host.flows.start(name, *given, id=id_, attributes=attributes, **options)
            created = handle.entry is Entry.CREATED
            if created and loaded is None and len(await host.flows.list(name=name, limit=2)) == 1:
                # The store knows the names of what was started before, and no others.
                names = {info.name: info for info in await host.flows.list() if info.name != name}
                say(
                    f"note: this is the first flow named {name!r} in this namespace"
                    f"{near(name, names)}; it waits until a host runs an app with this flow"
                )
            return handle

    handle = signals.run(begin)
    emit_fields(invocation.output, {"id": handle.id, "name": name, "entry": handle.entry})
    if handle.entry is Entry.EXISTING:
        say(f"nothing was started: flow {handle.id!r} already exists and keeps its arguments")


@click.command()
@click.argument("flow_id", metavar="FLOW")
@click.option(
    "--at", required=True, help="Copy up to this version, or up to before this step (pay#0)."
)
@click.option("--id", "id_", help="Id of the new flow.")
@click.option("--input", "input_", help="New arguments, in the form of `start`.")
@click.option("--app", help="MODULE:NAME of its app.")
@global_options
def fork(flow_id: str, at: str, id_: str | None, input_: str | None, app: str | None) -> None:
    """Start a new flow from a part of the history of another flow.

    The recorded part up to --at is not run again; the part after it is.
    """
    invocation = current()
    loaded = None if app is None else load_app(app)
    value = None if input_ is None else json_value(input_, "the input")
    if input_ is not None and loaded is None and not isinstance(value, dict):
        raise UsageError(_BY_NAME)

    async def begin(_: signals.Signals) -> str:
        async with invocation.host(app=loaded) as host:
            handle = host.flows.get(flow_id)
            args: Mapping[str, Any] | Sequence[Any] | None = None
            if isinstance(value, dict):
                args = cast("dict[str, Any]", value)
            elif loaded is not None and input_ is not None:
                found = definition(loaded, (await handle.status()).name)
                args = _by_position(found, value)
            cut = int(at) if at.isdecimal() else at
            await audit.record(host, "flow fork", handle.id)
            return (await handle.fork(at=cut, id=id_, input=args)).id

    emit_fields(invocation.output, {"id": signals.run(begin), "forked_from": flow_id})


def definition(app: App, name: str) -> Flow[..., Any]:
    """The flow of that name.

    Raises:
        UsageError: The app has none.
    """
    found = app.flows.get(name)
    if found is None:
        raise UsageError(f"{app!r} has no flow {name!r}{near(name, app.flows)}")
    return found


def _by_position(flow: Flow[..., Any], value: Any) -> Sequence[Any]:
    args, kwargs = flow.arguments.decode(flow.arguments.from_json(value))
    if kwargs:
        raise UsageError(f"flow {flow.name!r} has keyword-only arguments: fork it from Python")
    return args
