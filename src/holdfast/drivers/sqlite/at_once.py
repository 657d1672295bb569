"""What became of an operation that ran while it was submitted.

Owns the one turn of the event loop that such an operation owes to everybody else: without it, a
task that writes again and again would never let another one run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any


class AtOnce:
    """Stands where a future would, for a caller that awaits it right away and only once.

    A future is resolved in one turn of the loop and wakes its task in the next; this is awaited in
    one. ``turned`` is called when that turn is over.
    """

    __slots__ = ("_error", "_turned", "_value")

    def __init__(self, turned: Callable[[], None]) -> None:
        self._turned = turned
        self._value: Any = None
        self._error: BaseException | None = None

    def cancelled(self) -> bool:
        """Never: it has begun before anybody could cancel it."""
        return False

    def done(self) -> bool:
        """Never, as far as the one who resolves it is concerned."""
        return False

    def set_result(self, value: Any, /) -> None:
        """It was committed."""
        self._value = value

    def set_exception(self, error: BaseException, /) -> None:
        """It was not, or nobody knows."""
        self._error = error

    def __await__(self) -> Generator[None, None, Any]:
        """Let the others run, then say what became of it."""
        yield
        self._turned()
        if self._error is not None:
            raise self._error
        return self._value
