"""One seeded run of the real orchestrator: groups that come and go, senders who never rest.

Owns the course of a seed and its history. Every sender is a host of the virtual loop, so that the
seed decides who runs next; actions take virtual time, and busy ones let it pass.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outlive.charts import Chart, Event, assign, send_to
from outlive.charts.orchestrator import Group, Machine, Metrics, Orchestrator
from outlive.charts.orchestrator.acceptance import ACCEPTED, Acceptance
from outlive.errors import ChartError, GroupReleased, MailboxFull, RequestTimeout, UnknownTarget
from outlive.runtime.runtime import Runtime
from outlive.testing.loop import LoopHost, context_of
from outlive.testing.simulation import Simulation, TrueClock

SENDERS = 3
CHAOS_S = 2.5
# Long enough for every pause, timer and timeout of a run to be over.
PEACE_S = 60.0
KINDS = ("MSG", "MSG", "MSG", "SLOW", "BUSY", "BAD", "ASK", "FORWARD", "LATER")


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened: ``what``, at which machine, to which event of whom."""

    what: str
    machine: str
    group: int
    sender: str = ""
    number: int = 0
    detail: Any = None


@dataclass
class Seed:
    """What one seed did."""

    number: int
    history: list[Record] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    metrics: Metrics | None = None
    policy: str = ""

    def note(self, what: str, machine: Any, event: Event | None = None, detail: Any = None) -> None:
        sender = "" if event is None else event.get("sender", "")
        number = 0 if event is None else event.get("number", 0)
        self.history.append(Record(what, machine.id, machine.group.id, sender, number, detail))
        self.seen[what] += 1


