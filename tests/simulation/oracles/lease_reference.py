"""A reference store: replays what a store carried out and says where it decided wrongly.

Pure. Owns a few lines of the specification, restated as a model: who owns which slot until when.
It sees every request in the order it was carried out, so that it needs no patience and no guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.oracles.history import History, Served

# Clocks are floats and stores count microseconds: one instant, computed twice, may differ so much.
EPSILON_S = 2e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken invariant, with its proof."""

    rule: str
    seed: int
    text: str
    proof: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join((f"{self.rule} broken (seed {self.seed}): {self.text}", *self.proof))


@dataclass(slots=True)
class _Slot:
    grant: str
    token: int
    expires: float


@dataclass(slots=True)
class _Key:
    newest: int = 0
    slots: dict[int, _Slot] = field(default_factory=dict[int, _Slot])

    def live(self, at: float) -> int:
        return sum(1 for slot in self.slots.values() if slot.expires > at + EPSILON_S)


def check_served(history: History) -> list[Violation]:
    """Every decision of the store that the model would not have taken."""
    keys: dict[str, _Key] = defaultdict(_Key)
    found: list[Violation] = []
    judges = {"acquire": _acquire, "renew": _renew, "release": _release, "break": _break}
    for served in history.served:
        for rule, text in judges[served.op](keys[served.key], served):
            found.append(
                Violation(
                    rule=rule, seed=history.seed, text=f"the store {text}", proof=(str(served),)
                )
            )
    return found


def _acquire(key: _Key, served: Served) -> Iterator[tuple[str, str]]:
    if not served.ok:
        # Tolerant the other way round: a refusal in the very microsecond of the expiry is right.
        if served.ahead == 0 and key.live(served.at - 2 * EPSILON_S) < served.limit:
            yield "L9", f"refused {served.key!r} though a slot was free and nobody was first"
        return
    slot = key.slots.get(served.slot)
    if slot is not None and (slot.grant, slot.token) == (served.grant, served.token):
        slot.expires = served.at + served.ttl_s
        return
    if slot is not None and slot.expires > served.at + EPSILON_S and not served.resume:
        yield (
            "L10",
            f"gave {served.key!r} away while its owner had {slot.expires - served.at:.6f} s",
        )
    if served.token <= key.newest:
        rule = "L1" if served.token == key.newest else "L2"
        yield rule, f"granted token {served.token} of {served.key!r} after token {key.newest}"
    key.newest = max(key.newest, served.token)
    key.slots[served.slot] = _Slot(served.grant, served.token, served.at + served.ttl_s)
    if key.live(served.at) > served.limit:
        yield "L3", f"granted {key.live(served.at)} of {served.limit} slots of {served.key!r}"


def _renew(key: _Key, served: Served) -> Iterator[tuple[str, str]]:
    slot = _newest(key, served)
    if not served.ok:
        if slot is not None and slot.expires > served.at + EPSILON_S:
            yield "L7", f"refused to renew the newest grant of {served.key!r}"
        return
    if slot is None:
        yield "L7", f"renewed token {served.token} of {served.key!r}, which had ended"
        return
    if slot.expires < served.at - EPSILON_S:
        yield "L7", f"revived {served.key!r}, expired for {served.at - slot.expires:.6f} s"
    slot.expires = served.at + served.ttl_s


def _release(key: _Key, served: Served) -> Iterator[tuple[str, str]]:
    slot = _newest(key, served)
    if not served.ok:
        if slot is not None:
            yield "L8", f"refused to release the newest grant of {served.key!r}"
        return
    if slot is None:
        yield "L8", f"released token {served.token} of {served.key!r}, which had ended"
    key.slots.pop(served.slot, None)


def _break(key: _Key, served: Served) -> Iterator[tuple[str, str]]:
    for number in [n for n, slot in key.slots.items() if slot.expires > served.at]:
        del key.slots[number]
    yield from ()


def _newest(key: _Key, served: Served) -> _Slot | None:
    slot = key.slots.get(served.slot)
    if slot is not None and (slot.grant, slot.token) == (served.grant, served.token):
        return slot
    return None
