"""Those in this process who wait for the end of a flow.

A flow that ends here tells them without asking the store; one that leaves this host sends them to
ask. Owns their futures, which most do not need: a short flow may have ended before anybody waits.
"""

from __future__ import annotations

import asyncio

from outlive.model.instance import InstanceStatus

End = tuple[InstanceStatus, str | None]
"""How a flow ended, and its outcome."""


class Waiter:
    """One who wants to hear of the end of a flow. Once ``told``, ``end`` is there.

    ``None`` for an end: the flow goes on elsewhere.
    """

    __slots__ = ("_future", "end", "told")

    def __init__(self) -> None:
        self.told = False
        self.end: End | None = None
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> End | None:
        """Wait until it was told, and say what. For one caller at a time."""
        if not self.told:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self.end

    @property
    def left(self) -> bool:
        """Whether it waited and does not any more."""
        return not self.told and self._future is not None and self._future.done()

    def tell(self, end: End | None) -> None:
        """The flow has ended, or is gone."""
        self.told, self.end = True, end
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Waiters:
    """By the id of the flow."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiter]] = {}

    def expect(self, id: str) -> Waiter:  # noqa: A002 - it is one
        """One who is told of the end of the flow."""
        waiter = Waiter()
        waiting = self._waiting.get(id)
        if waiting is None:
            self._waiting[id] = [waiter]
            return waiter
        if waiting[-1].left:
            # Whoever asks again and again with a timeout leaves one each time.
            waiting[:] = [each for each in waiting if not each.left]
        waiting.append(waiter)
        return waiter

    def ended(self, id: str, status: InstanceStatus, outcome: str | None) -> None:  # noqa: A002
        """The flow has ended here."""
        self._tell(id, (status, outcome))

    def gone(self, id: str) -> None:  # noqa: A002 - it is one
        """The flow does not run here any more."""
        self._tell(id, None)

    def _tell(self, id: str, end: End | None) -> None:  # noqa: A002 - it is one
        for waiter in self._waiting.pop(id, ()):
            waiter.tell(end)