class Orchestra:
    """The course of one seed."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.seed = Seed(seed)
        self.draw = self.simulation.stream("orchestra")
        self.numbers = itertools.count(1)
        self.stopping = False
        clock = TrueClock(self.simulation.loop)
        low = self.draw.choice((1, 2, 4))
        self.seed.policy = self.draw.choice(("wait", "reject", "drop-oldest"))
        self.hub = Orchestrator(
            pool_size=low,
            max_pool_size=8 * low,
            mailbox_limit=self.draw.choice((2, 5, 50)),
            mailbox_policy=self.seed.policy,
            logging=False,
            runtime=Runtime(clock=clock, rng=self.simulation.stream("ids")),
        )
        self.groups: list[Group] = []
        self.chart = self._chart()

    def run(self) -> Seed:
        self.simulation.run(lambda _: self._main())
        return self.seed

    # -- the machines ---------------------------------------------------------------------------

    def _chart(self) -> Chart:
        seed, draw = self.seed, self.simulation.stream("actions")

        def handled(event: Event, actor: Machine) -> None:
            seed.note("handled", actor, event, event.type)

        def refuse() -> bool:
            raise ValueError("a guard that fails")

        async def pause(event: Event, actor: Machine) -> None:
            seed.note("begin", actor, event)
            await asyncio.sleep(draw.choice((0, 0.01, 0.3)))
            seed.note("end", actor, event)

        def work() -> None:
            # A plain action that computes: time passes, and nothing else can run.
            self.simulation.loop._now += draw.choice((0.002, 0.06))

        async def ask(event: Event, actor: Machine) -> None:
            seed.note("begin", actor, event)
            if event["hops"] > 0:
                peer = draw.choice(actor.group.machines or (actor,))
                await self._request(actor.id, peer, "ASK", hops=event["hops"] - 1)
            seed.note("end", actor, event)

        def forwarded(event: Event) -> Event:
            data = {**event.data, "sender": f"via {event['sender']}"}
            return Event("MSG", data)

        count = assign(count=lambda context: context["count"] + 1)
        return Chart.load(
            {
                "id": "player",
                "context": {"count": 0},
                "on": {
                    "MSG": {"actions": ["count", "handled"]},
                    "SLOW": {"actions": ["count", "handled", "pause"]},
                    "BUSY": {"actions": ["count", "handled", "work"]},
                    "BAD": {"guard": "refuse", "actions": ["count", "handled"]},
                    "ASK": {"actions": ["count", "handled", "ask"]},
                    "FORWARD": {"actions": ["count", "handled", "forward"]},
                    "LATER": {"actions": ["count", "handled", "later"]},
                },
            },
            actions={
                "count": count,
                "handled": handled,
                "pause": pause,
                "work": work,
                "ask": ask,
                "forward": send_to("first", forwarded, scope="machine"),
                "later": send_to("first", forwarded, scope="machine", delay=100),
            },
            guards={"refuse": refuse},
        )

    # -- the course -----------------------------------------------------------------------------

    async def _main(self) -> None:
        loop = self.simulation.loop
        for _ in range(self.draw.choice((2, 3))):
            await self._open_group()
        hosts = [LoopHost(f"sender-{number}") for number in range(SENDERS)]
        tasks = [
            loop.create_task(self._send_on(host.name), context=context_of(host)) for host in hosts
        ]
        keeper = LoopHost("keeper")
        tasks.append(loop.create_task(self._come_and_go(), context=context_of(keeper)))
        await asyncio.sleep(CHAOS_S)
        self.stopping = True
        await asyncio.gather(*tasks)
        await asyncio.sleep(PEACE_S)
        self.seed.metrics = self.hub.metrics()
        self.seed.left += [
            machine.id for group in self.hub.groups for machine in group.machines if machine.busy
        ]
        await self.hub.force_cleanup()
        await asyncio.sleep(1)
        own = asyncio.current_task()
        self.seed.left += [
            task.get_name() for task in loop._tasks if not task.done() and task is not own
        ]

    async def _open_group(self) -> None:
        group = self.hub.group("same name")
        names = ["first", *self.draw.choices(("order_2", "a#3#b", "first"), k=2)]
        for name in names[:1] + [name for name in names[1:] if name != "first"]:
            self.seed.note("start", await group.start(self.chart, id=name))
        self.groups.append(group)

    async def _come_and_go(self) -> None:
        draw = self.simulation.stream("keeper")
        while not self.stopping:
            await asyncio.sleep(draw.uniform(0.1, 1.0))
            group = draw.choice(self.groups)
            match draw.choice(("release", "release", "stop", "halt", "cancel")):
                case "release":
                    self.groups.remove(group)
                    await self._release(group, draw)
                case "stop" if group.machines:
                    await self._stop(draw.choice(group.machines), drain=True)
                case "halt" if group.machines:
                    await self._stop(draw.choice(group.machines), drain=False)
                case _:
                    pass
            if not self.groups or draw.random() < 0.5:
                await self._open_group()

    async def _release(self, group: Group, draw: random.Random) -> None:
        members = group.machines
        await asyncio.gather(*(group.release() for _ in range(draw.choice((1, 2)))))
        for machine in members:
            self.seed.note("released", machine)

    async def _stop(self, machine: Machine, *, drain: bool) -> None:
        await machine.stop(drain=drain)
        self.seed.note("drained" if drain else "halted", machine)
        if not machine.running:
            machine.unregister()

    # -- the senders ----------------------------------------------------------------------------

    async def _send_on(self, name: str) -> None:
        draw = self.simulation.stream(name)
        while not self.stopping:
            await asyncio.sleep(draw.choice((0, 0, 0.001, 0.05)))
            group = draw.choice(self.groups) if self.groups else None
            if group is None or not group.machines:
                continue
            machine = draw.choice(group.machines)
            kind = draw.choice(KINDS)
            if draw.random() < 0.3:
                timeout_s = draw.choice((0.005, 0.1, 5.0))
                await self._request(name, machine, kind, hops=2, timeout_s=timeout_s)
            else:
                # Awaited only when all are sent, so that several of one sender stand in line.
                offers = [self._offer(name, machine, kind) for _ in range(draw.choice((1, 1, 8)))]
                for event, outcome in offers:
                    await self._accepted(machine, event, outcome)

    def _event(self, sender: str, machine: Machine, kind: str, hops: int) -> Event:
        data = {"sender": sender, "number": next(self.numbers), "hops": hops}
        return Event(kind, {**data, "group": machine.group.id})

    def _offer(self, sender: str, machine: Machine, kind: str) -> tuple[Event, Acceptance]:
        event = self._event(sender, machine, kind, 2)
        outcome = machine.send(event)
        if outcome is ACCEPTED:
            self.seed.note("accepted", machine, event, kind)
        return event, outcome

    async def _accepted(self, machine: Machine, event: Event, outcome: Acceptance) -> None:
        try:
            await outcome
        except (MailboxFull, UnknownTarget, GroupReleased) as error:
            self.seed.note("refused", machine, event, type(error).__name__)
        else:
            if outcome is not ACCEPTED:
                self.seed.note("accepted late", machine, event, event.type)

    async def _request(
        self, sender: str, machine: Machine, kind: str, *, hops: int, timeout_s: float = 5.0
    ) -> None:
        event = self._event(sender, machine, kind, hops)
        self.seed.note("asked", machine, event, kind)
        try:
            snapshot = await machine.request(event, timeout=timeout_s)
        except RequestTimeout as error:
            self.seed.note("timeout", machine, event, error.begun)
        except asyncio.CancelledError:
            self.seed.note("gave up", machine, event)
            raise
        except (ChartError, ValueError, BaseExceptionGroup) as error:
            self.seed.note("error", machine, event, type(error).__name__)
        else:
            self.seed.note("answer", machine, event, snapshot.context["count"])
