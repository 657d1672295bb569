"""``Step``: a function with effects, whose end is recorded in the flow that called it.

A value of the ``App``'s registry; needs no connection. Called by flow code it is scheduled, and
what it returns is awaited; called by anything else it is the plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, cast

from outlive.errors import UsageError
from outlive.flows.arguments import Arguments
from outlive.flows.calls import StepCall
from outlive.flows.loop import FlowLoop
from outlive.model.options import Duration, seconds
from outlive.model.retry import Retry
from outlive.names import check_key, check_queue
from outlive.runtime.running_loop import running_loop
from outlive.work.handler import CONCURRENCY_MAX, count_of

P = ParamSpec("P")
R = TypeVar("R")

# A flow sees each failure and decides, unless the step says that it may be tried again.
_NO_RETRY = Retry(max_attempts=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step runs; see ``App.step``."""

    retry: Retry = _NO_RETRY
    retry_for_s: float | None = None
    timeout_s: float | None = None
    heartbeat_s: float | None = None
    queue: str | None = None
    once: bool = False
    transactional: bool = False
    concurrency: int | None = None
    errors: tuple[type[Exception], ...] = ()


class Step(Generic[P, R]):
    """A step of flows. Made by ``App.step``."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]] | Callable[P, R],
        *,
        name: str | None = None,
        options: StepOptions,
    ) -> None:
        if not callable(function):
            raise UsageError(
                "app.step must decorate a function or be given options such as name=…, not "
                f"{cast('object', function)!r}"
            )
        known = getattr(function, "__name__", "")
        # All of them are called so, and a history could not tell one from another.
        if not name and known == "<lambda>":
            raise UsageError('a lambda has no name: write app.step(name="…")(lambda …), or a `def`')
        self.name = check_definition(name or known, "step")
        self.function = function
        self.options = options
        called = cast("Any", getattr(type(function), "__call__", None))  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self.arguments = Arguments(function, f"step {self.name}")
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R]:
        """In flow code: schedule it, and return what to await. Elsewhere: call the function.

        A call is an execution: called five times it runs five times, whatever the arguments.

        Raises:
            UsageError: In flow code, the arguments cannot be stored as JSON.
        """
        # As ``running_flow`` finds it out.
        loop = running_loop()
        if type(loop) is not FlowLoop:
            return cast("Any", self.function(*args, **kwargs))
        return loop.owner.asking.step(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<Step {self.name!r}>"


def check_definition(name: object, kind: str) -> str:
    """``name`` if a step or a flow may have it.

    Raises:
        InvalidName, UsageError: It breaks the rules for names, or holds a ``#``.
    """
    checked = check_key(cast("str", name), f"the name of a {kind}")
    # Identities are a name, a # and a number, and ids of children are made of them.
    if "#" in checked:
        raise UsageError(f"the name of a {kind} must not contain '#': {checked!r}")
    return checked


def check_queue_mates(step: Step[..., Any], others: Iterable[Step[..., Any]]) -> None:
    """Look whether the steps of one queue, which share its slots, agree on their number.

    Raises:
        UsageError: They do not.
    """
    wanted = step.options.concurrency
    for other in others:
        said = other.options.concurrency
        if (
            other.options.queue == step.options.queue is not None
            and None not in (said, wanted)
            and said != wanted
        ):
            raise UsageError(
                f"the steps of queue {step.options.queue!r} share the same slots, but "
                f"{other.name!r} has concurrency={said} and {step.name!r} has "
                f"concurrency={wanted}: give both the same number, or a queue of its own to each"
            )


def step_options(  # noqa: PLR0913 - the options are the public promise
    *,
    retry: Retry | None = None,
    retry_for: Duration | None = None,
    timeout: Duration | None = None,
    heartbeat: Duration | None = None,
    queue: str | None = None,
    once: bool = False,
    transactional: bool = False,
    concurrency: int | None = None,
    errors: tuple[type[Exception], ...] = (),
) -> StepOptions:
    """The options of a step, checked.

    Raises:
        UsageError: One of them is wrong, or two of them contradict each other.
    """
    if retry is not None and not isinstance(cast("object", retry), Retry):
        raise UsageError(f"retry must be an outlive.Retry, not {retry!r}")
    if transactional and (queue is not None or once):
        raise UsageError(
            "a transactional step runs on the host of its flow and commits once: drop queue= and "
            "once="
        )
    if once:
        _check_once(retry, queue, concurrency)
    if transactional and heartbeat is not None:
        raise UsageError(
            "a transactional step holds a transaction and must be short: give it timeout= instead "
            "of heartbeat="
        )
    if transactional and concurrency is not None:
        raise UsageError(
            "the connections of the store limit the concurrency of transactional steps: drop "
            "concurrency=, or use an ordinary step for work that must be limited"
        )
    if retry_for is not None and queue is None and (retry is None or retry.max_attempts == 1):
        raise UsageError("retry_for= is a limit of retry=: give both, or timeout= for one attempt")
    for kind in cast("tuple[object, ...]", errors):
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError(f"errors= must contain exception classes, not {kind!r}")
    return StepOptions(
        retry=retry or _NO_RETRY,
        retry_for_s=None if retry_for is None else seconds(retry_for, "retry_for", zero=False),
        timeout_s=None if timeout is None else seconds(timeout, "timeout", zero=False),
        heartbeat_s=None if heartbeat is None else seconds(heartbeat, "heartbeat", zero=False),
        queue=None if queue is None else check_queue(queue),
        once=once,
        transactional=transactional,
        concurrency=None
        if concurrency is None
        else count_of(concurrency, "concurrency", CONCURRENCY_MAX),
        errors=tuple(errors),
    )


def _check_once(retry: Retry | None, queue: str | None, concurrency: int | None) -> None:
    if retry is not None and retry.max_attempts > 1:
        raise UsageError("a step with once=True never runs twice: drop retry=, or drop once=True")
    if queue is not None:
        raise UsageError(
            "a step with queue= may run twice when a host is lost: drop once=True, or drop queue="
        )
    if concurrency is not None:
        raise UsageError(
            "a step with once=True is recorded as begun before it could wait for a free slot: drop "
            "concurrency=, and limit the calls in the flow with an asyncio.Semaphore"
        )
