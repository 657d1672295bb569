"""The checker of instances: each rule has a smallest history that breaks it; one keeps them all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outlive.flows.events import (
    Ended,
    Retried,
    SignalReceived,
    StepEnded,
    StepIntended,
    TimerFired,
    TimerSet,
    encode_events,
)
from outlive.model.instance import (
    Commit,
    Entry,
    Handback,
    HistoryRow,
    InstanceRecord,
    InstanceStatus,
    Letter,
    Message,
    NewInstance,
    Opened,
    Sent,
)
from tests.simulation.oracles.instance_checker import check_instances
from tests.simulation.oracles.instance_history import InstanceHistory, InstanceServed, Left, Ran

DONE = InstanceStatus.COMPLETED
END = Ended(at=0, status="completed")


def served(op: str, outcome: str = "ok", **fields) -> InstanceServed:
    return InstanceServed(at=0.0, op=op, instance="f", outcome=outcome, **fields)


def started(entry: Entry = Entry.CREATED, *, session: str | None = "s", request="r", **fields):
    one = NewInstance(
        id="f", kind="flow", name="n", input="1", request=request, session=session, **fields
    )
    return served("start", entry, token=1 if session else 0, asked=one)


def claimed(token: int, version: int = 0, session: str = "t", letters=(), at_us: int = 0):
    return served(
        "claim", token=token, version=version, session=session, letters=letters, at_us=at_us
    )


def committed(version: int, *events, token: int = 1, ok: bool = True, at_us: int = 0, **fields):
    name = fields.pop("commit", f"c{version}/{token}")
    commit = Commit(
        id="f", token=token, version=version, commit=name, events=encode_events(events), **fields
    )
    outcome = "ok" if ok else "refused"
    return served("commit", outcome, token=token, version=version, asked=commit, at_us=at_us)


def finished(version: int, *events, token: int = 1):
    return committed(version, *events, END, token=token, status=DONE)


def sent(name: str, outcome: Sent = Sent.SENT) -> InstanceServed:
    return served("send", outcome, asked=Message("f", name, "signal", "go", "1"))


def letter(number: int, name: str) -> Letter:
    return Letter(number, name, "signal", "go", "1", 0)


def given(*letters: Letter) -> InstanceServed:
    return served("letters", letters=letters)


def signal(name: str) -> SignalReceived:
    return SignalReceived(at=0, name="go", id=name)


def step(name: str = "a#0") -> StepEnded:
    return StepEnded(at=0, step=name)


def ended(session: str = "s") -> InstanceServed:
    return served("session.end", session=session)


def handed_back(token: int, outcome: str = "ok", *, due: bool = False) -> InstanceServed:
    return served("release", outcome, token=token, asked=Handback("f", token, due))


def ran(after: int, token: int = 1, key: str = "f/a#0", **fields) -> Ran:
    return Ran(at=0.0, after=after, proc="p", instance="f", key=key, token=token, **fields)


def left(status: InstanceStatus = DONE, version: int = 1, rows=None, owner=None, base: int = 0):
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    record = InstanceRecord(
        id="f",
        kind="flow",
        name="n",
        status=status,
        input="1",
        outcome=None,
        custom=None,
        attributes="{}",
        headers="{}",
        parent=None,
        token=1,
        version=version,
        base=base,
        owner=owner,
        owned_by=None,
        created_at=moment,
        began_at_us=0,
        updated_at=moment,
        ended_at=None,
        due_at=None,
        cursor="",
    )
    if rows is None:
        rows = [row(number) for number in range(base + 1, version + 1)]
    return {"f": Left(record, rows)}


def row(version: int, token: int = 1, *events) -> HistoryRow:
    return HistoryRow(version, token, "w", 0, encode_events(events or [END]))


def rules(*story: InstanceServed, ran=(), left=None, acknowledged=(), posted=()) -> set[str]:
    history = InstanceHistory(7, lambda: 0.0, list(story), list(ran))
    for name, asked_at, acknowledged_at in posted:
        one = history.post(Message("f", name, "signal", "go", "1"))
        one.asked_at, one.acknowledged_at = asked_at, acknowledged_at
    history.left = left
    history.acknowledged.update(acknowledged)
    return {violation.rule for violation in check_instances(history)}


def kept(*story: InstanceServed) -> list[HistoryRow]:
    """The rows that a sound store shows after a story."""
    rows: dict[int, HistoryRow] = {}
    for one in story:
        if one.op == "reopen" or (one.op == "commit" and one.outcome == "ok"):
            events = one.events if one.op == "reopen" else one.asked.events
            rows[one.version] = HistoryRow(one.version, one.token, "w", 0, events)
    return list(rows.values())


def test_a_life_with_every_turn_is_sound():
    retried = encode_events([Retried(at=9, to=3)])
    fired = [TimerFired(at=9, timer=1), StepIntended(at=9, step="o#0")]
    story = [
        started(),
        started(),
        started(Entry.EXISTING, request="other"),
        committed(1, step(), TimerSet(at=0, timer=1, due=9)),
        committed(1, step(), TimerSet(at=0, timer=1, due=9)),
        sent("m"),
        sent("m", Sent.DUPLICATE),
        given(letter(1, "m")),
        ended(),
        served("reclaim"),
        committed(2, signal("m"), consumed=(1,), ok=False),
        claimed(2, 1, letters=(letter(1, "m"),)),
        committed(2, signal("m"), consumed=(1,), token=2, due_at_us=9, release=True),
        claimed(3, 2, at_us=9),
        committed(3, *fired, token=3, at_us=9),
        handed_back(3, due=True),
        handed_back(3, "refused"),
        claimed(4, 3),
        finished(4, step("o#0"), token=4),
        sent("late", Sent.ENDED),
        served("reopen", Opened.CHANGED, token=4, version=5, events=retried),
        claimed(5, 5),
        finished(6, step("o#0"), token=5),
    ]
    runs = [ran(1), ran(15, 3, "f/o#0", once=True), ran(16, 3, "f/b#0")]
    found = left(version=6, rows=kept(*story))
    posted = [("m", 1.0, 2.0)]
    assert rules(*story, ran=runs, left=found, acknowledged={"f"}, posted=posted) == set()


O2 = [started(), committed(1, step())]
TIMER = TimerSet(at=0, timer=1, due=9)

BROKEN = {
    "a version was left out": ("O1", [started(), committed(2)]),
    "a version was made twice": ("O1", [started(), committed(1), committed(1, commit="x")]),
    "a claim shows an old version": (
        "O1",
        [started(), committed(1, release=True, due_at_us=0), claimed(2, 0)],
    ),
    "a step was recorded twice": ("O2", [*O2, committed(2, step())]),
    "a once step was intended twice": (
        "O3",
        [started(), committed(1, *[StepIntended(at=0, step="o#0")] * 2)],
    ),
    "two owners": ("O4", [started(), claimed(2)]),
    "a stale token commits": (
        "O4",
        [started(), ended(), served("reclaim"), claimed(2), committed(1, token=1)],
    ),
    "an owner was refused": ("O4", [started(), committed(1, ok=False)]),
    "an ended session claims": ("O4", [started(session=None), ended("t"), claimed(1)]),
    "an ended session starts": ("O4", [ended(), started()]),
    "taken from the living": ("O4", [started(), served("reclaim")]),
    "a token that did not grow": (
        "O4",
        [started(), handed_back(1, due=True), claimed(1, session="u")],
    ),
    "given up by a stranger": ("O4", [started(), handed_back(3)]),
    "claimed though suspended": (
        "O4",
        [started(session=None), served("suspend", Opened.CHANGED), claimed(1)],
    ),
    "a letter was consumed twice": (
        "O5",
        [
            started(),
            given(letter(1, "m")),
            committed(1, signal("m"), consumed=(1,)),
            committed(2, signal("m"), consumed=(1,)),
        ],
    ),
    "a letter was consumed and not recorded": (
        "O5",
        [started(), given(letter(1, "m")), committed(1, consumed=(1,))],
    ),
    "a signal was recorded and not consumed": ("O5", [started(), committed(1, signal("m"))]),
    "a letter came back": (
        "O5",
        [
            started(),
            given(letter(1, "m")),
            committed(1, signal("m"), consumed=(1,)),
            given(letter(1, "m")),
        ],
    ),
    "a message was kept twice": ("O5", [started(), sent("m"), sent("m")]),
    "a message that never was is a duplicate": ("O5", [started(), sent("m", Sent.DUPLICATE)]),
    "the living refuse mail": ("O5", [started(), sent("m", Sent.ENDED)]),
    "the dead take mail": ("O5", [started(), finished(1), sent("m")]),
    "a timer was early by the store": (
        "O6",
        [started(), committed(1, TIMER), committed(2, TimerFired(at=9, timer=1), at_us=8)],
    ),
    "a timer was early by its own word": (
        "O6",
        [started(), committed(1, TIMER), committed(2, TimerFired(at=8, timer=1), at_us=9)],
    ),
    "a timer fired twice": (
        "O6",
        [started(), committed(1, TIMER), committed(2, *[TimerFired(at=9, timer=1)] * 2, at_us=9)],
    ),
    "a timer fired before its commit": (
        "O6",
        [started(), committed(1, TIMER, TimerFired(at=9, timer=1), at_us=9)],
    ),
    "woken too early": (
        "O6",
        [started(), committed(1, TIMER, due_at_us=9, release=True), claimed(2, 1, at_us=8)],
    ),
    "a second start": ("O7", [started(), started(request="other")]),
    "a start that never was": ("O7", [started(Entry.EXISTING)]),
    "a phantom was claimed": ("O7", [claimed(1)]),
    "a phantom was committed": ("O7", [committed(1)]),
    "a commit after the end": ("O7", [started(), finished(1), finished(2)]),
    "a claim after the end": ("O7", [started(), finished(1), claimed(2, 1)]),
    "an end without its record": ("O7", [started(), committed(1, status=DONE)]),
    "a record without its end": ("O7", [started(), committed(1, END)]),
    "events after the end": ("O7", [started(), committed(1, END, step(), status=DONE)]),
    "the living were opened": ("O7", [started(), served("reopen", Opened.CHANGED, version=1)]),
    "the living were purged": ("O7", [started(), served("purge", Opened.CHANGED)]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_store_did_wrong_is_found(case):
    rule, story = BROKEN[case]
    assert rule in rules(*story)


RUNS = {
    "a finished step ran again": ("O2", O2, ran(2)),
    "a once step ran without intent": ("O3", [started()], ran(1, once=True)),
    "a key of somebody else": ("O3", [started()], ran(1, key="g/a#0")),
    "a token that nobody was given": ("O4", [started()], ran(1, token=7)),
}


@pytest.mark.parametrize("case", RUNS)
def test_what_a_host_did_wrong_is_found(case):
    rule, story, run = RUNS[case]
    assert rules(*story, ran=[run]) == {rule}


def test_a_once_step_that_ran_twice_is_found():
    story = [started(), committed(1, StepIntended(at=0, step="a#0"))]
    assert rules(*story, ran=[ran(2, once=True)]) == set()
    assert rules(*story, ran=[ran(2, once=True)] * 2) == {"O3"}


def test_a_host_that_runs_on_after_its_successor_is_found():
    story = [started(), ended(), served("reclaim"), claimed(2)]
    assert rules(*story, ran=[ran(4, 1), ran(4, 2)]) == set()
    assert rules(*story, ran=[ran(4, 2), ran(4, 1)]) == {"O4"}


def test_one_name_for_two_calls_is_found():
    assert rules(started(), ran=[ran(1, input="1"), ran(1, input="2")]) == {"O8"}


def test_signals_out_of_their_sender_s_order_are_found():
    story = [
        started(),
        given(letter(1, "m"), letter(2, "n")),
        committed(1, signal("m"), signal("n"), consumed=(1, 2)),
    ]
    assert rules(*story, posted=[("m", 1.0, 2.0), ("n", 3.0, 4.0)]) == set()
    assert rules(*story, posted=[("m", 1.0, 9.0), ("n", 3.0, 4.0)]) == set()
    assert rules(*story, posted=[("m", 5.0, 6.0), ("n", 3.0, 4.0)]) == {"O5"}


LEFT = {
    "it vanished": ("O7", {}),
    "its row says something else": ("O7", left(InstanceStatus.FAILED)),
    "it was never started": ("O7", {"g": left()["f"]}),
    "its row has another version": ("O1", left(version=2)),
    "rows are missing": ("O1", left(rows=[])),
    "tokens go back": ("O4", left(rows=[row(1, 2), row(1, 1)])),
    "it is owned after its end": ("O4", left(owner="s")),
    "its rows say something else": ("O8", left(rows=[row(1, 1, step())])),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_is_compared(case):
    rule, found = LEFT[case]
    story = [started(), finished(1)]
    assert rules(*story, left=left(), acknowledged={"f"}) == set()
    assert rule in rules(*story, left=found, acknowledged={"f"})


def test_a_stranded_instance_is_found():
    story = [started(), committed(1, step(), release=True)]
    found = left(InstanceStatus.RUNNING, rows=[row(1, 1, step())])
    assert rules(*story, left=found) == {"O9"}


def test_a_new_run_begins_with_nothing_but_the_signals_it_carries():
    story = [
        started(),
        given(letter(1, "m")),
        committed(1, step(), signal("m"), consumed=(1,)),
        committed(2, signal("m"), restart="2"),
    ]
    whole = [*story, finished(3, step())]
    assert rules(*whole, left=left(base=1, version=3, rows=kept(*whole)[1:])) == set()
    assert rules(*whole, left=left(base=1, version=3, rows=kept(*whole))) == {"O1"}
    twice = committed(2, signal("m"), signal("m"), restart="2")
    assert rules(*story[:3], twice) == {"O5"}


def test_drift_beyond_what_is_promised_excuses_hosts_but_not_the_store():
    history = InstanceHistory(
        7,
        lambda: 0.0,
        [started(), ended(), served("reclaim"), claimed(2)],
        [ran(4, 2), ran(4, 1)],
    )
    assert check_instances(history, drifted=True) == []
    history.served.append(committed(1, token=1))
    assert {found.rule for found in check_instances(history, drifted=True)} == {"O4"}
