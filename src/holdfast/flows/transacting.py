"""Transacting: a step and its record in one transaction of the store, or neither.

Owns what becomes of such a step: what it raises rolls back and goes to its retry policy; a reply
that is lost is looked up in the history before anything is tried again.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.flows.arguments import encoded, text_of
from holdfast.flows.events import StepEnded, decode_events, encode_events
from holdfast.flows.step_run import StepRun
from holdfast.model.instance import Commit, Committed, HistoryRow
from holdfast.work.current import running
from holdfast.work.repeating import while_held

if TYPE_CHECKING:
    from holdfast.flows.activation import LiveFlow
    from holdfast.flows.decision import StepTask
    from holdfast.flows.household import Household


async def transact(home: Household, live: LiveFlow, call: StepTask) -> None:
    """Run the step, and tell its flow what became of it."""
    transaction = _Transaction(home, live, StepRun(live, call, home.host, home.log))

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
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - the step's
        live.not_transacted(home.executor.failure(call, error))
    else:
        if answer.ok and transaction.event is not None:
            live.transacted(transaction.event, answer)
        else:
            home.lost(live, fenced=True)


class _Transaction:
    """The attempts of one step inside transactions."""

    def __init__(self, home: Household, live: LiveFlow, run: StepRun) -> None:
        self._home = home
        self._live = live
        self._run = run
        self.event: StepEnded | None = None

    def body(self, tx: Any) -> Any:
        """Run the step with the transaction's connection, and say what to commit with it."""
        self.event = None
        self._run.current.tx = tx
        context = copy_context()
        context.run(running.set, self._run.current)
        args, kwargs = self._run.call.arguments()
        result = context.run(self._run.call.step.function, *args, **kwargs)
        if inspect.isawaitable(result):
            return self._awaited(result)
        return self._commit(result)

    async def _awaited(self, result: Any) -> Commit:
        token = running.set(self._run.current)
        try:
            return self._commit(await result)
        finally:
            running.reset(token)

    def _commit(self, result: Any) -> Commit:
        live, call = self._live, self._run.call
        raw = encoded(result, f"the result of step {call.step.name}")
        # What is committed with the transaction is what the flow sees now and at every replay: a
        # result that does not fit its type must be found out before.
        call.step.arguments.returns.decode(text_of(raw))
        self.event = StepEnded(
            at=self._home.clock.now_us(),
            step=call.identity,
            input=call.input,
            result=raw,
            attempt=call.attempt,
            ahead=True,
        )
        return Commit(
            id=live.id,
            token=live.token,
            version=live.version + 1,
            commit=f"{live.token}.{live.version + 1}.t",
            events=encode_events((self.event,)),
            due_at_us=live.run.due_at_us,
        )

    async def look_up(self) -> Committed | None:
        """Whether the transaction whose reply was lost was committed, read from the history."""
        live = self._live

        async def read() -> Any:
            return await self._home.store.history(live.id, after=live.version, limit=1)

        rows: list[HistoryRow] = list(await while_held(self._home.runtime, live.session, read))
        if not rows:
            return None
        row = rows[0]
        ours = row.token == live.token and decode_events(row.events) == [self.event]
        return Committed(ok=ours, at_us=row.at_us)
