"""Which transitions an event takes, decided once for each configuration as far as that goes.

A plan belongs to one configuration and one kind of event. Where no guard depends on data, its
microstep is known when it is made; otherwise it asks the guards and looks the microstep up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.charts.configuration import Configuration
from outlive.charts.events import DONE_ACTOR, ERROR_ACTOR, Event
from outlive.charts.guards import Check
from outlive.charts.microsteps import Histories, HistoryValue, Microstep, compute
from outlive.charts.nodes import Node, Transition

# The key of the plan for eventless transitions; no event can have it.
EVENTLESS = ""

Recorded = Mapping[str, HistoryValue]


class Option:
    """A transition, and what is left to be asked before it is taken."""

    __slots__ = ("check", "taken", "transition")

    def __init__(self, check: Check | None, transition: Transition) -> None:
        self.check = check
        self.transition = transition
        self.taken = (transition,)


def options_of(transitions: list[Transition], configuration: Configuration) -> list[Option]:
    """Those that can be taken in ``configuration``, up to the first that always is."""
    options: list[Option] = []
    for transition in transitions:
        answer = True if transition.guard is None else transition.guard.within(configuration)
        if answer is False:
            continue
        options.append(Option(None if answer is True else answer, transition))
        if answer is True:
            break
    return options


class Pick:
    """The choice at one active state: what its children take comes before its own."""

    __slots__ = ("inner", "options")

    def __init__(self, options: list[Option], inner: list[Pick]) -> None:
        self.options = options
        self.inner = inner

    def choose(self, context: Any, event: Event) -> tuple[Transition, ...]:
        """The transitions taken at this state and below."""
        chosen: tuple[Transition, ...] = ()
        for pick in self.inner:
            chosen += pick.choose(context, event)
        if chosen:
            return chosen
        for option in self.options:
            check = option.check
            if check is None or check(context, event):
                return option.taken
        return ()

    def constant(self) -> tuple[Transition, ...] | None:
        """What it always chooses, or ``None`` if that depends on data."""
        chosen: list[Transition] = []
        for pick in self.inner:
            below = pick.constant()
            if below is None:
                return None
            chosen += below
        if chosen:
            return tuple(chosen)
        if any(option.check is not None for option in self.options):
            return None
        return tuple(option.transition for option in self.options)


class Chains:
    """The choice of eventless transitions: for each leaf its own and its ancestors', in turn."""

    __slots__ = ("chains",)

    def __init__(self, chains: list[list[Option]]) -> None:
        self.chains = chains

    def choose(self, context: Any, event: Event) -> tuple[Transition, ...]:
        """The transitions taken, each once."""
        chosen: dict[Transition, None] = {}
        for chain in self.chains:
            for option in chain:
                if option.check is None or option.check(context, event):
                    chosen[option.transition] = None
                    break
        return tuple(chosen)

    def constant(self) -> tuple[Transition, ...] | None:
        """What it always chooses, or ``None`` if that depends on data."""
        if any(option.check is not None for chain in self.chains for option in chain):
            return None
        return tuple(dict.fromkeys(chain[0].transition for chain in self.chains))


