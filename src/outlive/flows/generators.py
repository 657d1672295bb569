"""Async generators of flow code: nobody but the flow ends them.

The event loop of a thread hears of each async generator that begins, and ends those that were left
in the middle, in a task and at a time of its own. Flow code would then go on outside of its flow.
Owns the two hooks of a thread through which its loop hears of them, put in front of what was there
once: Python tells audit hooks of each change of them, and flow code runs at every step. It must
never keep a generator alive: what is freed inside of flow code cleans up there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from sys import get_asyncgen_hooks, set_asyncgen_hooks
from typing import Any
from weakref import ref

from outlive.runtime.running_loop import running_loop

Generator = AsyncGenerator[Any, Any]
Hook = Callable[[Generator], None]
Known = dict[int, "ref[Generator]"]
"""Async generators by their ``id``, as nothing else of one can be asked for when it is freed."""

# Those of all flows. One that has ended may be here still; whoever has its ``id`` next takes its
# place, or takes it out, when it begins.
_own: Known = {}


class _Begins:
    """Called for each async generator that is iterated first in a thread."""

    __slots__ = ("before",)

    def __init__(self, before: Hook | None) -> None:
        self.before = before

    def __call__(self, generator: Generator) -> None:
        loop: Any = running_loop()
        if getattr(loop, "of_a_flow", False):
            known: Known = loop.generators
            _own[id(generator)] = known[id(generator)] = ref(generator)
            return
        _own.pop(id(generator), None)
        if self.before is not None:
            self.before(generator)


class _IsLeft:
    """Called for each that is freed before it has ended."""

    __slots__ = ("before",)

    def __init__(self, before: Hook | None) -> None:
        self.before = before

    def __call__(self, generator: Generator) -> None:
        if _own.pop(id(generator), None) is None and self.before is not None:
            self.before(generator)


def keep_generators_apart() -> None:
    """Let the loop of this thread hear of no generator of a flow. Repeatable.

    A loop that begins to run sets its own hooks, so that this is asked for each time flow code
    runs.
    """
    begins, is_left = get_asyncgen_hooks()
    if type(begins) is not _Begins or type(is_left) is not _IsLeft:
        set_asyncgen_hooks(_Begins(begins), _IsLeft(is_left))


def hear_again() -> None:
    """Take back what ``keep_generators_apart`` did, where no loop ends and does it.

    A thread without a loop leaves its generators to Python, which then ends them itself.
    """
    begins, is_left = get_asyncgen_hooks()
    if isinstance(begins, _Begins) and isinstance(is_left, _IsLeft):
        set_asyncgen_hooks(begins.before, is_left.before)


def forget_freed(known: Known) -> None:
    """A flow has been dropped: forget those of its generators that are gone with it, or have ended.

    Whatever else is kept by somebody is still not to be ended when it is freed.
    """
    for number, one in known.items():
        generator = one()
        # Those that are not Python's own, such as Cython's, do not tell: they may have to be ended.
        is_over = generator is None or getattr(generator, "ag_frame", one) is None
        if is_over and _own.get(number) is one:
            # Another thread may have been faster.
            _own.pop(number, None)
    known.clear()
