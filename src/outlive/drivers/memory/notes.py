"""Notes of hosts that wait, in the memory store: who of them is told."""

from __future__ import annotations

from outlive.names import HostId


def take_notes(notes: dict[HostId, int], items: int, now_us: int) -> list[HostId]:
    """Take away the notes of those who are told of ``items``; which hosts they are of.

    ``notes`` are in order of age, with the instant at which each ends. Told are the oldest, as many
    as there are items, and the one that ends last: the oldest may be of hosts that died.
    """
    for host in [host for host, until_us in notes.items() if until_us <= now_us]:
        del notes[host]
    if not notes:
        return []
    last = max(reversed(notes), key=lambda host: notes[host])
    others = [host for host in notes if host != last]
    told = [last, *others[:items]]
    for host in told:
        del notes[host]
    return told
