"""Pure checks of L1 to L10 over a recorded history.

Owns the judgement. Each check returns what it found, with the seed and the events that prove it;
none asks a clock, a store or the code under test.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.simulation.oracles.history import Applied, Event, History
from tests.simulation.oracles.lease_reference import EPSILON_S, Violation, check_served

# After the chaos: a full ttl, the turn of each dead waiter, and one slow poll.
LIVENESS_BOUND_S = 8.0

_GRANTS = ("acquire", "store.acquire", "store.resume")
_RENEWALS = ("renew", "store.renew")
_RELEASES = ("release", "store.release")
_BREAKS = ("break", "store.break")
_SEEN_HELD = ("believe", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """From when to when a process believed that it owned a slot of a key."""

    key: str
    proc: str
    grant: str
    token: int
    capacity: int
    start: float
    end: float


class Facts:
    """A history, sorted for the checks."""

    def __init__(self, history: History) -> None:
        self.seed = history.seed
        self.crashed = history.crashed
        self.applied: Sequence[Applied] = history.applied()
        self.events = history.events()
        self.served = history.served
        self.by_grant: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self.granted: list[Event] = []
        self.breaks: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.grant:
                self.by_grant[event.key, event.grant].append(event)
            if event.op in _GRANTS and event.ok:
                self.granted.append(event)
            if event.op in _BREAKS:
                self.breaks[event.key].append(event)

    def violation(self, rule: str, text: str, *proof: object) -> Violation:
        """A finding of this history."""
        return Violation(rule=rule, seed=self.seed, text=text, proof=tuple(map(str, proof)))

    def of(self, event: Event, ops: Iterable[str]) -> list[Event]:
        """The events of the same grant with one of these operations."""
        return [other for other in self._grant(event) if other.op in ops]

    def _grant(self, event: Event) -> list[Event]:
        return self.by_grant[event.key, event.grant]


def check_l1(facts: Facts) -> list[Violation]:
    """A token of a key is granted to one owner only."""
    first: dict[tuple[str, int | None], Event] = {}
    found: list[Violation] = []
    for event in facts.granted:
        other = first.setdefault((event.key, event.token), event)
        if other.grant != event.grant:
            text = f"token {event.token} of {event.key!r} was granted twice"
            found.append(facts.violation("L1", text, other, event))
    return found


def check_l2(facts: Facts) -> list[Violation]:
    """A grant that was answered before another was asked for has the lower token."""
    found: list[Violation] = []
    for granted in _by_key(facts.granted).values():
        newest = _Newest(granted)
        for event in granted:
            # A request that lost its reply is asked again under the same owner: the grant was
            # asked for when it was asked for first.
            other = newest.before(min(first.t_start for first in facts.of(event, _GRANTS)))
            if other is None or other.grant == event.grant:
                continue
            if (other.token or 0) >= (event.token or 0):
                text = f"tokens of {event.key!r} do not grow: {other.token}, then {event.token}"
                found.append(facts.violation("L2", text, other, event))
    return found


def beliefs(facts: Facts) -> list[Belief]:
    """What each owner believed, from the reply of its grant to the first thing that ended it."""
    result: list[Belief] = []
    for (key, grant), events in facts.by_grant.items():
        acquired = [event for event in events if event.op == "acquire" and event.ok]
        if not acquired:
            continue
        proc = acquired[0].proc
        start = min(event.t_end for event in acquired)
        ends = [event.deadline for event in events if event.ok and event.deadline is not None]
        ends += [event.t_start for event in events if event.op in _SEEN_HELD]
        cuts = [event.t_start for event in events if event.op in ("release", "lost")]
        cuts.append(facts.crashed.get(proc, float("inf")))
        # Breaking a lease overrules its owner, who learns of it later: that is what it is for.
        asked = min(event.t_start for event in acquired)
        cuts += [broken.t_start for broken in facts.breaks[key] if broken.t_end >= asked]
        result.append(
            Belief(
                key=key,
                proc=proc,
                grant=grant,
                token=acquired[0].token or 0,
                capacity=acquired[0].capacity,
                start=start,
                end=min(max(ends, default=start), *cuts),
            )
        )
    return result


def check_l3(facts: Facts) -> list[Violation]:
    """At no instant do more owners believe in a key than it has slots."""
    found: list[Violation] = []
    by_key: dict[str, list[Belief]] = defaultdict(list)
    for belief in beliefs(facts):
        if belief.end > belief.start + EPSILON_S:
            by_key[belief.key].append(belief)
    for key, spans in by_key.items():
        open_now: list[Belief] = []
        for belief in sorted(spans, key=lambda span: span.start):
            open_now = [other for other in open_now if other.end > belief.start + EPSILON_S]
            open_now.append(belief)
            if len(open_now) > belief.capacity:
                text = f"{len(open_now)} owners of {key!r} at {belief.start:.6f}"
                found.append(facts.violation("L3", text, *open_now))
    return found


def check_l4(facts: Facts) -> list[Violation]:
    """No owner believes for longer than the ttl after the start of an acknowledged request."""
    found: list[Violation] = []
    for events in facts.by_grant.values():
        asked = [e for e in events if e.ok and e.op in (*_GRANTS, *_RENEWALS)]
        over = min((e.t_start for e in events if e.op in ("lost", "release")), default=None)
        for event in events:
            used = event.op in _SEEN_HELD
            if used and over is not None and event.t_start > over + EPSILON_S:
                text = f"{event.proc} still used {event.key!r} after it was lost or released"
                found.append(facts.violation("L4", text, event, *_ends(events)))
            if not used and not event.ok:
                continue
            known_at = event.t_start if used else event.t_end
            until = [e.t_start + e.ttl_s / e.rate for e in asked if e.t_end <= known_at]
            believes_until = event.deadline or (event.t_start if used else 0.0)
            if until and believes_until > max(until) + EPSILON_S:
                text = (
                    f"{event.proc} believes in {event.key!r} until {believes_until:.6f}, but its "
                    f"last acknowledged request covers only until {max(until):.6f}"
                )
                found.append(facts.violation("L4", text, event, asked[-1]))
    return found


def check_l5(facts: Facts) -> list[Violation]:
    """The tokens of accepted writes never decrease, in the order the resource saw them."""
    newest: dict[str, Applied] = {}
    found: list[Violation] = []
    for entry in facts.applied:
        if not entry.accepted:
            continue
        other = newest.get(entry.key)
        if other is not None and entry.token < other.token:
            text = f"{entry.key!r} accepted token {entry.token} after {other.token}"
            found.append(facts.violation("L5", text, other, entry))
        else:
            newest[entry.key] = entry
    return found


def check_l6(facts: Facts) -> list[Violation]:
    """An accepted write carries a token that was granted to its process before."""
    granted: dict[tuple[str, int | None], float] = {}
    for event in facts.granted:
        mine = (event.proc, event.token)
        granted[mine] = min(event.t_start, granted.get(mine, event.t_start))
    found: list[Violation] = []
    for entry in facts.applied:
        if entry.accepted and granted.get((entry.proc, entry.token), float("inf")) > entry.t_start:
            text = f"{entry.proc} wrote with token {entry.token}, which it was never granted"
            found.append(facts.violation("L6", text, entry))
    return found


def check_l7(facts: Facts) -> list[Violation]:
    """A renewal succeeds only for the newest grant; nothing is written after the own release."""
    found = _only_newest(facts, "L7", _RENEWALS)
    for events in facts.by_grant.values():
        released = min((e.t_start for e in events if e.op == "release"), default=None)
        # One owner may be granted twice, under two tokens, when it gave the first one back.
        over = {e.token: e.t_end for e in reversed(events) if e.op in _RELEASES and e.ok}
        for event in events:
            if released is not None and event.op == "write" and event.t_start > released:
                text = f"{event.proc} wrote to {event.key!r} after its own release"
                found.append(facts.violation("L7", text, event, *_ends(events)))
            if event.op in _RENEWALS and event.ok and event.t_start >= over.get(event.token, 1e99):
                text = f"{event.proc} renewed {event.key!r} after its own release"
                found.append(facts.violation("L7", text, event, *_ends(events)))
    return found


def check_l8(facts: Facts) -> list[Violation]:
    """A release succeeds only for the newest grant."""
    return _only_newest(facts, "L8", ("store.release",))


def check_l9(facts: Facts, *, healed_at: float) -> list[Violation]:
    """Once healed, an acquire is not refused at the end of a ttl and a bound without owners."""
    ttl_s = max((event.ttl_s for event in facts.events), default=0.0)
    quiet_s = ttl_s + LIVENESS_BOUND_S
    found: list[Violation] = []
    for event in facts.events:
        refused = event.op == "acquire" and event.ok is False
        if not refused or event.t_end < healed_at + quiet_s:
            continue
        # One whose host was stopped all the while did not ask, and so was not refused.
        if facts.served and not any(
            served.op == "acquire" and served.key == event.key and not served.ok
            for served in facts.served
            if event.t_end - quiet_s <= served.at <= event.t_end
        ):
            continue
        others = [
            other
            for other in facts.events
            if other.key == event.key
            and other.ok
            and other.op in (*_GRANTS, *_RENEWALS)
            and other.t_start <= event.t_end
            and other.t_end >= event.t_end - quiet_s
        ]
        if not others:
            text = f"{event.key!r} was refused for {quiet_s:g} s, though nobody used it"
            found.append(facts.violation("L9", text, event))
    return found


def check_abandoned(history: History, *, patience_s: float) -> list[Violation]:
    """Where nothing fails, a grant that no caller received is given back within the patience.

    Asks for what L9 leaves to the ttl: a cancelled or timed-out wait takes back a grant that
    raced its end. Ask it of runs without crashes, losses and long delays only.
    """
    facts = Facts(history)
    received = {event.grant for event in facts.granted if event.op == "acquire"}
    # A release that was refused counts as well: somebody broke the lease meanwhile.
    released = {served.grant: served.at for served in history.served if served.op == "release"}
    end = history.served[-1].at if history.served else 0.0
    found: list[Violation] = []
    for served in history.served:
        if served.op != "acquire" or not served.ok or served.grant in received:
            continue
        gone_at = min(released.get(served.grant, float("inf")), end)
        if gone_at > served.at + patience_s:
            text = f"{served.key!r} was granted to {served.grant}, which nobody received"
            found.append(facts.violation("L9", text, served))
    return found


def check_l10(facts: Facts) -> list[Violation]:
    """A grant that nobody ended is taken over only when its ttl has passed, in true time."""
    found: list[Violation] = []
    granted = [event for event in facts.granted if event.op == "store.acquire"]
    for events in _by_slot(granted).values():
        events.sort(key=lambda event: event.token or 0)
        for before, after in pairwise(events):
            if before.token == after.token or _was_ended(facts, before, after):
                continue
            # A wait that lost its replies goes on under its owner, and may be granted twice.
            asked = [
                e
                for e in facts.of(before, ("store.acquire", "store.renew"))
                if e.ok and e.token == before.token
            ]
            if len({event.ttl_s for event in asked}) > 1:
                continue
            last = max(asked, key=lambda event: event.t_start)
            if after.t_end < last.t_start + last.ttl_s - EPSILON_S:
                text = f"{after.key!r} was taken over before its ttl had passed"
                found.append(facts.violation("L10", text, last, after))
    return found


def check(
    history: History, *, drifted: bool = False, healed_at: float = float("inf")
) -> list[Violation]:
    """All invariants; ``drifted`` leaves out L3, which needs clocks within the documented drift."""
    facts = Facts(history)
    checks: list[Callable[[Facts], list[Violation]]] = [check_l1, check_l2]
    if not drifted:
        checks.append(check_l3)
    checks += [check_l4, check_l5, check_l6, check_l7, check_l8, check_l10]
    found = [violation for one in checks for violation in one(facts)]
    return found + check_l9(facts, healed_at=healed_at) + check_served(history)


class _Newest:
    """The greatest token among grants that were answered by a given time."""

    def __init__(self, granted: Sequence[Event]) -> None:
        ordered = sorted(granted, key=lambda event: event.t_end)
        self._at = [event.t_end for event in ordered]
        self._newest: list[Event] = []
        for event in ordered:
            last = self._newest[-1] if self._newest else event
            self._newest.append(event if (event.token or 0) > (last.token or 0) else last)

    def before(self, at: float) -> Event | None:
        """The newest grant answered at or before ``at``."""
        count = bisect_right(self._at, at)
        return self._newest[count - 1] if count else None


def _only_newest(facts: Facts, rule: str, ops: tuple[str, ...]) -> list[Violation]:
    found: list[Violation] = []
    newest = {slot: _Newest(events) for slot, events in _by_slot(facts.granted).items()}
    for event in facts.events:
        if event.op not in ops or not event.ok:
            continue
        table = newest.get((event.key, event.slot))
        other = table.before(event.t_start) if table is not None else None
        if other is not None and (other.token or 0) > (event.token or 0):
            text = f"{event.op} of token {event.token} succeeded after token {other.token}"
            found.append(facts.violation(rule, text, other, event))
        mine = facts.of(event, _GRANTS)
        for broken in facts.breaks.get(event.key, ()):
            if not broken.ok or (broken.op == "store.break" and broken.slot != event.slot):
                continue
            answered = all(grant.t_end <= broken.t_start for grant in mine)
            if answered and mine and broken.t_end <= event.t_start:
                text = f"{event.op} of token {event.token} succeeded after it was broken"
                found.append(facts.violation(rule, text, broken, event))
    return found


def _was_ended(facts: Facts, before: Event, after: Event) -> bool:
    if facts.of(before, _RELEASES):
        return True
    return any(
        broken.t_start <= after.t_end and broken.t_end >= before.t_start
        for broken in facts.breaks.get(before.key, ())
    )


def _ends(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.op in ("lost", *_RELEASES)]


def _by_key(events: Iterable[Event]) -> dict[str, list[Event]]:
    result: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        result[event.key].append(event)
    return result


def _by_slot(events: Iterable[Event]) -> dict[tuple[str, int], list[Event]]:
    result: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        result[event.key, event.slot].append(event)
    return result
