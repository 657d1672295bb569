"""One host that stands still between a claim and the body which it claimed for.

``kind`` says what is claimed: a job, a step, a tick or a leadership. With a ``gate`` the event loop
stops at that place until the file exists, so that the test can pause the whole process there.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlive
from tests.process.programs.speech import Ears, now, say, serve

app = outlive.App("pauser")

_TICK_S = 0.2
_LOOK_S = 0.01

_gates: list[Path] = []


def _stand_still() -> None:
    """Tell that this is the place, and let nothing of the event loop run until the gate opens."""
    if not _gates:
        return
    gate = _gates.pop()
    say("between")
    while not gate.exists():
        time.sleep(_LOOK_S)


@dataclass
class Order:
    """What a job or a step takes: decoded between its claim and its body."""

    number: int

    def __post_init__(self) -> None:
        """Stand still where it is decoded; flow code makes it from another number."""
        if self.number == 1:
            _stand_still()


def _begin() -> None:
    # The time first: a pause behind it would be seen as one of the body otherwise.
    at = now()
    say("ran", at=at)


@app.handler("plain")
async def plain(order: Order) -> None:
    """Run on the loop."""
    _begin()


@app.handler("threaded")
def threaded(order: Order) -> None:
    """Run in a thread."""
    _begin()


@app.handler("timed", timeout=60)
async def timed(order: Order) -> None:
    """Run inside of something."""
    _begin()


@app.step
async def work(order: Order) -> None:
    """Run on the loop of the flow's owner."""
    _begin()


@app.step
def grind(order: Order) -> None:
    """Run in a thread of the flow's owner."""
    _begin()


@app.step(queue="elsewhere")
async def remote(order: Order) -> None:
    """Run by whoever claims it."""
    _begin()


@app.flow
async def flow(step: str) -> None:
    """One step."""
    order = Order(0)
    order.number = 1
    await {"work": work, "grind": grind, "remote": remote}[step](order)


def _define_role(kind: str) -> None:
    if kind == "leader":

        @app.leader("chief")
        async def lead(lease: outlive.Lease) -> None:
            _begin()
            await asyncio.get_running_loop().create_future()

    elif kind == "tick":

        @app.every(_TICK_S, key="pulse")
        async def pulse() -> None:
            _begin()
            # So long that the next tick has missed some, which is logged before it begins.
            await asyncio.sleep(3 * _TICK_S)


class _Stopper(logging.Handler):
    """Stands still at the line that is logged between a grant and what is done under it."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("won") if sys.argv[4] == "leader" else "missed" in text:
            _stand_still()
        return False


class Desk:
    """What a test may ask for."""

    def __init__(self, host: outlive.Host) -> None:
        self._host = host

    async def begin(self, told: dict[str, Any]) -> dict[str, Any]:
        """Give everybody something to claim."""
        kind = told["kind"]
        if kind in app.handlers:
            await self._host.work.enqueue(kind, {"number": 1})
        elif kind in {"work", "grind", "remote"}:
            await self._host.flows.start(flow, kind, id="flow")
        return {}


async def main(url: str, name: str, ttl_s: str, kind: str, gate: str = "") -> None:
    """Run until the test closes its end."""
    if gate:
        _gates.append(Path(gate))
        for logger in (logging.getLogger("outlive"), logging.getLogger("outlive.leases")):
            logger.setLevel(logging.INFO)
            logger.addHandler(_Stopper())
            logger.propagate = False
    _define_role(kind)
    ears, ttl = Ears(), float(ttl_s)
    leases = outlive.LeaseOptions(ttl=ttl)
    async with (
        outlive.connect(url, app=app, name=name, session_ttl=ttl, leases=leases) as host,
        host.running(),
    ):
        say("ready")
        await serve(Desk(host), ears)
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
