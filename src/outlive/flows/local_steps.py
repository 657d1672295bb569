"""The local steps of one flow on its host: those that run, and those that are to begin.

Owns what becomes of a step that the flow has called: it runs at once, waits for its turn to have a
transaction, or is held until the flow goes on. Nothing is told of a step that was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outlive.flows.decision import StepTask
from outlive.flows.executing import Executor
from outlive.flows.step_run import StepOwner, StepRun


class LocalSteps:
    """By their identity: ``running`` here, ``transactions`` that wait, and what is held."""

    __slots__ = ("_executor", "_held", "running", "transactions")

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.running: dict[str, StepRun] = {}
        # One at a time, as each is a commit of its flow.
        self.transactions: list[StepTask] = []
        self._held: list[StepTask] = []

    @property
    def any(self) -> bool:
        """Whether there are steps that run, or are to."""
        return bool(self.running or self._held or self.transactions)

    @property
    def to_begin(self) -> bool:
        """Whether there are steps that were called and do not run yet."""
        return bool(self._held or self.transactions)

    def start(self, owner: StepOwner, calls: Sequence[StepTask], *, hold: bool) -> None:
        """Let these run for ``owner``, after those that were held.

        ``hold``: keep them back, but for those with ``once``. Their intent is recorded: the next
        host could not tell that they have not begun.
        """
        if hold:
            self._held += [call for call in calls if not call.step.options.once]
            calls = [call for call in calls if call.step.options.once]
        elif self._held:
            calls = (*self._held, *calls)
            self._held = []
        for call in calls:
            if call.step.options.transactional:
                self.transactions.append(call)
            else:
                self.running[call.identity] = run = self._executor.prepare(owner, call)
                self._executor.begin(run)

    def stop(self, identities: Iterable[str]) -> None:
        """Nobody waits for these any more. Repeatable."""
        to_begin: set[str] = set()
        for identity in identities:
            run = self.running.pop(identity, None)
            if run is None:
                to_begin.add(identity)
            else:
                self._executor.stop(run)
        if to_begin:
            self._held = [call for call in self._held if call.identity not in to_begin]
            self.transactions = [
                call for call in self.transactions if call.identity not in to_begin
            ]

    def stop_running(self) -> None:
        """Stop all that run, and those that wait for their turn. Repeatable."""
        for run in self.running.values():
            self._executor.stop(run)
        self.running.clear()

    def forget(self) -> None:
        """Stop all that run, and begin none of the others. Repeatable."""
        self.stop_running()
        self._held.clear()
        self.transactions.clear()
