"""``Machine``: what a user holds of one machine of the orchestrator.

Owns the ways in: start, send, request, stop, unregister. Every one may be called in any thread that
runs an event loop, ``send`` in any thread at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from outlive.charts.chart import Chart
from outlive.charts.environment import Environment
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.interpreter import BUSY, ENDED, IDLE, NEW, WAITING
from outlive.charts.orchestrator.acceptance import ACCEPTED, Acceptance, Crossing, Refused, tell
from outlive.charts.orchestrator.lanes import SAMPLE_EVERY, Lanes
from outlive.charts.orchestrator.options import REQUEST_TIMEOUT_S, MailboxRule
from outlive.charts.orchestrator.requests import CHAIN, Halt, Request, Sampled, combined, waits
from outlive.charts.orchestrator.worker import READY, Worker
from outlive.charts.snapshot import Snapshot
from outlive.errors import GroupReleased, RequestTimeout, UnknownTarget, UsageError
from outlive.model.options import Duration, seconds
from outlive.runtime.running_loop import running_loop

T = TypeVar("T")

# An action that was cancelled cleans up; one that takes longer than this is left to itself.
ACTION_END_S = 5.0


class Machine(Worker):
    """A machine of a group: ``await group.start(chart)`` makes one, then ``send`` and ``request``.

    ``id`` is ``{base}#{group}#{guid}``: to be shown and looked up, never to be taken apart.
    ``snapshot`` is the machine as of the last event, from its start on; ``group`` is its home.
    """

    __slots__ = ()

    def __init__(
        self,
        chart: Chart,
        *,
        base: str,
        id: str,  # noqa: A002
        input: Any,  # noqa: A002
        environment: Environment,
        rule: MailboxRule,
    ) -> None:
        super().__init__(chart, id=id, input=input, environment=environment)
        self.base = base
        self._rule = rule
        self._next = None
        self._extra = None
        self._answering = None

    # -- life -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._phase not in (NEW, ENDED)

    @property
    def busy(self) -> bool:
        """Whether it has mail, handles an event, or one of its actions awaits something."""
        return self._phase not in (NEW, IDLE, ENDED)

    @property
    def home(self) -> Lanes | None:
        """The lanes of the loop that it lives on; ``None`` before its first start."""
        return None if self._phase == NEW else self._lanes

    def count_dead_letter(self) -> None:
        """Note that one of its events became a dead letter after it was handled."""
        self._lanes.counts.dead_letters += 1

    async def start(self) -> Machine:
        """Enter the initial states, and wait until their actions are done.

        The machine lives on the event loop that runs this. One that has ended starts anew, from
        the beginning.

        Raises:
            UsageError: It runs already.
            GroupReleased: Its group is gone.
            Exception: Whatever a decision or an action on the way raised. After a decision the
                machine has failed.
        """
        if self.running:
            raise UsageError(f"machine {self.id!r} is already running")
        if self.group.released:
            raise GroupReleased(self.group.name)
        lanes = self._lanes = self.group.orchestrator.lanes()
        self._extra = None
        self._task = None
        self._phase = BUSY
        lanes.counts.active += 1
        self._answering = None
        errors = self._begin()
        if self._phase == WAITING:
            await self.settled()
        else:
            if errors:
                lanes.counts.failed += 1
            if self._phase == BUSY:
                self._settle()
        # A start that failed is an event that failed; one that went well is not counted.
        lanes.counts.handled += bool(errors)
        if self.group.released:
            # Released meanwhile, perhaps by another thread that saw a machine not yet started.
            reason = GroupReleased(self.group.name)
            self.halt(reason)
            raise reason
        if errors:
            raise combined(self.id, errors)
        return self

    async def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> None:
        """End it: timers, services and children are stopped, no exit action runs.

        Events that were accepted are handled before, unless ``drain`` is false or ``timeout``
        passes; then they are dropped, and an action that awaits something is cancelled. Safe to
        repeat. Called by an action of the machine itself, it ends after that action.
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        try:
            await self._at_home(lambda: self._stop(drain=drain, timeout_s=timeout_s))
        except UnknownTarget as error:
            # Nobody else is at it, and nothing of it can be handled any more.
            self.halt(error)

    async def _stop(self, *, drain: bool, timeout_s: float | None) -> None:
        if self._phase in (NEW, ENDED):
            return
        if not drain:
            await ended(self.halt(self._absence_after_stop()))
            return
        halt = Halt(asyncio.get_running_loop().create_future())
        extra = self._extras()
        if extra.line:
            extra.line.append((halt, None))
        else:
            self._push(halt)
        extra.stopping = True
        if waits(self, CHAIN.get()):
            return
        done, _ = await asyncio.wait({halt.done}, timeout=timeout_s)
        if not done:
            await ended(self.halt(self._absence_after_stop()))

    async def wait_for(
        self, predicate: Callable[[Snapshot], bool], timeout: Duration | None = None
    ) -> Snapshot:
        """Wait for a snapshot that satisfies ``predicate``; one that does already is enough.

        The predicate runs on the machine's own loop.

        Raises:
            WaitTimeout: None came within ``timeout``.
            ChartError: The machine ended first.
            UnknownTarget: It was not started, or its event loop does not run.
        """
        if self._phase == NEW:
            raise self._absence()
        wait_for = super().wait_for
        return await self._at_home(lambda: wait_for(predicate, timeout))

    async def settled(self) -> Snapshot:
        """Wait until no action of the machine awaits anything; give the snapshot.

        Raises:
            UnknownTarget: It was not started, or its event loop does not run.
        """
        if self._phase == NEW:
            raise self._absence()
        return await self._at_home(super().settled)

    def persist(self) -> dict[str, Any]:
        """The machine as JSON, by the name that it was registered by; see ``Group.restore``.

        Raises:
            UsageError: It was not started, is busy, or its data cannot be said in JSON.
        """
        return {**super().persist(), "id": self.base}

    def unregister(self) -> None:
        """Take it out of its group; nobody finds it there any more. Safe to repeat.

        Raises:
            UsageError: It still runs; stop it first.
        """
        if self.running:
            raise UsageError(f"machine {self.id!r} still runs; stop it before you unregister it")
        self.group.forget(self)

    async def _at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``work`` on the loop of the machine.

        Raises:
            UnknownTarget: That loop stands still, perhaps for ever.
        """
        if self._phase == NEW or self._lanes.loop is asyncio.get_running_loop():
            return await work()
        if not self._lanes.loop.is_running():
            raise UnknownTarget(self.id, "its event loop is not running")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._lanes.loop))

    # -- events ---------------------------------------------------------------------------------

    def send(self, event: EventLike, /, **data: Any) -> Acceptance:
        """Give it an event and go on: ``machine.send("PAY", amount=5)``. In any thread.

        What comes back may be awaited: that ends when the event is in the mailbox, which is at once
        unless the mailbox is full and its policy is to wait, and raises if it was refused. Nobody
        has to: a refused event is a dead letter as well. What goes wrong while the event is handled
        is told to ``on_error``.

        Raises:
            UsageError: This is no event.
        """
        if self._phase == NEW:
            return self._refuse_unstarted(event, data)
        lanes = self._lanes
        if data or type(event) is not str:
            given = Event(event, data) if data and isinstance(event, str) else as_event(event)
        else:
            given = self.chart.events.get(event) or as_event(event)
        if running_loop() is not lanes.loop:
            return self._cross(given)
        lanes.until_sample -= 1
        if not lanes.until_sample:
            lanes.until_sample = SAMPLE_EVERY
            return self._accept(Sampled(given, lanes.time()))
        if self._phase == IDLE:
            self._phase = READY
            self._next = given
            lanes.join(self)
            return ACCEPTED
        mailbox: Any = self._mailbox
        if mailbox and self._extra is None and len(mailbox) < self._rule.limit:
            # It was running when its first mail came, and its end would have emptied this.
            mailbox.append(given)
            return ACCEPTED
        return self._accept(given)

    def _refuse_unstarted(self, event: EventLike, data: dict[str, Any]) -> Acceptance:
        given = as_event({"type": event, **data} if data else event)
        error = self._absence()
        self.group.orchestrator.write_off(self.id, self.group, given, error)
        return Refused(error)

    def _cross(self, event: Event) -> Acceptance:
        arrival: Future[None] = Future()
        try:
            self._lanes.post(lambda: tell(arrival, self._accept(event)))
        except RuntimeError:
            error = UnknownTarget(self.id, "its event loop is closed")
            self.group.orchestrator.write_off(self.id, self.group, event, error)
            return Refused(error)
        return Crossing(arrival)

    async def request(
        self,
        event: EventLike,
        /,
        *,
        timeout: Duration = REQUEST_TIMEOUT_S,
        run_late: bool = False,
        **data: Any,
    ) -> Snapshot:
        """Give it an event, and wait for the snapshot that follows: ``await m.request("PAY")``.

        The answer comes when the event's actions are done, also those that await something. An
        action may request its own machine, or one that waits for it: that is handled at once.

        An event that has not begun when ``timeout`` passes, or when the caller is cancelled, is
        never handled, unless ``run_late`` is true. One that has begun goes on.

        Raises:
            RequestTimeout: No answer came in time; ``begun`` tells whether it is being handled.
            UnknownTarget: The machine does not run. Nothing was handled.
            MailboxFull: It has too much mail. Nothing was handled.
            GroupReleased: The group was released meanwhile. It may have been handled.
            Exception: Whatever a decision, which then changed nothing, or an action raised.
        """
        timeout_s = seconds(timeout, "timeout")
        given = Event(event, data) if data and isinstance(event, str) else as_event(event)
        if self._phase == NEW:
            raise self._absence()
        request = Request(given, run_late=run_late)
        loop = asyncio.get_running_loop()
        if loop is self._lanes.loop:
            self._arrive(request)
        else:
            try:
                self._lanes.post(self._arrive, request)
            except RuntimeError:
                raise UnknownTarget(self.id, "its event loop is closed") from None
        timer = loop.call_later(timeout_s, self._time_out, request, timeout_s)
        try:
            return await request.answer
        except asyncio.CancelledError:
            request.give_up()
            raise
        finally:
            timer.cancel()

    def _time_out(self, request: Request, timeout_s: float) -> None:
        if request.answer.done():
            return
        begun = not request.give_up()
        if running_loop() is self._lanes.loop:
            self._count_timeout()
        elif not self._lanes.loop.is_closed():
            self._lanes.post(self._count_timeout)
        request.resolve(RequestTimeout(self.id, request.event.type, timeout_s, begun=begun))

    def _count_timeout(self) -> None:
        self._lanes.counts.timeouts += 1

    # -- others ---------------------------------------------------------------------------------

    def peer(self, name: str) -> Machine | None:
        """The machine that ``name`` means to this one: in its own group, or in a linked one.

        Raises:
            UnknownTarget: Several machines of the group share that name.
        """
        return self.group.reach(name)


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the end of cancelled actions; what they raise on the way is their own affair."""
    if tasks:
        await asyncio.wait(tasks, timeout=ACTION_END_S)