class Plan:
    """What an event can do in a configuration.

    ``quick`` is the configuration that follows where nothing else happens at all: no guard to ask,
    no operation to run, no eventless transition to look for.
    """

    __slots__ = (
        "_by_history",
        "_choice",
        "_configuration",
        "_steps",
        "ends_child",
        "ignored",
        "quick",
        "settled",
    )

    def __init__(self, configuration: Configuration, choice: Pick | Chains, key: str) -> None:
        self._configuration = configuration
        self._choice = choice
        self._steps: dict[tuple[Transition, ...], Microstep] = {}
        self._by_history: dict[tuple[Any, ...], tuple[tuple[str, ...], Any]] = {}
        self.ends_child = _child_in(key)
        constant = choice.constant()
        self.ignored = constant == ()
        self.settled: Microstep | None = None
        self.quick: Configuration | None = None
        if constant:
            found = self.step(constant, {})
            if constant in self._steps:
                self.settled = found

    def choose(self, context: Any, event: Event) -> tuple[Transition, ...]:
        """The transitions that ``event`` takes."""
        if self.ignored:
            return ()
        try:
            return self._choice.choose(context, event)
        except Exception as error:
            error.add_note(
                f"while event {event.type!r} was tried in state {self._configuration.value!r}"
            )
            raise

    def step(self, transitions: tuple[Transition, ...], recorded: Recorded) -> Microstep:
        """What ``transitions`` do, given what history states remember."""
        found = self._steps.get(transitions)
        if found is not None:
            return found
        known = self._by_history.get(transitions)
        if known is not None:
            asked, cases = known
            case = tuple(recorded.get(name) for name in asked)
            if case in cases:
                return cases[case]
        histories = Histories(recorded, self._configuration.tables)
        found = compute(self._configuration, transitions, histories)
        self._keep(transitions, recorded, histories, found)
        return found

    def _keep(
        self,
        transitions: tuple[Transition, ...],
        recorded: Recorded,
        histories: Histories,
        found: Microstep,
    ) -> None:
        asked = tuple(histories.asked)
        if not asked:
            self._steps[transitions] = found
            return
        known = self._by_history.get(transitions)
        if known is None or known[0] != asked or len(known[1]) >= HISTORIES_MAX:
            known = self._by_history[transitions] = (asked, {})
        known[1][tuple(recorded.get(name) for name in asked)] = found


# Different memories of the history states that one set of transitions asks. More than this, and
# computing a step anew costs less than remembering all of them.
HISTORIES_MAX = 256


def plan_of(configuration: Configuration, event_type: str) -> Plan:
    """The plan for events of this type in ``configuration``, made at the first time.

    Types that the chart does not name share the plan of the wildcard that covers them, so that
    whoever invents types cannot fill the memory.
    """
    found = configuration.plans.get(event_type)
    if found is not None:
        return found
    tables = configuration.tables
    key = event_type
    descriptors = tables.descriptors(event_type)
    if event_type not in tables.exact:
        key = descriptors[0] if descriptors else "*"
        found = configuration.plans.get(key)
        if found is not None:
            return found
    plan = Plan(configuration, _pick(tables.root, configuration, descriptors), key)
    settled = plan.settled
    if settled is not None and settled.quiet and plan.ends_child is None:
        plan.quick = settled.target if eventless_of(settled.target).ignored else None
    configuration.plans[key] = plan
    return plan


def eventless_of(configuration: Configuration) -> Plan:
    """The plan for eventless transitions in ``configuration``."""
    found = configuration.plans.get(EVENTLESS)
    if found is None:
        chains: list[list[Option]] = []
        if configuration.tables.eventless:
            for leaf in configuration.nodes:
                if leaf.is_leaf:
                    line = [each for node in (leaf, *leaf.ancestors()) for each in node.always]
                    chains.append(options_of(line, configuration))
        choice = Chains([chain for chain in chains if chain])
        found = configuration.plans[EVENTLESS] = Plan(configuration, choice, EVENTLESS)
    return found


def _pick(node: Node, configuration: Configuration, descriptors: tuple[str, ...]) -> Pick:
    inner = [
        _pick(child, configuration, descriptors)
        for child in node.children
        if child.order in configuration.active
    ]
    inner = [pick for pick in inner if pick.inner or pick.options]
    options = options_of(node.candidates(descriptors), configuration)
    # A level that adds nothing of its own is left out.
    return inner[0] if len(inner) == 1 and not options else Pick(options, inner)


def _child_in(event_type: str) -> str | None:
    for prefix in (DONE_ACTOR, ERROR_ACTOR):
        if event_type.startswith(prefix + "."):
            return event_type[len(prefix) + 1 :]
    return None
