"""``outlive chart top``: watch the machines of a running process, live or once.

The process must offer itself (``async with orchestrator.published()``). This only reads what the
socket says, never writes, and shows nothing uncleaned: names of groups were chosen by others.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from outlive.charts.orchestrator.monitor import SUFFIX, folder
from outlive.cli import signals
from outlive.cli.invocation import Invocation, current, global_options, interval_option
from outlive.cli.output import cell, emit_document, emit_fields, emit_line, emit_rows
from outlive.errors import NotFound, UsageError
from outlive.runtime.runtime import Runtime

# A process that does not answer within this is stuck, and that is worth saying.
ANSWER_S = 5.0

# A document of fifty groups has a few kilobytes; whoever sends more is not ours.
DOCUMENT_MAX = 1 << 20

_COLUMNS = {"id": "ID", "name": "GROUP", "machines": "MACHINES", "created_at": "CREATED"}


@click.command()
@click.argument("process", required=False)
@click.option("--once", is_flag=True, help="Show the present state once and end.")
@interval_option
@global_options
def top(process: str | None, once: bool, interval_s: float) -> None:
    """Watch the machines of a process, named by its pid or its socket; default the only one.

    The process must publish itself with "async with outlive.orchestrator().published():".
    """
    invocation = current()
    place = find(process)
    if once:
        _show(invocation, look(place))
        return
    if invocation.output == "json":
        raise UsageError(
            "a watch does not end, so it cannot be one JSON document: use -o jsonl or --once"
        )
    signals.run(lambda _: _watch(invocation, place, interval_s))


def find(process: str | None) -> Path:
    """The socket of ``process``.

    Raises:
        NotFound: There is none.
        UsageError: Several processes offer themselves, and none was named.
    """
    if process is not None and not process.isdecimal():
        return Path(process)
    if process is not None:
        return folder() / f"{process}{SUFFIX}"
    found = sorted(folder().glob(f"*{SUFFIX}"))
    alive = [place for place in found if _answers(place)]
    if not alive:
        raise NotFound(
            "no process publishes its machines; in the program, run them inside "
            "`async with outlive.orchestrator().published():`"
        )
    if len(alive) > 1:
        names = ", ".join(place.name.removesuffix(SUFFIX) for place in alive)
        raise UsageError(f"several processes publish their machines; name one of: {names}")
    return alive[0]


def _answers(place: Path) -> bool:
    try:
        look(place)
    except NotFound:
        return False
    return True


def look(place: Path) -> dict[str, Any]:
    """What the process at ``place`` says now.

    Raises:
        NotFound: Nobody is there, nobody answers, or it is no answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(place))
            text = b"".join(_chunks(connection))
        told = json.loads(text)
    except (OSError, ValueError) as error:
        raise NotFound(f"cannot read machines from {place}: {error}") from error
    if not isinstance(told, dict) or "metrics" not in told:
        raise NotFound(f"cannot read machines from {place}: the answer is not from an orchestrator")
    return told  # pyright: ignore[reportUnknownVariableType]


def _chunks(connection: socket.socket) -> Iterator[bytes]:
    size = 0
    while chunk := connection.recv(65_536):
        size += len(chunk)
        if size > DOCUMENT_MAX:
            raise ValueError("the answer is too long")
        yield chunk


def _numbers(told: dict[str, Any]) -> dict[str, Any]:
    """The numbers as lines for people."""
    metrics = told["metrics"]
    latency = metrics["latency_s"]
    return {
        "process": told["pid"],
        "health": "; ".join((told["health"]["level"], *told["health"]["reasons"])),
        "machines": f"{metrics['active_machines']} of {metrics['machines']} run",
        "groups": metrics["groups"],
        "processed": metrics["processed"],
        "failed": metrics["failed"],
        "timeouts": metrics["timeouts"],
        "throttled": metrics["throttled"],
        "dead letters": metrics["dead_letters"],
        "latency": ", ".join(f"{name} {_ms(latency[name])}" for name in ("p50", "p95", "p99")),
        "queue": f"{metrics['queue_depth']} machines, {metrics['queue_age_s'] * 1000:.0f} ms old",
        "pool": f"{metrics['pool_size']} lanes of at most {metrics['pool_size_max']}",
    }


def _ms(value_s: float | None) -> str:
    return "-" if value_s is None else f"{value_s * 1000:.3g} ms"


def _show(invocation: Invocation, told: dict[str, Any]) -> None:
    if invocation.output == "json":
        emit_document(told)
    elif invocation.output == "jsonl":
        emit_line(told)
    else:
        emit_fields("table", _numbers(told))
        if told["groups"]:
            click.echo()
            emit_rows("table", "groups", told["groups"], _COLUMNS)


async def _watch(invocation: Invocation, place: Path, interval_s: float) -> None:
    clock = Runtime().clock
    if invocation.output == "jsonl" or not sys.stdout.isatty():
        while True:
            _show(invocation, look(place))
            sys.stdout.flush()
            await clock.sleep(interval_s)
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as screen:
        before = look(place)
        while True:
            await clock.sleep(interval_s)
            told = look(place)
            screen.update(_picture(told, before, interval_s), refresh=True)
            before = told


def _picture(told: dict[str, Any], before: dict[str, Any], interval_s: float) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    handled = told["metrics"]["processed"] - before["metrics"]["processed"]
    numbers = Table.grid(padding=(0, 2))
    rate = {"events per second": f"{handled / interval_s:,.0f}"}
    for name, value in {**_numbers(told), **rate}.items():
        numbers.add_row(Text(name, style="bold"), Text(cell(value)))
    groups = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _COLUMNS.values():
        groups.add_column(heading)
    for group in told["groups"]:
        # Text, not str: a name such as "[red]" is a name, not markup.
        groups.add_row(*(Text(cell(group.get(field))) for field in _COLUMNS))
    return Group(numbers, Text(""), groups)
