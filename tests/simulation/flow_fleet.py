"""A fleet of hosts that run flows under chaos, then in peace until every flow has ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outlive.errors import NonDeterminism, OutliveError
from outlive.flows.events import SignalReceived, StepEnded, TimerFired, decode_events
from outlive.model.instance import FINAL, Commit, InstanceFilter, InstanceRecord, InstanceStatus
from outlive.model.options import LeaseOptions
from outlive.ports.driver import Driver, DriverFactory
from outlive.ports.instance_desk import InstanceDesk
from outlive.testing.faults import FaultPlan
from outlive.testing.replay import check_replay
from outlive.testing.simulation import SimHost
from tests.simulation.course import Course
from tests.simulation.flow_cases import TTL_S, Program
from tests.simulation.flow_client import FlowClient, Wish
from tests.simulation.oracles.instance_checker import check_instances
from tests.simulation.oracles.instance_history import InstanceHistory, Left
from tests.simulation.oracles.lease_reference import Violation

# After the chaos: sessions run out and are reaped (two ttls), stray claims are given back, the
# longest nap and the retries come due (two ttls), and children wait for theirs.
PEACE_S = 40 * TTL_S

# Then failures are mended one after the other. A ring that is lost costs each a poll of a minute.
MENDING_S = 5 * PEACE_S

OPTIONS = LeaseOptions(ttl=TTL_S)
_PAGE = 1000


class FlowFleet(Course):
    """One seeded run of several machines against one store."""

    ttl_s = TTL_S
    chaos_s = 6 * TTL_S

    def __init__(
        self, seed: int, *, factory: DriverFactory | None = None, plan: FaultPlan | None = None
    ) -> None:
        super().__init__(seed, factory=factory, plan=plan)
        self.wishes: dict[str, Wish] = {}
        self._judged = self.flows

    @property
    def flows(self) -> InstanceHistory:
        return self.history.instances

    # -- the hosts ------------------------------------------------------------------------------

    async def host_main(self, machine: SimHost) -> None:
        draw = self.simulation.stream(f"flows/{machine.name}")
        number = 0
        while not self.finished:
            program = Program(self, machine, draw)
            try:
                host = await self._store.connect(
                    machine, OPTIONS, app=program.app, session_ttl_s=TTL_S
                )
            except OutliveError:
                await asyncio.sleep(0.1)
                continue
            number += 1
            client = FlowClient(self, f"{machine.name}.{number}", host, program)
            running = asyncio.create_task(host.run())
            using = asyncio.create_task(client.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(draw.uniform(0.5, 1.5) * self.chaos_s):
                    await self.peace.wait()
            if self.stopping:
                await asyncio.wait([using])
                using.result()
                await client.finish()
                await self.end.wait()
            using.cancel()
            host.stop()
            await asyncio.wait([running, using])
            running.result()
            await host.close()
            self.seen["drained"] += 1

    # -- the end --------------------------------------------------------------------------------

    async def settle(self, keep: Driver) -> None:
        assert keep.instances is not None
        self.flows.healed_at = self.simulation.now
        records = await self._wait(keep.instances, PEACE_S, lambda record: record.status in FINAL)
        if all(record.status in FINAL for record in records):
            records = await self._wait(keep.instances, MENDING_S, is_settled)
        left: dict[str, Left] = {}
        for record in records:
            rows = await keep.instances.history(record.id, after=record.base, limit=_PAGE)
            left[record.id] = Left(record, rows)
        # What is started from here on is not looked at.
        flows = self.flows
        self._judged = replace(
            flows,
            served=list(flows.served),
            ran=list(flows.ran),
            acknowledged=set(flows.acknowledged),
            left=left,
        )

    async def _wait(
        self, desk: InstanceDesk, limit_s: float, calm: Callable[[InstanceRecord], bool]
    ) -> list[InstanceRecord]:
        """All that there is, once it is calm or the time is up."""
        records: list[InstanceRecord] = []
        for _ in range(round(limit_s / TTL_S)):
            await asyncio.sleep(TTL_S)
            records = [*await desk.list(InstanceFilter(), after=None, limit=_PAGE)]
            if all(map(calm, records)):
                break
        return records

    def judge(self) -> None:
        for served in self._judged.served:
            self.seen[f"{served.op} {served.outcome}"] += 1
        self.seen["steps"] += len(self._judged.ran)
        self._count_commits()
        outcome = self.outcome
        outcome.violations += check_instances(self._judged, drifted=outcome.drifted)
        for wish in self.wishes.values():
            outcome.violations += self._judge(wish)
        outcome.violations += self._replay()

    def _replay(self) -> list[Violation]:
        """O8: the code that ran, run again from what is stored, does what is recorded."""
        machine = SimHost(self.simulation, "witness", 0)
        app = Program(self, machine, self.simulation.stream("witness")).app
        found: list[Violation] = []
        for left in (self._judged.left or {}).values():
            try:
                ended = check_replay(app, left.record, left.rows)
            except NonDeterminism as error:
                text = str(error)
            else:
                # What was terminated did not come to an end by its own code.
                if ended == (left.record.status in FINAL) or left.record.status == "terminated":
                    continue
                text = f"{left.record.id} is {left.record.status}; replayed, ended is {ended}"
            found.append(Violation(rule="O8", seed=self.outcome.seed, text=text))
        return found

    def _count_commits(self) -> None:
        """What the commits say that happened, and how often one was carried out again."""
        known: set[tuple[str, str]] = set()
        self.seen["takeover"] += self.seen["reclaim ok"]
        for served in self._judged.served:
            commit = served.asked
            if not isinstance(commit, Commit) or served.outcome != "ok":
                continue
            if (commit.id, commit.commit) in known:
                self.seen["repeated commit"] += 1
                continue
            known.add((commit.id, commit.commit))
            self.seen["new run"] += commit.restart is not None
            self.seen["child"] += len(commit.starts)
            for event in decode_events(commit.events):
                self.seen["timer fired"] += isinstance(event, TimerFired)
                self.seen["signal received"] += isinstance(event, SignalReceived)
                failure = event.error if isinstance(event, StepEnded) else None
                unknown = failure is not None and failure.type == "OutcomeUnknown"
                self.seen["unknown once"] += unknown

    def _judge(self, wish: Wish) -> list[Violation]:
        """What a flow came to must be what its code says, whatever happened on the way."""
        left = (self._judged.left or {}).get(wish.id)
        if left is None:
            return []
        record = left.record
        self.seen[f"{wish.case.name} {record.status}"] += 1
        allowed = wish.case.ends(wish.input)
        found: Any = record.status.value
        if found == "completed":
            found = json.loads(record.outcome or "null")
        by_operators = {"cancel": "cancelled", "terminate": "terminated"}
        allowed += tuple(status for act, status in by_operators.items() if act in wish.done)
        allowed += wish.case.suspended if "suspend" in wish.done else ()
        if found in allowed or record.status not in FINAL:
            return []
        text = f"{wish.id} ({wish.case.name} {wish.input!r}) came to {found!r}, not {allowed}"
        return [Violation(rule="result", seed=self.outcome.seed, text=text, proof=(str(record),))]


def is_settled(record: InstanceRecord) -> bool:
    """Whether it has ended, and nobody retries it."""
    mended = record.name == "fragile" and record.status is InstanceStatus.FAILED
    return record.status in FINAL and not mended
