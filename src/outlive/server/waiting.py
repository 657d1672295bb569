"""Requests that wait for work: how many there may be, and who wakes them.

Owns the waiters of one server. A ring is a hint for all that wait for a queue; each of them asks
the store again, and leaves its note there again. Nothing depends on a ring: waiters look by
themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from starlette.requests import Request

from outlive.ports.wakeups import MISSED, Wakeup
from outlive.server.limits import WAITERS_MAX
from outlive.server.problems import Problem

_TOPIC = "work/"


class Waiters:
    """Those who wait, by namespace and queue."""

    def __init__(self, per_bearer: int) -> None:
        self._per_bearer = per_bearer
        self._bells: dict[tuple[str, str], set[asyncio.Event]] = {}
        self._count: Counter[str] = Counter()
        self.stopping = asyncio.Event()

    def ring(self, namespace: str, wakeup: Wakeup) -> None:
        """Something became ready; called on the event loop of the server."""
        if wakeup.topic.startswith(_TOPIC):
            queue = wakeup.topic.removeprefix(_TOPIC)
            for bell in self._bells.get((namespace, queue), ()):
                bell.set()
        elif wakeup.topic == MISSED.topic:
            # Any of them may have been meant.
            for (where, _), bells in self._bells.items():
                if where == namespace:
                    for bell in bells:
                        bell.set()

    def stop(self) -> None:
        """Let every waiter go with what it has, now and from now on."""
        self.stopping.set()
        for bells in self._bells.values():
            for bell in bells:
                bell.set()

    @contextmanager
    def waiting(
        self, bearer: str, namespace: str, queues: Sequence[str]
    ) -> Generator[asyncio.Event, None, None]:
        """A bell that rings for ``queues``.

        Raises:
            Problem: This bearer, or everybody together, has as many waiters as are allowed.
        """
        mine = self._count[f"{namespace} {bearer}"] >= self._per_bearer
        if mine or self._count.total() >= WAITERS_MAX:
            raise Problem(
                "too-many-requests",
                "Too many requests are waiting already; repeat the request with wait=0, or later.",
                Retry_After="1",
            )
        bell = asyncio.Event()
        places = {(namespace, queue) for queue in queues}
        for place in places:
            self._bells.setdefault(place, set()).add(bell)
        self._count[f"{namespace} {bearer}"] += 1
        try:
            yield bell
        finally:
            self._count[f"{namespace} {bearer}"] -= 1
            self._count = +self._count
            for place in places:
                self._bells[place].discard(bell)
                if not self._bells[place]:
                    del self._bells[place]


async def disconnected(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
