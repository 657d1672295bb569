"""``App``: what a module defines, before any connection exists.

A registry and nothing else: importing a module that uses it does no I/O. A host is an ``App``
connected to a store, so every peer that imports the same module can do the same work.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from outlive.errors import UsageError
from outlive.flows.flow import RETENTION_S, Flow
from outlive.flows.stacking import refuse_made, refuse_run_plainly
from outlive.flows.step import Step, check_queue_mates, step_options
from outlive.leases.every import INTERVAL_MIN_S
from outlive.leases.lease import Lease
from outlive.model.job import MAX_LOSSES
from outlive.model.options import Duration, known_options, seconds
from outlive.model.retry import Retry
from outlive.model.schedule import CATCH_UP_LIMIT, CatchUp
from outlive.names import check_host, check_key
from outlive.work.crons import cron_definition, cron_queue, taking_tick
from outlive.work.current import Middleware
from outlive.work.definition import Definition
from outlive.work.handler import Handler, Rate, check_handled, options_of

if TYPE_CHECKING:
    from outlive.charts.chart import Chart, Implementations
    from outlive.charts.document import Source


LeaderFunction = TypeVar("LeaderFunction", bound=Callable[[Lease], Awaitable[None]])
PeriodicFunction = TypeVar("PeriodicFunction", bound=Callable[..., Awaitable[None] | None])
CronFunction = TypeVar("CronFunction", bound=Callable[..., Any])
MiddlewareFunction = TypeVar("MiddlewareFunction", bound=Middleware)
In = TypeVar("In")
Out = TypeVar("Out")
P = ParamSpec("P")
R = TypeVar("R")


class HandlerDecorator(Protocol):
    """Makes a handler of a function: ``async def`` or ``def``, of one payload."""

    @overload
    def __call__(self, function: Callable[[In], Coroutine[Any, Any, Out]]) -> Handler[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[In], Out]) -> Handler[In, Out]: ...


class StepDecorator(Protocol):
    """Makes a step of a function: ``async def`` or ``def``."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Step[P, R]: ...


