"""Those in this process who wait for the end of a flow.

Owns their futures. A flow that ends here tells them without asking the store; one that leaves this
host sends them to ask.
"""

from __future__ import annotations

import asyncio

from holdfast.model.instance import InstanceStatus

End = tuple[InstanceStatus, str | None]
"""How a flow ended, and its outcome."""


class Waiters:
    """By the id of the flow."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[str, list[asyncio.Future[End | None]]] = {}

    def wait(self, id: str) -> asyncio.Future[End | None]:  # noqa: A002 - it is one
        """What is given the end of the flow, or ``None`` when it goes on elsewhere."""
        future: asyncio.Future[End | None] = asyncio.get_running_loop().create_future()
        waiting = self._futures.setdefault(id, [])
        if waiting and waiting[-1].done():
            # Its caller left. Whoever asks again and again with a timeout leaves one each time.
            waiting[:] = [each for each in waiting if not each.done()]
        waiting.append(future)
        return future

    def ended(self, id: str, status: InstanceStatus, outcome: str | None) -> None:  # noqa: A002
        """The flow has ended here."""
        self._tell(id, (status, outcome))

    def gone(self, id: str) -> None:  # noqa: A002 - it is one
        """The flow does not run here any more."""
        self._tell(id, None)

    def _tell(self, id: str, end: End | None) -> None:  # noqa: A002 - it is one
        for future in self._futures.pop(id, ()):
            if not future.done():
                future.set_result(end)
