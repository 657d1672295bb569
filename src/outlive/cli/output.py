"""Output: data on stdout, as a table for people or JSON for programs, and talk on stderr.

Nothing reaches a terminal uncleaned: keys, metadata, reasons and host names were written by
others and may hold escape sequences.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

from outlive.cli import streams

Row = Mapping[str, Any]


class Lines(tuple[str, ...]):
    """A value that takes more than one line of a table; JSON never has one."""

    __slots__ = ()


# Control, format (the bidirectional overrides among them), surrogate, line and paragraph
# characters move the cursor, reorder text or cannot be written.
# A longer text makes its own row of a table longer, and not all of them.
_WIDTH_MAX = 60

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """``text`` with every character that could act on a terminal written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNSAFE
        else character
        for character in text
    )


def clean_lines(text: str) -> str:
    """``text`` cleaned, line by line."""
    return "\n".join(clean(line) for line in text.splitlines())


def say(text: str) -> None:
    """One line of talk, on stderr. Where that takes no more, the command goes on in silence."""
    talk(f"outlive: {clean(text)}")


def talk(text: str) -> None:
    """Lines of talk that are clean already, as ``say`` says one."""
    try:
        click.echo(text, err=True)
    except OSError as error:
        if not streams.takes_no_more(error):
            raise
        streams.discard(sys.stderr)


def emit_rows(output: str, name: str, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Many things of one kind; ``columns`` maps a field to its heading in a table."""
    if output == "json":
        emit_document({name: rows})
    elif output == "jsonl":
        for row in rows:
            emit_line(row)
    else:
        table = [[cell(row.get(field)) for field in columns] for row in rows]
        _table([*columns.values()], table)
    context = click.get_current_context(silent=True)
    typed: str | None = getattr(context and context.obj, "namespace", None)
    if not rows and typed is not None:
        # No store keeps a list of namespaces: one that is mistyped is empty.
        say(f"note: namespace {typed!r} has no {name}")


def emit_fields(output: str, document: Row) -> None:
    """One thing: an object, or a line per field."""
    if output == "json":
        emit_document(document)
    elif output == "jsonl":
        emit_line(document)
    else:
        width = max(len(name) for name in document)
        for name, value in document.items():
            first, *more = value if isinstance(value, Lines) else (value,)
            click.echo(f"{name.ljust(width)}  {cell(first)}".rstrip())
            for line in more:
                click.echo(f"{' ' * width}  {cell(line)}".rstrip())


def emit_document(document: object) -> None:
    """The one JSON document of this call."""
    _write(json.dumps(document, indent=2, default=_plain))


def emit_line(document: object) -> None:
    """One JSON object on one line, seen by a reader at once."""
    _write(json.dumps(document, default=_plain))


def cell(value: object) -> str:
    """A value as one line of clean text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (dict, list, tuple)):
        return clean(json.dumps(value, default=_plain, ensure_ascii=False))
    return clean(str(value))


def timestamp(value: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    return str(value)


def _write(text: str) -> None:
    # ASCII alone is safe on every terminal, and DEL is the one control character JSON leaves as
    # it is. It can only stand inside a string.
    click.echo(text.replace("\x7f", "\\u007f"))
    sys.stdout.flush()


def _table(headings: list[str], rows: list[list[str]]) -> None:
    if sys.stdout.isatty():
        _rich_table(headings, rows)
        return
    widths = [
        max(min(len(text), _WIDTH_MAX) if at else len(text) for at, text in enumerate(column))
        for column in zip(headings, *rows, strict=True)
    ]
    for line in (headings, *rows):
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _rich_table(headings: list[str], rows: list[list[str]]) -> None:
    # Imported here because a pipe, the common case in scripts, needs none of it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text, not str: a key such as "[red]" is a key, not markup.
        table.add_row(*(Text(text) for text in row))
    Console(highlight=False, emoji=False, markup=False).print(table)
