"""One host of a fleet: it runs flows, and does with them what the test says, until told to end.

Each body of a step tells when it begins, under which token, and how it ended. A ``guest`` runs
nothing, and only starts, signals and looks.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import outlive
from tests.process.programs.speech import Ears, now, say, serve, speak_the_log

app = outlive.App("processes")

# A synchronous body looks around this often.
_LOOK_S = 0.02


def _begin() -> dict[str, Any]:
    # The time first: what is paused behind it, and finds its token still good, began before others.
    at, me = now(), outlive.current()
    told = {"flow": me.flow, "key": me.idempotency_key, "token": me.token}
    say("ran", at=at, **told)
    return told


@app.step
async def work(number: int, seconds: float) -> int:
    """Take a while, and tell whether it was cut short."""
    told = _begin()
    try:
        await asyncio.sleep(seconds)
        # Whoever is not the owner any more must not get beyond this.
        outlive.current().check()
    except (asyncio.CancelledError, outlive.OutliveError) as error:
        say("stopped", kind="async", error=type(error).__name__, **told)
        raise
    say("finished", **told)
    return number


@app.step
def grind(seconds: float) -> int:
    """The same in a thread, where nothing can be cut short: it must be told."""
    told = _begin()
    # Counted, not timed: a process that stands still gets no further.
    for _ in range(round(seconds / _LOOK_S)):
        time.sleep(_LOOK_S)
        if outlive.cancelled():
            say("stopped", kind="sync", error="cancelled", **told)
            return -1
    say("finished", **told)
    return 1


@app.flow
async def count(steps: int, seconds: float) -> int:
    """So many steps, one after the other."""
    total = 0
    for number in range(steps):
        total += await work(number, seconds)
    return total


@app.flow
async def both(seconds: float) -> int:
    """A body on the loop and one in a thread, at once."""
    return sum(await asyncio.gather(work(1, seconds), grind(seconds)))


@app.flow
async def mixed(steps: int, seconds: float) -> int:
    """Steps, a timer and a child, as a busy fleet has them."""
    first = await work(0, seconds)
    await asyncio.sleep(seconds)
    return first + await count(steps, seconds)


@app.flow
async def nap(seconds: float) -> int:
    """Sleep between two steps."""
    first = await work(0, 0.0)
    await asyncio.sleep(seconds)
    return first + await work(1, 0.0)


@app.flow
async def inbox(letters: int) -> list[int]:
    """Collect signals in their order."""
    return [await outlive.wait_signal("go", int) for _ in range(letters)]


class Desk:
    """What a test may ask for."""

    def __init__(self, host: outlive.Host) -> None:
        self._flows = host.flows

    async def start(self, told: dict[str, Any]) -> dict[str, Any]:
        """Start flows, each under its own id."""
        flow = app.flows[told["flow"]]
        for name in told["ids"]:
            await self._flows.start(flow, *told["args"], id=name)
        return {}

    async def signal(self, told: dict[str, Any]) -> dict[str, Any]:
        """Send numbers in order, each when the one before was acknowledged."""
        handle = self._flows.get(told["id"])
        for number in told["numbers"]:
            await handle.signal("go", number, id=f"{told['id']}/{number}")
        return {}

    async def result(self, told: dict[str, Any]) -> dict[str, Any]:
        """Wait for an end."""
        return {"result": await self._flows.get(told["id"]).result(timeout=told["limit"])}

    async def results(self, told: dict[str, Any]) -> dict[str, Any]:
        """Wait for all ends."""
        waiting = (self._flows.get(name).result(timeout=told["limit"]) for name in told["ids"])
        return {"results": await asyncio.gather(*waiting)}


async def main(url: str, name: str, ttl_s: str, manner: str = "host") -> None:
    """Run flows until the test closes its end."""
    speak_the_log()
    ears = Ears()
    settings: dict[str, Any] = {} if ttl_s == "default" else {"session_ttl": float(ttl_s)}
    async with outlive.connect(url, app=app, name=name, **settings) as host:
        running = None if manner == "guest" else asyncio.ensure_future(host.run())
        await asyncio.sleep(0)
        say("ready", loop=type(asyncio.get_running_loop()).__module__)
        await serve(Desk(host), ears)
        if running is not None:
            host.stop()
            await running
    say("closed")


def _run(*arguments: str) -> None:
    if "uvloop" in arguments:
        import uvloop

        rest = [word for word in arguments if word != "uvloop"]
        uvloop.run(main(*rest))
    else:
        asyncio.run(main(*arguments))


if __name__ == "__main__":
    _run(*sys.argv[1:])
