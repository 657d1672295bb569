"""Guards: conditions by name, and their combinations.

Pure. A guard is made specific to a configuration once (``Guard.within``): whatever depends only on
where a machine stands is then a constant, and only what depends on data is left to be asked in a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from outlive.charts.events import Event
from outlive.errors import ChartError

if TYPE_CHECKING:
    from outlive.charts.configuration import Configuration

Check = Callable[[Any, Event], Any]
"""Context and event in, whether they satisfy the guard out."""


@dataclass(frozen=True, slots=True)
class And:
    """All of ``guards``; the first that fails decides."""

    guards: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of ``guards``; the first that holds decides."""

    guards: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of ``guard``."""

    guard: Any


@dataclass(frozen=True, slots=True)
class StateIn:
    """Whether a state is active: ``#id``, a path with dots, or a state value."""

    state: str | Mapping[str, Any]


def and_(*guards: Any) -> And:
    """Hold if all ``guards`` do; they are names, functions or combinations."""
    return And(guards)


def or_(*guards: Any) -> Or:
    """Hold if any of ``guards`` does."""
    return Or(guards)


def not_(guard: Any) -> Not:
    """Hold if ``guard`` does not."""
    return Not(guard)


def state_in(state: str | Mapping[str, Any]) -> StateIn:
    """Hold while ``state`` is active: ``#id``, a path with dots, or a state value."""
    return StateIn(state)


class Guard(Protocol):
    """A guard whose names have been resolved."""

    def within(self, configuration: Configuration) -> bool | Check:
        """Its answer in ``configuration``, or the check that is left to be made."""
        ...

    def names(self) -> Iterator[str]:
        """The names it is made of, for people."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """A function of the user, with the parameters of this use."""

    name: str
    function: Callable[[Any, Event, Any], Any] | None
    params: Any = None
    computed: Callable[[Any, Event, Any], Any] | None = None

    def within(self, configuration: Configuration) -> bool | Check:
        """Never constant: it may look at anything."""
        del configuration
        function, params, computed, name = self.function, self.params, self.computed, self.name
        if function is None:

            def missing(_context: Any, _event: Event) -> bool:
                raise ChartError(f"guard {name!r} is not implemented; give it to Chart.load")

            return missing

        def check(context: Any, event: Event) -> Any:
            try:
                given = params if computed is None else computed(context, event, None)
                return function(context, event, given)
            except Exception as error:
                error.add_note(f"in guard {name!r}")
                raise

        return check

    def names(self) -> Iterator[str]:
        """Its own name."""
        yield self.name


@dataclass(frozen=True, slots=True)
class All:
    """All of ``parts``."""

    parts: tuple[Guard, ...]

    def within(self, configuration: Configuration) -> bool | Check:
        """Constant as soon as a part is constantly false, or all are constantly true."""
        checks: list[Check] = []
        for part in self.parts:
            answer = part.within(configuration)
            if answer is False:
                # A check to the left of it could only raise, and XState would let it; a guard
                # is pure, so that not asking makes no difference to one that works.
                return False
            if answer is not True:
                checks.append(answer)
        if not checks:
            return True
        if len(checks) == 1:
            return checks[0]
        return lambda context, event: all(check(context, event) for check in checks)

    def names(self) -> Iterator[str]:
        """The names of its parts."""
        for part in self.parts:
            yield from part.names()


@dataclass(frozen=True, slots=True)
class Some:
    """Any of ``parts``."""

    parts: tuple[Guard, ...]

    def within(self, configuration: Configuration) -> bool | Check:
        """Constant as soon as a part is constantly true, or all are constantly false."""
        checks: list[Check] = []
        for part in self.parts:
            answer = part.within(configuration)
            if answer is True:
                return True
            if answer is not False:
                checks.append(answer)
        if not checks:
            return False
        if len(checks) == 1:
            return checks[0]
        return lambda context, event: any(check(context, event) for check in checks)

    def names(self) -> Iterator[str]:
        """The names of its parts."""
        for part in self.parts:
            yield from part.names()


@dataclass(frozen=True, slots=True)
class Opposite:
    """The opposite of ``part``."""

    part: Guard

    def within(self, configuration: Configuration) -> bool | Check:
        """Constant if the part is."""
        answer = self.part.within(configuration)
        if isinstance(answer, bool):
            return not answer
        return lambda context, event: not answer(context, event)

    def names(self) -> Iterator[str]:
        """The name of its part, negated."""
        for name in self.part.names():
            yield f"!{name}"


@dataclass(frozen=True, slots=True)
class Active:
    """Whether a state is active, by number or by value."""

    state: str | Mapping[str, Any]
    order: int | None = None

    def within(self, configuration: Configuration) -> bool | Check:
        """Always constant: it looks at nothing else."""
        if self.order is not None:
            return self.order in configuration.active
        return configuration.matches(self.state)

    def names(self) -> Iterator[str]:
        """How people say it."""
        yield f"in {self.state}"
