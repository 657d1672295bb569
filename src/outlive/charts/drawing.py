"""What is written at a transition and at a state, whatever it is drawn with.

Owns the words. Those who draw must still make the text safe for their own syntax.
"""

from __future__ import annotations

from outlive.charts.nodes import Node, Transition
from outlive.charts.operations import Decide, Operation, Run

_AFTER = "xstate.after."
_CHILD = (("done.actor", "done"), ("error.actor", "error"), ("snapshot", "next"))


def label_of(transition: Transition) -> str:
    """``EVENT [guard] / actions``, as people write it."""
    parts = [event_of(transition)]
    if transition.guard is not None:
        parts.append(f"[{' & '.join(transition.guard.names())}]")
    actions = [name for name in map(name_of, transition.actions) if name]
    if actions:
        parts.append(f"/ {', '.join(actions)}")
    return " ".join(part for part in parts if part)


def event_of(transition: Transition) -> str:
    """The event in few words: ``after 1000``, ``done``, ``always``."""
    name = transition.descriptor
    source = transition.source
    if not name:
        return "always"
    if name.startswith(_AFTER):
        return f"after {name.removeprefix(_AFTER).removesuffix('.' + source.id)}"
    if name == f"xstate.done.state.{source.id}":
        return "done"
    for invoke in source.invokes:
        for prefix, word in (
            ("done.actor", "done"),
            ("error.actor", "error"),
            ("snapshot", "next"),
        ):
            if name == f"xstate.{prefix}.{invoke.id}":
                return f"{word} {invoke.src}"
    return name


def name_of(operation: Operation) -> str:
    """The name of an action of the user; the engine's own have none."""
    return operation.name if isinstance(operation, (Run, Decide)) else ""


def drawn_targets(transition: Transition) -> tuple[Node, ...]:
    """Where its arrows lead; one that stays leads to its own state."""
    return transition.targets or (transition.source,)
