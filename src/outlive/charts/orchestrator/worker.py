"""How a machine of the orchestrator handles its mail: one piece at a time, in order, in its lane.

Owns the mailbox and the phases. Everything here runs in the thread of the machine's own loop. A
piece of mail is handled once, or it is answered for: with an error for a sender who waits, with a
dead letter or a count for one who does not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Literal

from outlive.charts.effects import Effect
from outlive.charts.events import Event
from outlive.charts.interpreter import (
    BUSY,
    ENDED,
    IDLE,
    NEW,
    WAITING,
    Interpreter,
    Item,
    close_after,
)
from outlive.charts.orchestrator.acceptance import ACCEPTED, Acceptance, Refused
from outlive.charts.orchestrator.lanes import Lanes
from outlive.charts.orchestrator.options import MailboxRule
from outlive.charts.orchestrator.requests import (
    CHAIN,
    Halt,
    Held,
    Mail,
    Request,
    Sampled,
    combined,
    event_of,
    waits,
)
from outlive.charts.snapshot import Snapshot
from outlive.errors import ChartError, GroupReleased, MailboxFull, UnknownTarget
from outlive.runtime.running_loop import running_loop

if TYPE_CHECKING:
    from outlive.charts.orchestrator.group import Group

# In a lane, with mail to handle.
READY = 5

# Put in the place of a request by the action that took it over.
_TAKEN: Any = object()


class Extra:
    """What only few machines have at any time: senders in line, actions that await, an end near."""

    __slots__ = ("line", "running", "stopping")

    def __init__(self) -> None:
        self.line: deque[tuple[Mail, asyncio.Future[None] | None]] = deque()
        self.running: dict[asyncio.Task[None], Held] = {}
        self.stopping = False


class Worker(Interpreter):
    """The working half of a machine; ``Machine`` is the half that users see."""

    __slots__ = ("_answering", "_extra", "_lanes", "_next", "_rule", "base", "group")

    group: Group
    base: str
    _lanes: Lanes
    _next: Mail | None
    _rule: MailboxRule
    _extra: Extra | None
    _answering: Request | Held | None

    # -- mail comes in --------------------------------------------------------------------------

    def deliver(self, item: Item) -> None:
        """Take mail from a timer, a child or another machine, in any thread.

        Raises:
            MailboxFull, UnknownTarget, GroupReleased: It was not taken.
        """
        if running_loop() is not self._lanes.loop:
            try:
                self._lanes.post(self._deliver_late, item)
            except RuntimeError:
                raise UnknownTarget(self.id, "its event loop is closed") from None
        elif event_of(item) is None:
            self._push(item)
        else:
            outcome = self._accept(item)
            if isinstance(outcome, Refused):
                raise outcome.error

    def _deliver_late(self, item: Item) -> None:
        # Its sender is in another thread and has gone on: the dead letter tells of a refusal.
        if event_of(item) is None:
            self._push(item)
        else:
            self._accept(item)

    def _push(self, item: Mail) -> None:
        """Take the machine's own news, which no limit may keep away from it."""
        if self._phase == IDLE:
            self._phase = READY
            self._next = item
            self._lanes.join(self)
        elif self._phase not in (NEW, ENDED):
            if self._mailbox is None:
                self._mailbox = deque()
            self._mailbox.append(item)  # pyright: ignore[reportArgumentType]

    def _accept(self, item: Mail) -> Acceptance:
        """Take mail from a sender, or refuse it."""
        phase = self._phase
        if phase == IDLE:
            self._phase = READY
            self._next = item
            self._lanes.join(self)
            return ACCEPTED
        if phase in (NEW, ENDED) or (self._extra is not None and self._extra.stopping):
            return self._refuse(item, self._absence())
        mailbox: deque[Any] | None = self._mailbox
        if mailbox is None:
            mailbox = self._mailbox = deque()
        if len(mailbox) >= self._rule.limit:
            return self._overflow(item, mailbox)
        mailbox.append(item)
        return ACCEPTED

    def _overflow(self, item: Mail, mailbox: deque[Any]) -> Acceptance:
        rule = self._rule
        self._lanes.counts.throttled += 1
        if rule.policy == "drop-oldest":
            for index, old in enumerate(mailbox):
                if event_of(old) is not None:
                    del mailbox[index]
                    self._discard(old, MailboxFull(self.id, rule.limit))
                    break
            mailbox.append(item)
            return ACCEPTED
        extra = self._extras()
        if rule.policy == "reject" or len(extra.line) >= rule.limit:
            return self._refuse(item, MailboxFull(self.id, rule.limit))
        room: asyncio.Future[None] = self._lanes.loop.create_future()
        extra.line.append((item, room))
        return room

    def _refuse(self, item: Mail, error: Exception) -> Refused:
        if isinstance(item, Request):
            if item.claim():
                item.resolve(error)
        elif isinstance(item, Halt):
            item.done.set_result(None)
        else:
            event = event_of(item)
            if event is not None:
                self._lanes.counts.dead_letters += 1
                self.group.orchestrator.letters.add(self.id, self.group.name, event, str(error))
        return Refused(error)

    def _discard(self, item: Mail, error: Exception) -> None:
        """Drop mail that was accepted."""
        if isinstance(item, Request):
            if item.claim():
                self._lanes.counts.discarded += 1
                item.resolve(error)
        elif isinstance(item, Halt):
            if not item.done.done():
                item.done.set_result(None)
        elif event_of(item) is not None:
            self._lanes.counts.discarded += 1

    def _absence(self) -> Exception:
        if self.group.released:
            return GroupReleased(self.group.name)
        detail = "it was not started" if self._phase == NEW else "it has ended"
        return UnknownTarget(self.id, detail)

    def _extras(self) -> Extra:
        if self._extra is None:
            self._extra = Extra()
        return self._extra

    # -- mail is handled ------------------------------------------------------------------------

    def work(self, limit: int) -> int:  # noqa: C901, PLR0912 - every event passes; a call costs
        """Handle up to ``limit`` pieces of mail, and give how many. For the lanes alone."""
        if self._phase != READY:
            return 0
        self._phase = BUSY
        item: Any = self._next
        self._next = None
        plain = self.environment.inspect is None
        step = self.chart.step
        lanes = self._lanes
        handled = 0
        while True:
            if item is None:
                mailbox = self._mailbox
                if not mailbox:
                    break
                item = mailbox.popleft()
                if self._extra is not None and self._extra.line:
                    self._admit(mailbox, self._extra.line)
            handled += 1
            if type(item) is Event and plain and self._listeners is None and self._deferred is None:
                try:
                    snapshot, effects = step(self.snapshot, item)
                except Exception as error:  # noqa: BLE001 - on_error hears of it
                    self._conclude(None, self.snapshot, self._fault(error, self.environment.faults))
                else:
                    if effects:
                        self._answering = None
                        errors = self._take(snapshot, effects, item, None)
                        if errors and self._answering is not _TAKEN:
                            self._conclude(None, snapshot, errors)
                    else:
                        # Nothing of the user ran, so that nothing can have taken long.
                        self.snapshot = snapshot
                        if handled >= limit:
                            break
                        item = None
                        continue
            else:
                self._serve(item)
            lanes.late = lanes.time() >= lanes.until
            if self._phase != BUSY:
                return handled
            if handled >= limit or lanes.late:
                break
            item = None
        self._settle()
        return handled

    def recover(self, error: BaseException) -> None:
        """Go on after something broke out of ``work``: what ends a program need not end this."""
        request, self._answering = self._answering, None
        if isinstance(request, Request):
            request.resolve(error)
        if self._phase == BUSY:
            self._settle()

    def _settle(self) -> None:
        if self._mailbox:
            self._phase = READY
            self._lanes.join(self)
        else:
            self._phase = IDLE
            self._mailbox = None

    def _admit(self, mailbox: deque[Any], line: deque[Any]) -> None:
        """Let the first in line have the room that there is now."""
        item, room = line.popleft()
        mailbox.append(item)
        if room is not None and not room.done():
            room.set_result(None)

    def _arrive(self, request: Request) -> None:
        """Take a request; at once if this machine waits for whoever sent it."""
        if self._phase == WAITING and waits(self, request.chain):
            self._lanes.counts.handled += 1
            # What it starts is no part of the chain.
            Context().run(self._serve, request)
        else:
            self._accept(request)

    def _serve(self, item: Any) -> None:
        """Handle one piece of mail of any kind."""
        request: Request | None = None
        if isinstance(item, Sampled):
            sent_at, item = item.sent_at, item.event
            self._lanes.counts.latency.add(max(0.0, self._lanes.time() - sent_at))
        elif isinstance(item, Request):
            if not item.claim():
                self._lanes.counts.skipped += 1
                return
            request = item
            item = item.event
        elif isinstance(item, Halt):
            self._lanes.counts.skipped += 1
            self.halt(self._absence_after_stop())
            if not item.done.done():
                item.done.set_result(None)
            return
        self._answering = request
        errors = self._handle(item)
        if self._answering is not _TAKEN:
            self._answering = None
            self._conclude(request, self.snapshot, errors)

    def _conclude(
        self, request: Request | None, snapshot: Snapshot, errors: Sequence[BaseException]
    ) -> None:
        """Answer for one event: the sender, ``on_error``, the numbers."""
        counts = self._lanes.counts
        if errors:
            counts.failed += 1
            if request is None or not request.faulted:
                for error in errors:
                    self.environment.on_error(self, error)
        if request is not None:
            counts.latency.add(max(0.0, self._lanes.time() - request.sent_at))
            request.resolve(combined(self.id, errors) if errors else snapshot)

    def _fault(self, error: Exception, policy: Literal["fail", "keep"]) -> list[BaseException]:
        if isinstance(self._answering, Request):
            self._answering.faulted = True
        return super()._fault(error, policy)

    # -- actions that await ---------------------------------------------------------------------

    def _wait(
        self, waiting: Awaitable[Any], remaining: list[Effect], errors: list[BaseException]
    ) -> None:
        """Leave the lane until ``waiting`` is done; the effects behind it are done then."""
        held = self._answering
        if not isinstance(held, Held):
            held = Held(self, held, errors, outer=self._phase == BUSY)
        self._answering = _TAKEN
        context = copy_context()
        context.run(CHAIN.set, held.chain)
        task = self._lanes.loop.create_task(
            self._go_on(waiting, remaining, held),
            name=f"outlive machine {self.id}",
            context=context,
        )
        close_after(task, waiting)
        running = self._extras().running
        running[task] = held
        task.add_done_callback(lambda task: running.pop(task, None))
        if self._phase == BUSY:
            self._phase = WAITING
        if held.outer:
            self._task = task

    async def _go_on(self, waiting: Awaitable[Any], remaining: list[Effect], held: Held) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await waiting
        except asyncio.CancelledError:
            if task.cancelling():
                raise
            # Nobody cancelled this machine: something that the action awaited was cancelled.
            held.errors.append(ChartError(f"an action of machine {self.id!r} was cancelled"))
        except Exception as error:  # noqa: BLE001 - the sender gets it, whatever it is
            held.errors.append(error)
        if held.over:
            return
        self._answering = held
        # Not in the context of this task: what an effect starts is no part of the chain.
        Context().run(self._perform, remaining, held.errors)
        if self._answering is _TAKEN:
            return
        self._answering = None
        held.over = True
        if held.outer:
            # What was handled inside this wait belongs to it.
            running = self._extras().running
            while others := [other for other in running if other is not task]:
                await asyncio.wait(others)
        self._conclude(held.request, held.snapshot, held.errors)
        if held.outer and self._phase == WAITING:
            self._task = None
            self._settle()

    # -- the end --------------------------------------------------------------------------------

    def _shut(self) -> None:
        """No mail is handled from now on; whoever waits for an answer gets one."""
        mailbox: list[Any] = [] if self._next is None else [self._next]
        mailbox += self._mailbox or ()
        self._next = None
        if self._phase not in (NEW, ENDED):
            self._lanes.counts.active -= 1
        super()._shut()
        reason = self._absence()
        for item in mailbox:
            self._discard(item, reason)
        for item, room in self._extra.line if self._extra is not None else ():
            self._discard(item, reason)
            if room is not None and not room.done():
                room.set_exception(reason)
                room.exception()
        if self._extra is not None:
            self._extra.line.clear()

    def halt(self, reason: Exception) -> list[asyncio.Task[None]]:
        """End at once: timers, services, children, mail, actions that await.

        Whoever waits for the answer to something that an action was busy with gets ``reason``. The
        result is the cancelled actions, for those who want to see them end.
        """
        if self._phase not in (NEW, ENDED):
            self._end()
        cancelled: list[asyncio.Task[None]] = []
        if self._extra is not None:
            own = asyncio.current_task() if running_loop() else None
            for task, held in list(self._extra.running.items()):
                held.over = True
                if held.request is not None:
                    held.request.resolve(reason)
                # A task of a loop that was closed never goes on, and cannot be told.
                if task is not own and not self._lanes.loop.is_closed():
                    task.cancel()
                    cancelled.append(task)
        return cancelled

    def _absence_after_stop(self) -> Exception:
        return UnknownTarget(self.id, "it was stopped")
