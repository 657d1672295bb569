"""Writes the table of backends into the documents, from what the drivers themselves promise.

    python tools/capabilities_table.py           write
    python tools/capabilities_table.py --check   change nothing; exit 1 if a document is stale

Owns the text between the markers and nothing outside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from outlive.connect import find_factory
from outlive.ports.capabilities import Capabilities

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- capabilities: begin (written by tools/capabilities_table.py) -->"
END = "<!-- capabilities: end -->"

SCHEMES = ("memory", "sqlite", "postgresql", "redis", "azblob", "cosmos")

_REACH = {"process": "one process", "machine": "one machine", "network": "many machines"}

Row = tuple[str, str, Callable[[Capabilities], str]]


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _drift(capabilities: Capabilities) -> str:
    return f"{capabilities.drift:.1%}" if capabilities.drift else "0 (one clock)"


def _longest(capabilities: Capabilities) -> str:
    most = capabilities.ttl_max_s
    return "no limit of its own" if most is None else f"{most:g} s"


# Field, what people call it, and how it is said.
ROWS: tuple[Row, ...] = (
    ("across", "one store serves", lambda c: _REACH.get(c.across, c.across)),
    ("clock", "clock that judges expiry", lambda c: c.clock),
    ("fifo", "waiters served in order of arrival", lambda c: _yes(c.fifo)),
    ("push", "waiters woken without polling", lambda c: _yes(c.push)),
    ("history", "history of ended grants", lambda c: _yes(c.history)),
    ("semaphore", "semaphores", lambda c: _yes(c.semaphore)),
    ("multi_key", "several keys together", lambda c: _yes(c.multi_key)),
    ("sessions", "host sessions", lambda c: _yes(c.sessions)),
    ("guard", "`guard` inside your transaction", lambda c: ", ".join(c.guard) or "no"),
    ("jobs", "work: jobs claimed by many", lambda c: _yes(c.jobs)),
    ("ordering", "ordering keys for jobs", lambda c: _yes(c.ordering)),
    ("queue_limits", "fleet-wide limits of a queue", lambda c: _yes(c.queue_limits)),
    ("schedules", "schedules: cron, one fire per tick", lambda c: _yes(c.schedules)),
    ("instances", "flows: kept, and taken over", lambda c: _yes(c.instances)),
    ("transact", "steps that commit with your writes", lambda c: c.transact or "no"),
    ("drift", "clock drift allowed for", _drift),
    ("ttl_min_s", "shortest ttl", lambda c: f"{c.ttl_min_s:g} s"),
    ("ttl_max_s", "longest ttl", _longest),
    ("observes", "takeover by a clock of the waiter's own", lambda c: _yes(c.observes)),
)

DOCUMENTS: dict[str, tuple[str, ...]] = {
    "README.md": ("across", "clock", "fifo", "semaphore", "guard"),
    "docs/reference/capabilities.md": tuple(name for name, _, _ in ROWS),
}


def table(wanted: Sequence[str]) -> str:
    """The table in Markdown: one column per backend, one row per promise."""
    promises = [find_factory(scheme).capabilities for scheme in SCHEMES]
    lines = [
        "| | " + " | ".join(promise.backend for promise in promises) + " |",
        "|---" * (len(promises) + 1) + "|",
    ]
    for name, words, say in ROWS:
        if name in wanted:
            cells = " | ".join(say(promise) for promise in promises)
            lines.append(f"| {words} | {cells} |")
    return "\n".join(lines)


def with_table(text: str, wanted: Sequence[str]) -> str:
    """``text`` with a fresh table between its markers.

    Raises:
        ValueError: The markers are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the markers of the capabilities table are missing")
    return f"{before}{BEGIN}\n\n{table(wanted)}\n\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or say which are stale."""
    stale: list[str] = []
    for name, wanted in DOCUMENTS.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        fresh = with_table(text, wanted)
        if fresh != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    for name in stale:
        print(f"{name}: {'stale' if '--check' in arguments else 'written'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
