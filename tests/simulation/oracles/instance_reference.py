"""A reference store of instances: replays what a store carried out, and finds what is wrong in it.

Pure. A few lines of the specification, restated as a model: who owns which instance under which
token, what was committed, what lies in which mailbox. It sees every request in the order in which
it was carried out, so that it needs no patience and no guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outlive.flows.events import SignalReceived, decode_events
from outlive.model.instance import (
    CANCEL_KIND,
    FINAL,
    LETTERS_MAX,
    Commit,
    Entry,
    Handback,
    Letter,
    Message,
    NewInstance,
    Opened,
    Sent,
)
from tests.simulation.oracles.instance_history import InstanceServed
from tests.simulation.oracles.instance_story import Finding, Row, Story


@dataclass(slots=True)
class Life:
    """One instance in the model. ``owner`` is the token of its live claim.

    ``due_us`` is when it may be claimed without a letter; ``granted`` maps each token to the
    session that it was given to.
    """

    name: str
    request: str
    story: Story
    due_us: int | None = 0
    began_us: int = 0
    created_us: int = 0
    parent: str | None = None
    outlives: bool = False
    owner: int | None = None
    session: str = ""
    newest: int = 0
    version: int = 0
    base: int = 0
    ended: str | None = None
    suspended: bool = False
    commits: dict[int, str] = field(default_factory=dict[int, str])
    granted: dict[int, str] = field(default_factory=dict[int, str])
    sent: set[str] = field(default_factory=set[str])
    letters: dict[int, Letter] = field(default_factory=dict[int, Letter])
    consumed: set[int] = field(default_factory=set[int])

    def own(self, token: int, session: str) -> None:
        """It was given to a session."""
        self.newest = max(self.newest, token)
        self.owner, self.session = token, session
        self.granted[token] = session

    def disown(self) -> None:
        """Nobody has it."""
        self.owner = None


@dataclass(slots=True)
class Model:
    """Everything the store should know by now."""

    drifted: bool = False
    lives: dict[str, Life] = field(default_factory=dict[str, Life])
    ended_sessions: set[str] = field(default_factory=set[str])

    def judge(self, served: InstanceServed) -> Iterator[Finding]:
        """What the store decided, and the model would not have."""
        judge = _JUDGES.get(served.op)
        if judge is not None:
            yield from judge(self, served)

    def begin(self, one: NewInstance, *, at_us: int, token: int = 0) -> None:
        """A new instance is there."""
        due_us = one.due_at_us if one.due_at_us is not None else at_us + one.delay_us
        life = Life(one.id, one.request, Story(one.id, self.drifted), due_us, at_us, at_us)
        life.parent, life.outlives = one.parent, one.outlives
        rows = [Row(number, 0, at_us, text) for number, text in enumerate(one.history, 1)]
        life.story.begin(rows)
        life.version = len(rows)
        if token:
            life.own(token, one.session or "")
        self.lives[one.id] = life

    def family(self, first: Life) -> list[Life]:
        """Those that end when ``first`` is terminated."""
        family = [first]
        for life in family:
            family += [
                child
                for child in self.lives.values()
                if child.parent == life.name
                and child.ended is None
                and not child.outlives
                and (life.base == 0 or child.created_us > life.began_us)
            ]
        return family


def _start(model: Model, served: InstanceServed) -> Iterator[Finding]:
    one, life = served.asked, model.lives.get(served.instance)
    assert isinstance(one, NewInstance)
    if served.outcome == Entry.EXISTING:
        if life is None:
            yield "O7", f"{one.id} is said to be there, and nobody started it"
        return
    if life is not None:
        if life.request != one.request:
            yield "O7", f"{one.id} was started twice"
        return
    if one.session is not None and one.session in model.ended_sessions:
        yield "O4", f"{one.id} was started for a session that has ended"
    model.begin(one, at_us=served.at_us, token=served.token)


def _claim(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if life is None:
        yield "O7", f"{served.instance} was claimed and never started"
        return
    life.letters.update({letter.number: letter for letter in served.letters})
    yield from _misread(life, served)
    if (life.owner, life.session) == (served.token, served.session):
        return
    if served.session in model.ended_sessions:
        yield "O4", f"{life.name} was claimed by a session that has ended"
    if life.owner is not None:
        yield "O4", f"{life.name} was claimed while its owner had it under {life.owner}"
    if served.token <= life.newest:
        yield "O4", f"a token of {life.name} did not grow: {life.newest}, then {served.token}"
    if life.ended is not None:
        yield "O7", f"{life.name} was claimed after its end as {life.ended}"
    if life.suspended:
        yield "O4", f"{life.name} was claimed while it was suspended"
    if served.version != life.version:
        yield "O1", f"{life.name} was claimed at {served.version}; its newest is {life.version}"
    yield from _too_early(life, served)
    life.own(served.token, served.session)


def _too_early(life: Life, served: InstanceServed) -> Iterator[Finding]:
    if life.due_us is not None and served.at_us >= life.due_us:
        return
    if not served.letters:
        yield "O6", f"{life.name} was woken before its time, and without a letter"
    # Behind those that come with a claim there may be more.
    unbegun = life.newest == 0 and life.due_us is not None and len(served.letters) < LETTERS_MAX
    if unbegun and all(letter.kind != CANCEL_KIND for letter in served.letters):
        yield "O6", f"{life.name} was begun before its time, and nobody wants to cancel it"


def _misread(life: Life, served: InstanceServed) -> Iterator[Finding]:
    for letter in served.letters:
        if letter.number in life.consumed:
            yield "O5", f"{life.name} was given the letter {letter.id} after it had taken it out"


def _commit(model: Model, served: InstanceServed) -> Iterator[Finding]:
    commit, life = served.asked, model.lives.get(served.instance)
    assert isinstance(commit, Commit)
    accepted = served.outcome == "ok"
    known = life is not None and life.commits.get(commit.version) == commit.commit
    stands = life is not None and (life.owner, life.version + 1) == (commit.token, commit.version)
    if life is None or not accepted or known:
        newest = known and life is not None and life.version == commit.version
        if not accepted and (stands or newest):
            yield "O4", f"{commit.id} was refused the commit {commit.version} of its owner"
        elif accepted and life is None:
            yield "O7", f"{commit.id} was committed and never started"
        return
    if life.ended is not None:
        yield "O7", f"{commit.id} was committed after its end as {life.ended}"
    if commit.token != life.owner:
        yield "O4", f"{commit.id} was committed under {commit.token}; its owner has {life.owner}"
    if commit.version != life.version + 1:
        yield "O1", f"{commit.id} went from version {life.version} to {commit.version}"
    yield from _mail_of(life, commit)
    yield from _advance(model, life, served)


def _mail_of(life: Life, commit: Commit) -> Iterator[Finding]:
    """Letters leave the mailbox in the commit that records them, and in no other."""
    letters = {number: life.letters.get(number) for number in commit.consumed}
    for number in commit.consumed:
        if number in life.consumed:
            yield "O5", f"{life.name} took the letter {number} out twice"
        life.consumed.add(number)
    if commit.restart is not None:
        return
    read = {e.id for e in decode_events(commit.events) if isinstance(e, SignalReceived)}
    taken = {letter.id for letter in letters.values() if letter and letter.kind == "signal"}
    for signal in sorted(taken - read):
        yield "O5", f"{life.name} took the signal {signal} out without recording it"
    for signal in sorted(read - taken):
        yield "O5", f"{life.name} recorded the signal {signal} and left it in its mailbox"


def _advance(model: Model, life: Life, served: InstanceServed) -> Iterator[Finding]:
    commit = served.asked
    assert isinstance(commit, Commit)
    life.version = commit.version
    life.commits[commit.version] = commit.commit
    life.due_us = commit.due_at_us
    row = Row(commit.version, commit.token, served.at_us, commit.events)
    if commit.restart is not None:
        life.base, life.began_us = commit.version - 1, served.at_us
        yield from life.story.restarted(row)
    else:
        yield from life.story.add(row)
    final = commit.status if commit.status in FINAL else None
    if life.story.ended != final:
        yield "O7", f"{life.name} is {commit.status}, and its history says {life.story.ended}"
    if final is not None:
        life.ended = final
    if final is not None or commit.release:
        life.disown()
    for one in commit.starts:
        if one.id not in model.lives and one.id not in served.taken:
            model.begin(one, at_us=served.at_us)
    for message in commit.sends:
        _deliver(model, message)


def _deliver(model: Model, message: Message) -> None:
    life = model.lives.get(message.to)
    if life is not None and life.ended is None:
        life.sent.add(message.id)


def _send(model: Model, served: InstanceServed) -> Iterator[Finding]:
    message, life = served.asked, model.lives.get(served.instance)
    assert isinstance(message, Message)
    if served.outcome == Sent.SENT:
        if life is None or life.ended is not None:
            yield "O5", f"{message.id} was put into the mailbox of {message.to}, which is no more"
        elif message.id in life.sent:
            yield "O5", f"{message.id} was put into the mailbox of {message.to} twice"
    elif served.outcome == Sent.DUPLICATE and (life is None or message.id not in life.sent):
        yield "O5", f"{message.id} is said to be a duplicate, and never was at {message.to}"
    elif served.outcome == Sent.ENDED and life is not None and life.ended is None:
        yield "O5", f"{message.id} was refused by {message.to}, which lives"
    _deliver(model, message)


def _letters(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if life is not None:
        life.letters.update({letter.number: letter for letter in served.letters})
        yield from _misread(life, served)


def _release(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    stands = life is not None and life.owner == served.token
    if served.outcome != "ok":
        if stands:
            yield "O4", f"{served.instance} was not taken back from its owner"
        return
    if life is None or not stands:
        yield "O4", f"{served.instance} was given up under {served.token}, not by its owner"
        return
    if isinstance(served.asked, Handback) and served.asked.due:
        life.due_us = 0
    life.disown()


def _reclaim(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if life is None or life.owner is None:
        yield "O4", f"{served.instance} was taken back, and nobody had it"
        return
    if life.session not in model.ended_sessions:
        yield "O4", f"{life.name} was taken from {life.session}, which had not ended"
    life.due_us = 0
    life.disown()


def _terminate(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if served.outcome == Opened.CHANGED and life is not None:
        if life.ended not in (None, "terminated"):
            yield "O7", f"{life.name} was terminated after its end as {life.ended}"
        family = model.family(life) if served.op == "terminate.family" else [life]
        for each in family:
            each.ended = "terminated"
            each.disown()


def _operate(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if served.outcome != Opened.CHANGED or life is None:
        return
    if life.ended is not None:
        yield "O7", f"{life.name}: {served.op} after its end as {life.ended}"
    if served.op == "resume" and life.suspended and life.owner is None and life.granted:
        life.due_us = 0
    life.suspended = served.op == "suspend"


def _reopen(model: Model, served: InstanceServed) -> Iterator[Finding]:
    life = model.lives.get(served.instance)
    if served.outcome != Opened.CHANGED or life is None or life.version >= served.version:
        return
    if life.ended is None:
        yield "O7", f"{life.name} lives, and was opened again"
    if served.version != life.version + 1:
        yield "O1", f"{life.name} went from version {life.version} to {served.version}"
    life.version, life.ended, life.due_us = served.version, None, 0
    # The end had taken it out of its suspension.
    life.suspended = False
    yield from life.story.add(Row(served.version, life.newest, served.at_us, served.events))


def _purge(model: Model, served: InstanceServed) -> Iterator[Finding]:
    if served.outcome == Opened.CHANGED:
        life = model.lives.pop(served.instance, None)
        if life is not None and life.ended is None:
            yield "O7", f"{life.name} was forgotten while it lived"


def _end_session(model: Model, served: InstanceServed) -> Iterator[Finding]:
    model.ended_sessions.add(served.session)
    yield from ()


_JUDGES = {
    "start": _start,
    "claim": _claim,
    "commit": _commit,
    "send": _send,
    "letters": _letters,
    "release": _release,
    "reclaim": _reclaim,
    "terminate": _terminate,
    "terminate.family": _terminate,
    "suspend": _operate,
    "resume": _operate,
    "reopen": _reopen,
    "purge": _purge,
    "session.end": _end_session,
}
