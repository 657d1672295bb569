"""What became of an operation that ran while it was submitted.

Owns the turn of the event loop that such an operation owes to everybody else: without it, a task
that writes again and again would never let another one run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any


class AtOnce:
    """Stands where a future would, for a caller that awaits it right away and only once.

    A future is resolved in one turn of the loop and wakes its task in the next; this is awaited in
    one, and ``turned`` is called when that is over; or in none, where nobody else wants to run and
    ``turned`` is ``None``. What was not committed, or nobody knows whether it was, has an
    ``error``.
    """

    __slots__ = ("_error", "_turned", "_value")

    def __init__(
        self, turned: Callable[[], None] | None, value: Any, error: BaseException | None
    ) -> None:
        self._turned = turned
        self._value = value
        self._error = error

    def __await__(self) -> Generator[None, None, Any]:
        """Let the others run, then say what became of it."""
        if self._turned is not None:
            yield
            self._turned()
        if self._error is not None:
            raise self._error
        return self._value
