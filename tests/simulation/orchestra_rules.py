"""What must hold of every history of the orchestrator, read from the records alone.

C1 isolation: an event is handled in the group that it was sent to.
C2 order: what one sender sends to one machine is handled in that order.
C3 once: no event is handled twice.
C4 nothing lost: what was accepted by a machine that was not cut short is handled.
C5 one at a time: while an action awaits, its machine handles only what that action waits for.
C6 answers: each request ends once; an answer means handled, a timeout that had not begun never is.
C7 release: nothing is handled in a group after its release, and nobody goes on waiting for it.
C8 rest: afterwards nobody is busy, nothing is left, the numbers add up, the pool is within bounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.simulation.orchestra import Record, Seed

_CUT_SHORT = {"released", "halted"}
_ENDS = ("answer", "timeout", "error", "gave up")


def broken(seed: Seed) -> list[str]:
    """The rules that ``seed`` breaks, each with what shows it."""
    history = seed.history
    return [
        *_isolation(history),
        *_order(history),
        *_once(history),
        *_nothing_lost(seed),
        *_one_at_a_time(history),
        *_answers(history),
        *_release(history),
        *_rest(seed),
    ]


def _of(history: list[Record], *kinds: str) -> list[Record]:
    return [record for record in history if record.what in kinds]


def _isolation(history: list[Record]) -> list[str]:
    meant = {
        record.number: record.group for record in _of(history, "accepted", "accepted late", "asked")
    }
    return [
        f"C1 {record}"
        for record in _of(history, "handled")
        if meant.get(record.number, record.group) != record.group
    ]


def _order(history: list[Record]) -> list[str]:
    last: dict[tuple[str, str], int] = {}
    found: list[str] = []
    for record in _of(history, "handled"):
        # Requests of machines may come along a chain, which passes the queue on purpose. What was
        # forwarded later by a timer has its own time.
        if not record.sender.startswith("sender"):
            continue
        before = last.get((record.sender, record.machine), 0)
        if record.number < before:
            found.append(f"C2 {record} after {before}")
        last[record.sender, record.machine] = record.number
    return found


def _once(history: list[Record]) -> list[str]:
    seen = Counter((record.sender, record.number) for record in _of(history, "handled"))
    return [f"C3 {key} was handled {count} times" for key, count in seen.items() if count > 1]


def _nothing_lost(seed: Seed) -> list[str]:
    history = seed.history
    if seed.policy == "drop-oldest":
        return []
    cut = {record.machine for record in history if record.what in _CUT_SHORT}
    handled = {record.number for record in _of(history, "handled")}
    return [
        f"C4 {record}"
        for record in _of(history, "accepted", "accepted late")
        if record.machine not in cut and record.number not in handled and record.detail != "BAD"
    ]


def _one_at_a_time(history: list[Record]) -> list[str]:
    inside: dict[str, set[int]] = defaultdict(set)
    found: list[str] = []
    for record in history:
        waiting = inside[record.machine]
        if record.what == "begin":
            waiting.add(record.number)
        elif record.what == "end":
            waiting.discard(record.number)
        elif record.what in ("released", "halted"):
            waiting.clear()
        elif record.what == "handled" and waiting and record.sender.startswith(("sender", "via")):
            found.append(f"C5 {record} while {sorted(waiting)} awaited")
    return found


def _answers(history: list[Record]) -> list[str]:
    handled = {record.number for record in _of(history, "handled")}
    ends: dict[int, list[Record]] = defaultdict(list)
    for record in _of(history, *_ENDS):
        ends[record.number].append(record)
    found: list[str] = []
    for record in _of(history, "asked"):
        outcome = ends[record.number]
        if len(outcome) != 1:
            found.append(f"C6 {record} ended {len(outcome)} times")
        elif outcome[0].what == "answer" and record.number not in handled:
            found.append(f"C6 {outcome[0]} was never handled")
        elif outcome[0].what == "timeout" and not outcome[0].detail and record.number in handled:
            found.append(f"C6 {outcome[0]} was handled after all")
    return found


def _release(history: list[Record]) -> list[str]:
    released: set[str] = set()
    asked: set[int] = set()
    found: list[str] = []
    for record in history:
        if record.what == "released":
            released.add(record.machine)
        elif record.machine not in released:
            asked.add(record.number)
        elif record.what == "handled" or (record.what == "timeout" and record.number in asked):
            found.append(f"C7 {record} after the release")
    return found


def _rest(seed: Seed) -> list[str]:
    found = [f"C8 left: {name}" for name in seed.left]
    metrics = seed.metrics
    assert metrics is not None
    if metrics.queue_depth:
        found.append(f"C8 {metrics.queue_depth} machines still wait")
    handled = sum(record.what == "handled" for record in seed.history)
    if metrics.succeeded > handled + metrics.failed or metrics.processed < handled:
        found.append(f"C8 {metrics.processed} processed, {handled} seen")
    if not 1 <= metrics.pool_size <= metrics.pool_size_max:
        found.append(f"C8 a pool of {metrics.pool_size}")
    return found
