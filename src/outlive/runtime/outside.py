"""What must not be asked for by the code of a flow: it is run again from its history.

Owns the words of the refusal. It is made before anything is sent: a request that went out would be
repeated by each replay.
"""

from __future__ import annotations

from outlive.errors import UsageError
from outlive.runtime.running_loop import running_loop

# Kinds of event loops that are known to run no flow: asked for on the way to every operation. A
# program has one or two.
_elsewhere: set[type] = set()
_KINDS_MAX = 100


def check_outside(
    asked: str, instead: str = "do it in a step (@app.step) and await the step"
) -> None:
    """Refuse what only programs, handlers and steps may do.

    Raises:
        UsageError: The code of a flow asks; ``instead`` says what it can do.
    """
    kind = type(running_loop())
    if kind in _elsewhere:
        return
    # An event loop of a flow says so of itself.
    if getattr(kind, "of_a_flow", False):
        raise UsageError(
            f"flow code cannot use {asked}: a replay after a crash would repeat the call; {instead}"
        )
    if len(_elsewhere) < _KINDS_MAX:
        _elsewhere.add(kind)
