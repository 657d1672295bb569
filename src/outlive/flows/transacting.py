"""Transacting: a step and its record in one transaction of the store, or neither.

Owns what becomes of such a step: what it raises rolls back and goes to its retry policy; a reply
that is lost is looked up in the history before anything is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from outlive.errors import InvalidPayload, OutcomeUnknown, StoreError, UsageError
from outlive.flows.arguments import Call, encoded
from outlive.flows.events import StepEnded, decode_events
from outlive.flows.step_run import StepRun
from outlive.model.instance import Commit, Committed, HistoryRow
from outlive.model.retry import Later
from outlive.runtime.running_loop import replace_running_loop, restore_running_loop
from outlive.work.current import running
from outlive.work.repeating import while_held

if TYPE_CHECKING:
    from outlive.flows.activation import LiveFlow
    from outlive.flows.decision import StepTask
    from outlive.flows.household import Household

# What the code of a step may raise: all but the end of a coroutine that is thrown away.
_RAISED = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt, Later)


async def transact(home: Household, live: LiveFlow, call: StepTask) -> None:
    """Run the step, and tell its flow what became of it."""
    run = StepRun(live, call, home.host, home.log)
    transaction = _Transaction(home, live, run)

    async def attempt() -> Committed:
        try:
            return await home.store.transact(live.id, transaction.body)
        except OutcomeUnknown:
            if transaction.event is None:
                # It had not come to its commit.
                raise
            found = await transaction.look_up()
            if found is None:
                raise
            return found

    try:
        answer = await while_held(home.runtime, live.session, attempt)
    except StoreError:
        home.lost(live, fenced=True)
    except _RAISED as error:
        if not live.session.held:
            home.lost(live, fenced=True)
            return
        live.not_transacted(home.executor.failure(run, error))
    else:
        # The store runs its body no more: cut apart, both are freed at once.
        del run.current
        event, commit = transaction.event, transaction.commit
        if answer.ok and event is not None and commit is not None:
            live.transacted(event, commit, answer)
        else:
            home.lost(live, fenced=True)


class _Transaction:
    """The attempts of one step inside transactions."""

    def __init__(self, home: Household, live: LiveFlow, run: StepRun) -> None:
        self._home = home
        self._live = live
        self._run = run
        self.event: StepEnded | None = None
        self.commit: Commit | None = None

    def body(self, tx: Any) -> Any:
        """Run the step with the transaction's connection, and say what to commit with it."""
        self.event = None
        run = self._run
        run.current.tx = tx
        called = run.call.arguments()
        if run.call.step.is_async:
            return self._awaited(called)
        context = copy_context()
        context.run(running.set, run.current)
        clock, timeout_s = self._home.runtime.clock, run.call.step.options.timeout_s
        began = clock.monotonic()
        result = context.run(self._called, called)
        if timeout_s is not None and clock.monotonic() - began > timeout_s:
            # Nothing can interrupt it; it has failed all the same, and is rolled back.
            raise _too_long(timeout_s)
        return self._commit(result)

    async def _awaited(self, called: Call) -> Commit:
        run = self._run
        timeout_s = run.call.step.options.timeout_s
        limit = asyncio.timeout(timeout_s)
        token = running.set(run.current)
        try:
            async with limit:
                result = await self._home.executor.wrapped(run, partial(self._function, called))
        except TimeoutError as error:
            if timeout_s is None or not limit.expired():
                raise
            raise _too_long(timeout_s) from error
        finally:
            running.reset(token)
        return self._commit(result)

    def _function(self, called: Call) -> Any:
        # A host that was paused while it waited for its turn, or for a middleware, begins nothing
        # that another host may run already.
        self._run.check()
        return self._run.call.step.function(*called[0], **called[1])

    def _called(self, called: Call) -> Any:
        """What a synchronous step returns, inside of everything that is put around it."""
        executor = self._home.executor
        if not executor.wraps:
            return self._function(called)

        async def innermost() -> Any:
            return self._function(called)

        return _at_once(executor.wrapped(self._run, innermost))

    def _commit(self, result: Any) -> Commit:
        live, call = self._live, self._run.call
        raw = encoded(result, f"the result of step {call.step.name}")
        # What is committed with the transaction is what the flow sees now and at every replay: a
        # result that does not fit its type must be found out before.
        try:
            call.step.arguments.decode_result(raw)
        except InvalidPayload as invalid:
            raise InvalidPayload(f"the result of step {call.step.name}: {invalid}") from invalid
        self.event = StepEnded(
            at=self._home.clock.now_us(),
            step=call.identity,
            input=call.input,
            result=raw,
            attempt=call.attempt,
            ahead=True,
        )
        self.commit = live.row.beside(due_at_us=live.run.due_at_us, events=(self.event,), kind=".t")
        return self.commit

    async def look_up(self) -> Committed | None:
        """Whether the transaction whose reply was lost was committed, read from the history."""
        live = self._live

        async def read() -> Any:
            return await self._home.store.history(live.id, after=live.row.version, limit=1)

        rows: list[HistoryRow] = list(await while_held(self._home.runtime, live.session, read))
        if not rows:
            return None
        row = rows[0]
        ours = row.token == live.row.token and decode_events(row.events) == [self.event]
        return Committed(ok=ours, at_us=row.at_us, repeated=True)


class _Busy(asyncio.AbstractEventLoop):
    """In place of an event loop while the store's writer is held: nothing can be waited for."""

    def get_debug(self) -> bool:
        """Never."""
        return False


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise UsageError(
        "a middleware awaited something other than the call around a synchronous transactional "
        "step, which holds the store's writer: await nothing but the call, or write the step as "
        "`async def` if the backend supports that"
    )


for _name in ("create_future", "create_task", "call_soon", "call_later", "run_in_executor", "time"):
    setattr(_Busy, _name, _refuse)


def _at_once(body: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for.

    Raises:
        UsageError: It waits.
    """
    outer = replace_running_loop(_Busy())
    try:
        body.send(None)
    except StopIteration as ended:
        return ended.value
    finally:
        restore_running_loop(outer)
    body.close()
    _refuse()


def _too_long(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"the step did not end within {timeout_s:g} s")
