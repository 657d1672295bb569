"""How the events of a competition look on a terminal. Pure; prints nothing.

Text that came from the store (owners, regions) is passed through ``clean`` by whoever prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# Fits beside a prompt in half a screen, which is how people watch several terminals.
_WIDTH = 62

COLOURS = {
    "acquired": "green",
    "released": "green",
    "refused": "yellow",
    "gave_up": "yellow",
    "lost": "red",
    "killed": "red",
}


def lines_of(event: Mapping[str, Any]) -> list[str]:
    """The lines that tell of ``event``; none for one that is not for people."""
    match event["event"]:
        case "acquired":
            return _acquired(event)
        case "refused":
            return _refused(event)
        case "item":
            return [_item(event)]
        case "released":
            done = f"items: {event['items']} in {event['held_s']:.1f} s"
            return [*_banner("LOCK RELEASED"), f"  {done}; renewals: {event['renewals']}"]
        case "lost":
            stopped = "the work was stopped immediately; its last writes would be fenced"
            return [*_banner("LOCK LOST"), f"  {event['message']}", f"  {stopped}"]
        case "gave_up":
            return [f"  the lock was not released within {event['waited_s']:.1f} s; giving up"]
        case "killed":
            return [f"  *** {event['instance']} is killed (SIGKILL), still owning the lock ***"]
        case "result":
            return ["", _result(event)]
        case _:
            return []


def _banner(title: str) -> list[str]:
    rule = "+" + "-" * (_WIDTH - 2) + "+"
    return ["", rule, f"|  {title}".ljust(_WIDTH - 1) + "|", rule]


def _fields(fields: Mapping[str, object]) -> list[str]:
    width = max(map(len, fields))
    return [f"  {name.ljust(width)}  {value}" for name, value in fields.items() if value]


def _acquired(event: Mapping[str, Any]) -> list[str]:
    version = f"{event['version']}"
    if event["etag"] is not None:
        version += f" (ETag {event['etag']})"
    previous = event["previous_owner"]
    return [
        *_banner("LOCK ACQUIRED"),
        *_fields(
            {
                "instance": event["instance"],
                "region": event["region"],
                "key": event["key"],
                "lease id": event["lease_id"],
                "token": event["token"],
                "version": version,
                "expires at": f"{_instant(event['expires_at'])}, unless renewed",
                "taken over from": previous and f"{previous}, whose lease had expired",
            }
        ),
    ]


def _refused(event: Mapping[str, Any]) -> list[str]:
    owner = event["owner"]
    title = [*_banner("LOCK ACQUISITION FAILED")]
    if owner is None:
        return [*title, "  the lock was released just now; run the command again"]
    fields = {
        "instance": f"{event['instance']} ({event['region']})",
        "owned by": owner,
        "region": event["owner_region"],
        "token": event["token"],
        "since": _instant(event["acquired_at"]),
        "ends in": f"{event['remaining_s']:.1f} s, unless renewed",
    }
    waiting = f"  waiting for the lock for at most {event['waits_s']:g} s"
    return [*title, *_fields(fields), *([waiting] if event["waits_s"] else [])]


def _item(event: Mapping[str, Any]) -> str:
    return (
        f"  item {event['number']:>3}/{event['items']}  elapsed {event['elapsed_s']:5.1f} s"
        f"  renewals {event['renewals']}  version {event['version']}"
        f"  left {event['remaining_s']:.1f} s"
    )


def _result(event: Mapping[str, Any]) -> str:
    tokens = ", then ".join(
        f"{winner['instance']} with token {winner['token']}" for winner in event["winners"]
    )
    return f"{event['instances']} instances competed; owned by {tokens or 'no instance'}"


def _instant(value: datetime | str) -> str:
    # A race hears its instances as JSON, where an instant is text.
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{instant:%H:%M:%S}Z"
