"""Functions that an app runs by a timetable: each a schedule, and a handler of its queue.

A tick becomes a job like any other, so it is claimed, retried and fenced like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import tzinfo
from typing import Any

from outlive.errors import UsageError
from outlive.model.job import OnDuplicate
from outlive.model.schedule import CatchUp, check_schedule
from outlive.model.timetable import check_expression
from outlive.work.definition import CronTick, Definition, JobPart, zone_name
from outlive.work.handler import HandlerOptions
from outlive.work.schedules import catch_up_of

CronFunction = Callable[..., Awaitable[Any] | Any]


def cron_queue(key: str) -> str:
    """The queue of the jobs of one cron function."""
    return f"cron/{check_schedule(key)}"


def cron_definition(
    expression: str,
    key: str,
    *,
    tz: str | tzinfo,
    catch_up: CatchUp | str,
    catch_up_limit: int,
    overlap: bool,
    options: HandlerOptions,
) -> Definition:
    """The schedule of a cron function whose handler has these options.

    Raises:
        UsageError, InvalidName: Something about it is wrong.
    """
    queue = cron_queue(key)
    definition = Definition(
        cron=check_expression(expression),
        tz=zone_name(tz),
        catch_up=catch_up_of(catch_up),
        limit=catch_up_limit,
        job=JobPart(
            queue=queue,
            unique_key=None if overlap else queue,
            on_duplicate=OnDuplicate.REJECT if overlap else OnDuplicate.RETURN,
            max_attempts=options.retry.max_attempts,
            max_losses=options.max_losses,
        ),
    )
    definition.timetable()
    return definition


def taking_tick(function: CronFunction) -> Callable[[CronTick], Any]:
    """``function`` as a handler of ticks: one without a parameter is called without the tick.

    Raises:
        UsageError: It is no function of nothing, or of the tick.
    """
    if not callable(function):
        raise UsageError(f"a cron function must be callable, not {function!r}")
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    named = [each for each in needed if each.kind not in _ANY_NUMBER]
    if len(named) > 1 or any(each.kind is inspect.Parameter.KEYWORD_ONLY for each in named):
        raise UsageError(
            f"the cron function {_name(function)} must take no arguments, or the tick alone: "
            f"write `def {_name(function)}(tick)`"
        )
    takes_tick = bool(named)
    if inspect.iscoroutinefunction(function):

        async def awaited(tick: CronTick) -> Any:
            return await (function(tick) if takes_tick else function())

        return _named(awaited, function)

    def called(tick: CronTick) -> Any:
        return function(tick) if takes_tick else function()

    return _named(called, function)


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _named(wrapper: Callable[[CronTick], Any], function: CronFunction) -> Callable[[CronTick], Any]:
    # Not functools.wraps: what the wrapper takes and returns is its own.
    wrapper.__name__ = _name(function)
    wrapper.__doc__ = function.__doc__
    return wrapper


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
