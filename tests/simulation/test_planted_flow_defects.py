"""The simulation of flows must be able to fail: each planted defect is found within some seeds.

Half of them are planted into the store, half into the engine that runs on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from outlive.drivers.memory import instance_claim, instance_commit, instance_store
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.drivers.memory.instance_store import MemoryInstanceStore
from outlive.errors import StoreError
from outlive.flows import loading
from outlive.flows.activation import LiveFlow
from outlive.flows.committing import Writes
from outlive.flows.executing import Executor
from outlive.flows.host import FlowHost
from outlive.flows.household import Household
from outlive.flows.store_clock import StoreClock
from outlive.model.instance import Commit, InstanceStatus, Sent
from outlive.runtime.session import LiveSession
from outlive.testing.faults import FaultPlan
from tests.simulation.course import require_found
from tests.simulation.flow_cases import TTL_S
from tests.simulation.flow_fleet import FlowFleet

Plant = Callable[[pytest.MonkeyPatch], None]

# Enough for the rarest of them to be found with room to spare; most are found by the first few.
SEEDS = 60

# -- in the store -------------------------------------------------------------------------------


def commit_without_token(patch: pytest.MonkeyPatch) -> None:
    """Whoever had the instance once may commit."""
    advance = instance_commit.advance

    def careless(step, commit, host):
        row = step.table.rows.get(commit.id)
        if row is not None and row.owner is not None:
            commit = replace(commit, token=row.token)
        return advance(step, commit, host)

    patch.setattr(instance_store, "advance", careless)


def commit_without_version(patch: pytest.MonkeyPatch) -> None:
    """A commit is taken for the next one, whichever it is."""
    advance = instance_commit.advance

    def careless(step, commit, host):
        row = step.table.rows.get(commit.id)
        if row is not None:
            commit = replace(commit, version=row.version + 1, commit=f"{row.version + 1}")
        return advance(step, commit, host)

    patch.setattr(instance_store, "advance", careless)


def forget_commit_ids(patch: pytest.MonkeyPatch) -> None:
    """A commit that is sent again is refused."""
    record = InstanceStep.record
    patch.setattr(
        InstanceStep,
        "record",
        lambda self, row, events, _, worker: record(self, row, events, "forgotten", worker),
    )


def claim_for_ended_sessions(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look at its session."""
    patch.setattr(MemoryInstanceStore, "_check_session", lambda *_: None)


def take_from_the_living(patch: pytest.MonkeyPatch) -> None:
    """Reclaiming takes whatever is owned."""
    reclaim = MemoryInstanceStore.reclaim

    async def take(self, *, limit):
        sessions, self._space.sessions = self._space.sessions, {}
        try:
            return await reclaim(self, limit=limit)
        finally:
            self._space.sessions = sessions

    patch.setattr(MemoryInstanceStore, "reclaim", take)


def take_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """What the gone had stays theirs."""

    async def reclaim(self, *, limit):
        return []

    patch.setattr(MemoryInstanceStore, "reclaim", reclaim)


def keep_the_token(patch: pytest.MonkeyPatch) -> None:
    """A claim is given the token that the last one had."""
    take = InstanceStep.take

    def forgetful(self, row, owner):
        row.token = max(0, row.token - 1)
        take(self, row, owner)

    patch.setattr(InstanceStep, "take", forgetful)


def wake_early(patch: pytest.MonkeyPatch) -> None:
    """Due times are not looked at."""
    first = instance_claim._first
    patch.setattr(instance_claim, "_first", lambda one, now_us: first(one, now_us + 10**9))


def keep_letters(patch: pytest.MonkeyPatch) -> None:
    """What was read stays in the mailbox."""
    advance = instance_commit.advance
    patch.setattr(
        instance_store,
        "advance",
        lambda step, commit, host: advance(step, replace(commit, consumed=()), host),
    )


def lose_letters(patch: pytest.MonkeyPatch) -> None:
    """A message is acknowledged and not always kept."""
    send = InstanceStep.send

    def careless(self, message, **options):
        if message.id.endswith("1"):
            return Sent.SENT
        return send(self, message, **options)

    patch.setattr(InstanceStep, "send", careless)


def deliver_twice(patch: pytest.MonkeyPatch) -> None:
    """Ids of messages are not remembered."""
    send = InstanceStep.send

    def forgetful(self, message, **options):
        row = self.table.rows.get(message.to)
        if row is not None:
            row.seen.clear()
        return send(self, message, **options)

    patch.setattr(InstanceStep, "send", forgetful)


# -- in the engine ------------------------------------------------------------------------------


def fire_early(patch: pytest.MonkeyPatch) -> None:
    """The store's clock is guessed from above."""
    now_us = StoreClock.now_us
    patch.setattr(StoreClock, "now_us", lambda self: now_us(self) + 200_000)


