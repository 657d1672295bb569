"""``Handler``: a function that runs the jobs of one queue, and how it wants to run.

A value of the ``App``'s registry; needs no connection. Calling it calls the plain function.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from outlive.errors import UsageError
from outlive.model.job import MAX_LOSSES
from outlive.model.options import Duration, seconds
from outlive.model.retry import Retry
from outlive.names import check_queue
from outlive.serialization import Codec, codec_of

In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)

# One process that runs more at once is better served by a second process.
CONCURRENCY_MAX = 10_000

# The numbers of a limit must fit every backend.
LIMIT_MAX = 1_000_000_000

Rate = int | tuple[int, Duration]
"""So many in a second, or ``(so many, in so long)``."""


_DEFAULT_RETRY = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How a handler runs; see ``App.handler``.

    Of failures of the classes ``errors`` the arguments are kept, for who rebuilds them.
    """

    concurrency: int = 10
    timeout_s: float | None = None
    retry: Retry = _DEFAULT_RETRY
    max_losses: int = MAX_LOSSES
    queue_concurrency: int | None = None
    rate: tuple[int, float] | None = None
    concurrency_key: Callable[[Any], str | None] | None = None
    key_concurrency: int = 1
    errors: tuple[type[Exception], ...] = ()


class Handler(Generic[In_contra, Out_co]):
    """A function that runs the jobs of one queue. Made by ``App.handler``."""

    def __init__(
        self,
        function: Callable[[In_contra], Awaitable[Out_co] | Out_co],
        queue: str,
        options: HandlerOptions,
    ) -> None:
        self.function = function
        self.queue = check_queue(queue)
        self.options = options
        self.name = getattr(function, "__name__", queue)
        self.is_async = _is_async(function)
        self._parameter = _one_parameter(function, self.queue)
        self._codecs: tuple[Codec, Codec] | None = None

    def __call__(self, payload: In_contra) -> Any:
        """Call the function itself, as a test does; no job is involved."""
        return self.function(payload)

    def __repr__(self) -> str:
        return f"<Handler {self.name!r} of queue {self.queue!r}>"

    @property
    def takes(self) -> Codec:
        """What decodes the payload."""
        return self._resolved()[0]

    @property
    def returns(self) -> Codec:
        """What decodes the result."""
        return self._resolved()[1]

    def _resolved(self) -> tuple[Codec, Codec]:
        # Not when it is defined: its types may stand further down in the module.
        if self._codecs is None:
            function = self.function
            plain = function if inspect.isroutine(function) else type(function).__call__
            try:
                hints = typing.get_type_hints(plain, include_extras=True)
            except NameError as error:
                raise UsageError(
                    f"{self!r}: its annotated types cannot be resolved ({error}); define the "
                    "types at the top level of the module"
                ) from error
            takes = hints.get(self._parameter, Any)
            returns = hints.get("return", Any)
            try:
                self._codecs = (codec_of(takes), codec_of(Any if returns is None else returns))
            except UsageError as error:
                raise UsageError(f"{self!r}: {error}") from error
        return self._codecs


def _is_async(function: Callable[..., Any]) -> bool:
    called = cast("Any", getattr(type(function), "__call__", None))  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _one_parameter(function: Callable[..., Any], queue: str) -> str:
    """The name of the parameter that takes the payload.

    Raises:
        UsageError: The function does not take exactly one.
    """
    if not callable(function):
        raise UsageError(f"the handler of queue {queue!r} must be a function, not {function!r}")
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(function).parameters.values())
    wanted = [each for each in parameters if each.kind in positional]
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    if not wanted or any(each is not wanted[0] for each in needed):
        raise UsageError(
            f"the handler of queue {queue!r} must take one argument, the payload: write `def "
            f"{getattr(function, '__name__', 'handle')}(payload)`"
        )
    if len(parameters) > 1:
        raise UsageError(
            f"the handler of queue {queue!r} takes one payload, so its parameter "
            f"{parameters[1].name!r} can never be given: make it part of the payload, such as a "
            "dataclass, or leave it out"
        )
    return wanted[0].name


def check_handled(queue: str) -> str:
    """Return ``queue`` if ``@app.handler`` may be given it.

    Raises:
        UsageError: It is the function itself: the decorator stands without its queue.
        InvalidName: It may name no queue.
    """
    if callable(queue):
        raise UsageError(
            'a handler needs the name of its queue: write @app.handler("queue") instead of '
            "@app.handler"
        )
    return check_queue(queue)


def check_target(target: str) -> str:
    """Return ``target`` if it may name the queue of a job; of a handler the queue is known.

    Raises:
        UsageError: It is a plain function.
        InvalidName: It may name no queue.
    """
    if callable(target):
        name = getattr(target, "__name__", repr(target))
        raise UsageError(f"{name!r} is not a handler: define it with @app.handler(…)")
    return check_queue(target)


def count_of(value: object, what: str, most: int) -> int:
    """``value`` if it is a count.

    Raises:
        UsageError: It is no whole number from 1 to ``most``.
    """
    if type(value) is not int or not 1 <= value <= most:
        raise UsageError(f"{what} must be a whole number from 1 to {most:,}, not {value!r}")
    return value


def rate_of(rate: Rate) -> tuple[int, float]:
    """A rate as a count and the seconds it is for.

    Raises:
        UsageError: It is none.
    """
    if isinstance(rate, tuple):
        if len(rate) != 2:  # noqa: PLR2004
            raise UsageError(f"rate must be a count per second, or (count, seconds), not {rate!r}")
        count, per = rate
    else:
        count, per = rate, 1.0
    return count_of(count, "rate", LIMIT_MAX), seconds(per, "the period of rate", zero=False)


def options_of(  # noqa: PLR0913 - the options are the public promise
    *,
    concurrency: int,
    timeout: Duration | None,
    retry: Retry | None,
    max_losses: int,
    queue_concurrency: int | None,
    rate: Rate | None,
    concurrency_key: Callable[[Any], str | None] | None,
    key_concurrency: int,
) -> HandlerOptions:
    """The options of a handler, checked.

    Raises:
        UsageError: One of them is wrong.
    """
    if retry is not None and not isinstance(cast("object", retry), Retry):
        raise UsageError(f"retry must be an outlive.Retry, not {retry!r}")
    if concurrency_key is not None and not callable(concurrency_key):
        raise UsageError(
            f"concurrency_key must be a function of the payload, not {concurrency_key!r}"
        )
    return HandlerOptions(
        concurrency=count_of(concurrency, "concurrency", CONCURRENCY_MAX),
        timeout_s=None if timeout is None else seconds(timeout, "timeout", zero=False),
        retry=retry or _DEFAULT_RETRY,
        max_losses=count_of(max_losses, "max_losses", LIMIT_MAX),
        queue_concurrency=None
        if queue_concurrency is None
        else count_of(queue_concurrency, "queue_concurrency", LIMIT_MAX),
        rate=None if rate is None else rate_of(rate),
        concurrency_key=concurrency_key,
        key_concurrency=count_of(key_concurrency, "key_concurrency", LIMIT_MAX),
    )