class FlowDecorator(Protocol):
    """Makes a flow of an ``async def``."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Flow[P, R]:
        """Make it."""
        ...


class Observer(Protocol):
    """A host that runs an app."""

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        ...

    def hear_defined(self) -> None:
        """A flow was defined. Safe from any thread."""
        ...


class App:
    """A named set of things that a host does once it is connected and ``run()``."""

    def __init__(self, name: str) -> None:
        self.name = check_host(name)
        self.leaders: dict[str, LeaderRole] = {}
        self.periodics: dict[str, PeriodicRole] = {}
        self.charts: dict[str, Chart] = {}
        self.handlers: dict[str, Handler[Any, Any]] = {}
        self.crons: dict[str, Definition] = {}
        self.middlewares: list[Middleware] = []
        self.steps: dict[str, Step[..., Any]] = {}
        self.flows: dict[str, Flow[..., Any]] = {}
        # Functions that a host runs, each with the decorator that says so.
        self._run_by: list[tuple[str, object]] = []
        # Hosts that run the app, which hear of flows that are defined meanwhile.
        self._observers: list[Observer] = []

    def __repr__(self) -> str:
        return f"<App {self.name!r}>"

    def observed(self, observer: Observer) -> None:
        """A host runs the app from now on, and hears of flows that are defined meanwhile."""
        self._observers.append(observer)

    def _running(self) -> list[Observer]:
        # Those that were cut off with their loop never said that they ended.
        self._observers = [each for each in self._observers if each.runs]
        return self._observers

    def _check_idle(self, what: str) -> None:
        """Refuse what no host would do that runs already."""
        if self._running():
            raise UsageError(
                f"{what} was defined after {self!r} started, so no host would run it: import the "
                "module that defines it before run()"
            )

    def leader(
        self, key: str, *, ttl: Duration | None = None, **options: Any
    ) -> Callable[[LeaderFunction], LeaderFunction]:
        """Run the function while this host leads ``key``; one host of the fleet does at a time.

        It is given the lease, is cancelled when leadership is lost or the host drains, and is
        started again when this host is elected again. Returning resigns.

        Raises:
            UsageError: The key is used twice, or the arguments are wrong.
        """
        check_key(key)
        if key in self.leaders:
            raise UsageError(f"leader {key!r} is defined twice in {self!r}")

        def register(function: LeaderFunction) -> LeaderFunction:
            refuse_made(function, "leader")
            check_leader(function, key)
            self._check_idle(f"leader {key!r}")
            if ttl is not None:
                options["ttl"] = seconds(ttl, "ttl", zero=False)
            self.leaders[key] = LeaderRole(key=key, function=function, options=options)
            self._run_by.append(("leader", function))
            return function

        return register

    def every(
        self, interval: Duration, *, key: str | None = None, **options: Any
    ) -> Callable[[PeriodicFunction], PeriodicFunction]:
        """Run the function each ``interval``, on one host of the fleet, at most once per tick.

        Ticks are aligned to the epoch, so that all hosts agree on them. A function with a
        parameter is given the ``Tick``, which says how many ticks were missed before it. When its
        host dies, another one ticks after the ``ttl`` of the lease behind it, 30 s by default.

        Raises:
            UsageError: The key is used twice, or the arguments are wrong.
        """
        interval_s = seconds(interval, "interval", least=INTERVAL_MIN_S)

        def register(function: PeriodicFunction) -> PeriodicFunction:
            refuse_made(function, "every")
            name = check_key(key if key is not None else getattr(function, "__name__", ""))
            self._check_idle(f"periodic function {name!r}")
            if name in self.periodics:
                raise UsageError(f"periodic function {name!r} is defined twice in {self!r}")
            self.periodics[name] = PeriodicRole(
                key=name, interval_s=interval_s, function=function, options=options
            )
            self._run_by.append(("every", function))
            return function

        return register

    @known_options("@app.handler")
    def handler(  # noqa: PLR0913 - the options are the public promise
        self,
        queue: str,
        *,
        concurrency: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        max_losses: int = MAX_LOSSES,
        queue_concurrency: int | None = None,
        rate: Rate | None = None,
        concurrency_key: Callable[[Any], str | None] | None = None,
        key_concurrency: int = 1,
    ) -> HandlerDecorator:
        """Run the jobs of ``queue`` with this function, on every host that runs the app.

        It takes the payload, whose annotated type is checked on arrival (a payload that does not
        fit goes to the dead letters), and returns the job's result. ``async def`` runs on the
        event loop, ``def`` in a thread. ``outlive.current()`` tells which job runs.

        Args:
            queue: One handler per queue.
            concurrency: How many of its jobs this host runs at once.
            timeout: A run longer than this fails.
            retry: When a failure is tried again; a job may bring a policy of its own.
            max_losses: Claims that may be lost under this handler before the job is dead.
            queue_concurrency: How many the whole fleet runs at once, from when a worker starts.
                Limits that an operator set for the queue stay.
            rate: How many the whole fleet starts: a number per second, or ``(number, seconds)``.
                As above.
            concurrency_key: A function of the payload; of jobs with one key the whole fleet runs
                ``key_concurrency`` at once. ``None`` for a payload without that limit.
            key_concurrency: See ``concurrency_key``.

        Raises:
            UsageError: The queue has a handler already, or the arguments are wrong.
        """
        check_handled(queue)
        if queue in self.handlers:
            raise UsageError(f"queue {queue!r} already has a handler in {self!r}")
        options = options_of(
            concurrency=concurrency,
            timeout=timeout,
            retry=retry,
            max_losses=max_losses,
            queue_concurrency=queue_concurrency,
            rate=rate,
            concurrency_key=concurrency_key,
            key_concurrency=key_concurrency,
        )

        def register(function: Callable[[Any], Any]) -> Handler[Any, Any]:
            refuse_made(function, "handler")
            self._check_idle(f"the handler of queue {queue!r}")
            handler = Handler[Any, Any](function, queue, options)
            if self.handlers.setdefault(queue, handler) is not handler:
                raise UsageError(f"queue {queue!r} already has a handler in {self!r}")
            return handler

        return register

    @known_options("@app.cron", more=options_of)
    def cron(
        self,
        expression: str,
        *,
        tz: str | tzinfo = "UTC",
        key: str | None = None,
        catch_up: CatchUp | str = CatchUp.SKIP,
        catch_up_limit: int = CATCH_UP_LIMIT,
        overlap: bool = True,
        **options: Any,
    ) -> Callable[[CronFunction], CronFunction]:
        """Run the function at each tick of a cron expression, once in the fleet.

        A tick becomes a job in a queue of its own: it is claimed by one host, retried when the
        function fails, and taken over when the host dies. A function with a parameter is given
        the ``CronTick``. Ticks that nobody fired because no host ran are caught up with.

        Args:
            expression: Five fields, or six with seconds first, or a name such as ``@daily``.
            tz: The time zone it is read in. A daily time that the clock skips ticks right after
                the gap; one that it repeats ticks once.
            key: The name of the schedule; default that of the function.
            catch_up: ``skip`` fires the newest missed tick, ``all`` the newest ``catch_up_limit``
                of them, ``none`` waits for the next.
            catch_up_limit: How many ``all`` fires at most.
            overlap: Whether a tick may run while the job of an earlier one is still live; if not,
                it is left out.
            **options: As ``handler`` takes them: ``timeout``, ``retry``, ``concurrency``…

        Raises:
            UsageError, InvalidName: The key is used twice, it is a flow, or arguments are wrong.
        """

        def register(function: CronFunction) -> CronFunction:
            refuse_made(function, "cron")
            name = key if key is not None else getattr(function, "__name__", "")
            handler = self.handler(cron_queue(name), **options)(taking_tick(function))
            self.crons[name] = cron_definition(
                expression,
                name,
                tz=tz,
                catch_up=catch_up,
                catch_up_limit=catch_up_limit,
                overlap=overlap,
                options=handler.options,
            )
            self._run_by.append(("cron", function))
            return function

        return register

    @overload
    def flow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...
    @overload
    def flow(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        retention: Duration = ...,
    ) -> FlowDecorator: ...
    @known_options("@app.flow")
    def flow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retention: Duration = RETENTION_S,
    ) -> Any:
        """Make the ``async def`` a durable flow, run by every host that runs the app.

        Its code runs on a loop of its own and is run again from its history after a crash: what
        has effects, or looks at the world, belongs into steps. Nothing checks that here;
        ``outlive flow lint`` reads the source for it. Arguments and result are JSON in the store,
        and of the annotated types here. A flow that is defined while the app runs is run from then
        on; all else an app defines must be there before.

        Args:
            function: What to make a flow of; given where the decorator stands without brackets.
            name: Under which it is known in the store; default that of the function.
            retention: How long an ended run is kept.

        Raises:
            UsageError: The name is used twice, it is no ``async def``, or the app runs it as a
                plain function (``cron``, ``every``, ``leader``).
        """

        def register(function: Callable[..., Any]) -> Flow[..., Any]:
            refuse_made(function, "flow")
            made = Flow[..., Any](function, name=name, retention=retention)
            refuse_run_plainly(function, made.name, self._run_by)
            if self.flows.setdefault(made.name, made) is not made:
                raise UsageError(f"flow {made.name!r} is defined twice in {self!r}")
            for host in self._running():
                host.hear_defined()
            return made

        return register if function is None else register(function)

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        retry_for: Duration | None = None,
        timeout: Duration | None = None,
        heartbeat: Duration | None = None,
        queue: str | None = None,
        once: bool = False,
        transactional: bool = False,
        concurrency: int | None = None,
        errors: tuple[type[Exception], ...] = (),
    ) -> StepDecorator: ...
    @known_options("@app.step", more=step_options)
    def step(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **given: Any,
    ) -> Any:
        """Make the function a step: what flows call, and what may have effects.

        ``async def`` runs on the event loop, ``def`` in a thread. Its end is recorded; a step that
        had not ended when its host died is run again, so that it is run at least once, under one
        idempotency key. ``outlive.current()`` tells about it.

        Args:
            function: What to make a step of; given where the decorator stands without brackets.
            name: Under which histories know it; default that of the function.
            retry: When a failure is tried again; default never, the flow's code sees it.
            retry_for: No attempt begins later than this after the call.
            timeout: An attempt longer than this fails.
            heartbeat: An attempt that says nothing for so long fails.
            queue: Run it as a job of this queue, on any host whose app has the step.
            once: Record that it is about to run first, and never run it a second time: after a
                crash, or a stop of its host whose grace is over, the flow sees
                ``StepOutcomeUnknown``. Only ``retry(rerun_unknown=True)`` runs it again then.
            transactional: Run it inside a transaction of the store, ``outlive.current().tx``:
                what it writes there and its end become durable together, or neither.
            concurrency: How many of its executions this host runs at once.
            errors: Classes that flow code sees as they were raised, rebuilt from their arguments;
                all others arrive as ``StepFailed``.
            **given: These options.

        Raises:
            UsageError: The name is used twice, a lambda has none, or the options contradict each
                other.
        """
        options = step_options(**given)

        def register(function: Callable[..., Any]) -> Step[..., Any]:
            refuse_made(function, "step")
            made = Step[..., Any](function, name=name, options=options)
            if options.queue is not None:
                self._check_idle(f"step {made.name!r} of queue {options.queue!r}")
                check_queue_mates(made, self.steps.values())
            if self.steps.setdefault(made.name, made) is not made:
                raise UsageError(f"step {made.name!r} is defined twice in {self!r}")
            return made

        return register if function is None else register(function)

    def include(self, other: App) -> None:
        """Take in what ``other`` defines now, as if it were defined here.

        What is defined there later is not seen. One app for each module of a larger program, and
        one that includes them all, is what this is for.

        Raises:
            UsageError: Both define something of one name, ``other`` has middlewares (define them
                here: they go around every handler), or a host runs this app already.
        """
        self._check_idle(f"what {other!r} includes")
        if other.middlewares:
            raise UsageError(
                f"{other!r} has middlewares, which would go around every handler of {self!r}: "
                f"define them in {self!r}"
            )
        pairs = list(zip(self._registries(), other._registries(), strict=True))
        for mine, theirs in pairs:
            for name in mine.keys() & theirs.keys():
                raise UsageError(f"{name!r} is defined in {self!r} and in {other!r}")
        for mine, theirs in pairs:
            mine.update(theirs)
        self._run_by += other._run_by

    def _registries(self) -> tuple[dict[str, Any], ...]:
        return (
            *(self.leaders, self.periodics, self.charts, self.handlers),
            *(self.crons, self.steps, self.flows),
        )

    def middleware(self, function: MiddlewareFunction) -> MiddlewareFunction:
        """Call this around every run of a handler: ``async def around(current, call)``.

        ``await call()`` runs what is inside and returns the result; what is raised is the job's
        failure. The first one defined is the outermost.

        Raises:
            UsageError: It is no ``async def``.
        """
        if not inspect.iscoroutinefunction(function):
            raise UsageError("a middleware must be an `async def around(current, call)`")
        self.middlewares.append(function)
        return function

    def chart(
        self,
        config: Source,
        *,
        name: str | None = None,
        actions: Implementations | None = None,
        guards: Implementations | None = None,
        services: Implementations | None = None,
        delays: Implementations | None = None,
        activities: Implementations | None = None,
    ) -> Chart:
        """Compile a statechart and keep it under ``name``, by default the document's id.

        Takes what ``Chart.load`` takes: a dict, JSON text or a path, and implementations by name.

        Raises:
            UsageError: The name is used twice.
            InvalidChart: The document is wrong; the error lists everything that is.
        """
        # Here, so that a program without charts does not pay for their import.
        from outlive.charts.chart import Chart

        made = Chart.load(
            config,
            actions=actions,
            guards=guards,
            services=services,
            delays=delays,
            activities=activities,
        )
        wanted = check_key(made.id if name is None else name)
        if wanted in self.charts:
            raise UsageError(f"chart {wanted!r} is defined twice in {self!r}")
        self.charts[wanted] = made
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRole:
    """A function that runs while its host leads."""

    key: str
    function: Callable[[Lease], Awaitable[None]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicRole:
    """A function that one host runs at each tick."""

    key: str
    interval_s: float
    function: Callable[..., Awaitable[None] | None]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def check_leader(function: object, key: str) -> None:
    """Look whether ``function`` can lead.

    Raises:
        UsageError: It is a plain ``def``.
    """
    if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
        raise UsageError(f"leader {key!r}: write it as `async def {function.__name__}(lease)`")