def act_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Steps begin while what was decided with them is still under way."""
    commit = LiveFlow._commit

    def hasty(self, decision):
        if decision.steps and decision.restart is None:
            self.steps.start(self, decision.steps, hold=False)
            decision = replace(decision, steps=())
        commit(self, decision)

    patch.setattr(LiveFlow, "_commit", hasty)


def take_letters_out_first(patch: pytest.MonkeyPatch) -> None:
    """Letters leave the mailbox in a commit of their own, before the one that records them."""
    commit = Household.commit

    def hasty(self, live, made: Commit, done):
        if not made.consumed:
            commit(self, live, made, done)
            return
        first = replace(
            made,
            events="[]",
            status=InstanceStatus.RUNNING,
            outcome=None,
            starts=(),
            jobs=(),
            sends=(),
            restart=None,
        )
        following = replace(made, version=made.version + 1, commit=f"{made.commit}+", consumed=())

        def then(answer):
            if answer is None or not answer.ok:
                done(answer)
                return
            live.row.version += 1
            commit(self, live, following, done)

        commit(self, live, first, then)

    patch.setattr(Household, "commit", hasty)


def read_mail_before_the_history(patch: pytest.MonkeyPatch) -> None:
    """Letters are fed to a flow that was not replayed yet."""

    def mail(self):
        if not (
            self.closed
            or self._still
            or self.committing
            or self._intake.waiting
            or self._mailbox.looking
        ):
            self._read()

    patch.setattr(LiveFlow, "mail", mail)


def skip_the_replay(patch: pytest.MonkeyPatch) -> None:
    """A flow that was taken over begins from its first line."""

    async def history(home, live, claimed):
        return []

    patch.setattr(loading, "_history", history)


def commit_anew_after_an_error(patch: pytest.MonkeyPatch) -> None:
    """A commit without an answer is made once more as the next version."""
    init = Writes.__init__

    def careless(self, runtime, method, log, **options):
        async def again(members):
            try:
                return await method(members)
            except StoreError:
                if not isinstance(members[0], Commit):
                    raise
                anew = [
                    replace(each, version=each.version + 1, commit=f"{each.commit}+")
                    for each in members
                ]
                await asyncio.sleep(0.01)
                return await method(anew)

        init(self, runtime, again, log, **options)

    patch.setattr(Writes, "__init__", careless)


def park_with_a_pending_step(patch: pytest.MonkeyPatch) -> None:
    """What is handed back is never due, though it would go on by itself."""
    patch.setattr(LiveFlow, "pending", property(lambda _: False))


def believe_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A host runs on, whatever its own clock says of its session."""
    patch.setattr(LiveSession, "held", property(lambda _: True))
    patch.setattr(FlowHost, "_on_lost", lambda *_: None)


def forget_timers(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told when a parked flow is due."""
    commit = Household.commit
    patch.setattr(
        Household,
        "commit",
        lambda self, live, made, done: commit(self, live, replace(made, due_at_us=None), done),
    )


def share_keys(patch: pytest.MonkeyPatch) -> None:
    """Effects of one step of all flows are known by one key."""
    patch.setattr("outlive.flows.step_run.step_key", lambda *parts: f"shared/{parts[-1]}")


def run_once_again(patch: pytest.MonkeyPatch) -> None:
    """A step that may run once is begun twice."""
    begin = Executor.begin

    def twice(self, run, **how):
        if run.call.step.options.once:
            begin(self, self.prepare(run.owner, run.call), **how)
        begin(self, run, **how)

    patch.setattr(Executor, "begin", twice)


FOUND: dict[Plant, set[str]] = {
    commit_without_token: {"O4"},
    commit_without_version: {"O1", "O2"},
    forget_commit_ids: {"O4"},
    claim_for_ended_sessions: {"O4"},
    take_from_the_living: {"O4"},
    take_nothing_back: {"O9"},
    keep_the_token: {"O4"},
    wake_early: {"O6"},
    keep_letters: {"O5"},
    lose_letters: {"O9"},
    deliver_twice: {"O5"},
    fire_early: {"O6"},
    act_before_the_commit: {"O3"},
    take_letters_out_first: {"O5"},
    read_mail_before_the_history: {"O5"},
    skip_the_replay: {"O2", "O6", "O7"},
    commit_anew_after_an_error: {"O1", "O2", "O5", "O6"},
    park_with_a_pending_step: {"O9"},
    believe_for_ever: {"O4"},
    forget_timers: {"O9"},
    share_keys: {"O3"},
    run_once_again: {"O3"},
}


# Some need weather that most seeds do not have.
DELAYS = FaultPlan(ttl_s=TTL_S, delay=0.4, pause=0.01)
PLANS: dict[Plant, FaultPlan] = {
    claim_for_ended_sessions: DELAYS,
    commit_without_token: DELAYS,
    read_mail_before_the_history: FaultPlan(
        ttl_s=TTL_S, latency_s=0.05, delay=0.1, crash=0.01, pause=0.01
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", FOUND, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    require_found(lambda seed: FlowFleet(seed, plan=PLANS.get(plant)), FOUND[plant], SEEDS)
