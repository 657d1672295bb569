"""The bell of flows: rings of the store, brought to whom they concern in this process.

A ring is a hint. Whoever waits here also looks by a timer, so a lost ring costs latency only.
"""

from __future__ import annotations

from collections.abc import Callable

from outlive.ports.wakeups import MISSED, Wakeup, Wakeups
from outlive.runtime.reaper import GONE

_CLAIMABLE = "instances/flow/"
_MAIL = "mail/"
_OPERATE = "operate/"
_WATCHED = "instance/"

Listener = Callable[[str], None]


def claimable(name: str) -> Wakeup:
    """The ring for those who run the flow ``name``."""
    return Wakeup(f"{_CLAIMABLE}{name}")


class FlowBell:
    """Connects wake-ups of the store with those who run flows, or wait for them."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._unsubscribe: Callable[[], None] | None = None
        self._watchers: dict[str, list[Listener]] = {}
        # Called with the name of a definition, or the id of an instance, by whoever runs flows.
        self.on_claimable: Listener | None = None
        self.on_mail: Listener | None = None
        self.on_operate: Listener | None = None
        # Called when a host has gone, which may have been the only one to know when a flow is due,
        # and when rings may have been missed.
        self.on_gone: Callable[[], None] | None = None
        # Called only when rings may have been missed, before that.
        self.on_missed: Callable[[], None] | None = None

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive."""
        return self._wakeups.deaf

    def open(self) -> None:
        """Begin to listen. Repeatable."""
        if self._unsubscribe is None:
            self._unsubscribe = self._wakeups.subscribe(self._on_wakeup)

    async def leave(self) -> None:
        """Tell the others that this host runs no flows any more."""
        await self._wakeups.ring(GONE)

    def watch(self, id: str, listener: Listener) -> Callable[[], None]:  # noqa: A002 - it is one
        """Call ``listener`` when the instance ends or replies, until what is returned is called.

        Also when that may have been missed.
        """
        self.open()
        self._watchers.setdefault(id, []).append(listener)

        def end() -> None:
            listeners = self._watchers.get(id, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                self._watchers.pop(id, None)

        return end

    def close(self) -> None:
        """Stop listening. Repeatable."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        topic = wakeup.topic
        if topic.startswith(_MAIL):
            self._tell(self.on_mail, topic[len(_MAIL) :])
        elif topic.startswith(_CLAIMABLE):
            self._tell(self.on_claimable, topic[len(_CLAIMABLE) :])
        elif topic.startswith(_WATCHED):
            self._tell_watchers(topic[len(_WATCHED) :])
        elif topic.startswith(_OPERATE):
            self._tell(self.on_operate, topic[len(_OPERATE) :])
        elif topic == MISSED.topic:
            for id in list(self._watchers):  # noqa: A001 - it is one
                self._tell_watchers(id)
            if self.on_missed is not None:
                self.on_missed()
        if topic in (GONE.topic, MISSED.topic) and self.on_gone is not None:
            self.on_gone()

    def _tell_watchers(self, id: str) -> None:  # noqa: A002 - it is one
        for listener in list(self._watchers.get(id, ())):
            listener(id)

    def _tell(self, listener: Listener | None, what: str) -> None:
        if listener is not None:
            listener(what)
