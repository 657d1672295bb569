"""Pure checks of O1 to O9 over a recorded history of instances.

Owns the verdict: what the store decided (``instance_reference``), what hosts ran beside it, what
senders were promised, and what was left at the end. It asks no clock, no store and no code under
test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outlive.model.instance import FINAL
from tests.simulation.oracles.instance_history import InstanceHistory, Left, Ran
from tests.simulation.oracles.instance_reference import Life, Model
from tests.simulation.oracles.instance_story import Finding
from tests.simulation.oracles.lease_reference import Violation


@dataclass(slots=True)
class _Runs:
    """What bodies of steps have run so far. ``newest`` is the greatest token of each instance."""

    newest: dict[str, int] = field(default_factory=dict[str, int])
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    once: set[str] = field(default_factory=set[str])


def check_instances(history: InstanceHistory, *, drifted: bool = False) -> list[Violation]:
    """Everything that a history breaks.

    ``drifted`` says that clocks differed by more than is promised: then hosts may believe in their
    sessions for too long, or take a timer for due, and only the store's word counts.
    """
    model, runs = Model(drifted), _Runs()
    found: list[Violation] = []
    ran = iter(history.ran)
    upcoming = next(ran, None)
    for index in range(len(history.served) + 1):
        while upcoming is not None and upcoming.after <= index:
            for rule, text in _judge_run(model, runs, upcoming, drifted=drifted):
                found.append(_violation(history, rule, text, upcoming))
            upcoming = next(ran, None)
        if index < len(history.served):
            served = history.served[index]
            for rule, text in model.judge(served):
                found.append(_violation(history, rule, text, served))
    found += [_violation(history, *one) for one in _check_order(history, model)]
    found += [_violation(history, *one) for one in _check_left(history, model)]
    return found


def _violation(history: InstanceHistory, rule: str, text: str, *proof: object) -> Violation:
    return Violation(rule=rule, seed=history.seed, text=text, proof=tuple(map(str, proof)))


def _judge_run(model: Model, runs: _Runs, ran: Ran, *, drifted: bool) -> Iterator[Finding]:
    """The body of a step runs: under a token that was given, and only if nobody had ended it."""
    if runs.inputs.setdefault(ran.key, ran.input) != ran.input:
        yield "O8", f"{ran.key} names two calls: {runs.inputs[ran.key]} and {ran.input}"
    head = ran.key.rpartition("/")[0]
    # A run that was continued has its number in the key, so that its effects are its own.
    if head != ran.instance and not head.startswith(f"{ran.instance}@"):
        yield "O3", f"a step of {ran.instance} was given the key {ran.key} of somebody else"
    if ran.once:
        if ran.key in runs.once:
            yield "O3", f"{ran.key} may run once, and ran again"
        runs.once.add(ran.key)
    life = model.lives.get(ran.instance)
    if life is not None and ran.token:
        yield from _judge_owner(life, runs, ran, drifted=drifted)


def _judge_owner(life: Life, runs: _Runs, ran: Ran, *, drifted: bool) -> Iterator[Finding]:
    step = ran.key.rpartition("/")[2]
    if ran.once and step not in life.story.intended:
        yield "O3", f"{ran.key} ran before it was recorded that it would"
    if ran.token not in life.granted:
        yield "O4", f"{ran.key} ran under {ran.token}, which nobody was given"
    if ran.token >= life.story.ends.get(step, ran.token + 1):
        yield "O2", f"{ran.key} ran again after its end was recorded"
    if not drifted:
        if ran.token < runs.newest.get(ran.instance, 0):
            yield "O4", f"{ran.key} ran under {ran.token} after its instance had moved on"
        runs.newest[ran.instance] = max(ran.token, runs.newest.get(ran.instance, 0))


def _check_order(history: InstanceHistory, model: Model) -> Iterator[Finding]:
    """O5: what was acknowledged before the next was sent is received before it."""
    for life in model.lives.values():
        latest, behind = -1.0, ""
        for signal in life.story.signals:
            posted = history.posted.get((life.name, signal))
            if posted is None:
                continue
            if posted.acknowledged_at < latest:
                yield "O5", f"{life.name} received {signal} after {behind}, which was sent later"
            if posted.asked_at > latest:
                latest, behind = posted.asked_at, signal


def _check_left(history: InstanceHistory, model: Model) -> Iterator[Finding]:
    if history.left is None:
        return
    for name in sorted(history.acknowledged - history.left.keys()):
        if name in model.lives:
            yield "O7", f"{name} was started and has vanished"
    for name, left in history.left.items():
        life = model.lives.get(name)
        if life is None:
            yield "O7", f"{name} is there, and nobody started it"
            continue
        if left.record.status not in FINAL:
            yield "O9", f"{name} is {left.record.status} long after the last fault"
        yield from _check_row(life, left)
        yield from _check_rows(life, left)


def _check_row(life: Life, left: Left) -> Iterator[Finding]:
    record = left.record
    status = record.status.value if record.status in FINAL else None
    if life.ended != status:
        yield "O7", f"{life.name} ended as {life.ended}, and its row says {record.status}"
    if record.version != life.version:
        yield "O1", f"{life.name} has version {life.version}, and its row says {record.version}"
    if record.owner is not None and status is not None:
        yield "O4", f"{life.name} has ended, and {record.owner} owns it"


def _check_rows(life: Life, left: Left) -> Iterator[Finding]:
    versions = [row.version for row in left.rows]
    if versions != list(range(life.base + 1, life.version + 1)):
        yield "O1", f"{life.name} has the versions {versions}, not {life.base}..{life.version}"
    tokens = [row.token for row in left.rows]
    if tokens != sorted(tokens):
        yield "O4", f"the tokens of {life.name} go back: {tokens}"
    texts = {row.version: row.events for row in life.story.rows if not row.cut}
    for row in left.rows:
        if row.events != texts.get(row.version, row.events):
            yield "O8", f"{life.name} committed other events as {row.version} than it shows"
