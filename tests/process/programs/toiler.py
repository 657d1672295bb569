"""Claims jobs, works a little on each and completes it, until told to stop.

Tells every claim, and for every job when it last believed in its claim and how the completion
ended. Errors of the store are told and followed by another try.

One of the manner ``handlers`` lets ``run`` do the claiming and the completing, and tells what its
handler sees. A ``careless`` one never asks its claims whether they are still held, as workers of
queues without a deadline do: the negative control of the checker.
"""

from __future__ import annotations

import asyncio
import random
import sys

import outlive
from tests.process.programs.speech import Ears, now, say, say_error, speak_the_log

QUEUE = "toil"

# Jobs that one worker has in hand at once: a worker that dies leaves some behind.
_HANDS = 4

_WORK_S = (0.01, 0.1)
_WAIT_S = 1.0
_REST_S = 0.05


class Toiler:
    """One worker among several."""

    def __init__(self, host: outlive.Host, seed: int, *, careless: bool) -> None:
        self._host = host
        self._random = random.Random(seed)
        self._careless = careless
        self._in_hand: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until cancelled; what is in hand is finished then."""
        try:
            while True:
                await self._take(_HANDS - len(self._in_hand))
                if len(self._in_hand) == _HANDS:
                    await asyncio.wait(self._in_hand, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if self._in_hand:
                await asyncio.wait(self._in_hand)
            raise

    async def _take(self, limit: int) -> None:
        asked = now()
        try:
            claims = await self._host.work.claim(QUEUE, limit=limit, wait=_WAIT_S)
        except outlive.OutliveError as error:
            say_error("met", error)
            await asyncio.sleep(_REST_S)
            return
        if not claims:
            return
        told = [(claim.id, claim.job.token) for claim in claims]
        say("claimed", jobs=told, asked=asked)
        for claim in claims:
            task = asyncio.ensure_future(self._work(claim))
            self._in_hand.add(task)
            task.add_done_callback(self._in_hand.discard)

    async def _work(self, claim: outlive.Claim) -> None:
        job, token = claim.id, claim.job.token
        await asyncio.sleep(self._random.uniform(*_WORK_S))
        # Read before the claim is asked: what was held after this instant was held at it.
        looked = now()
        if not (self._careless or claim.is_held):
            say("settled", job=job, token=token, outcome="lost", believed=None)
            return
        asked = now()
        try:
            await claim.complete({"token": token})
            outcome = "completed"
        except outlive.ClaimLost:
            outcome = "lost"
        except outlive.OutliveError as error:
            say_error("met", error, job=job)
            outcome = "unknown"
        say("settled", job=job, token=token, outcome=outcome, believed=looked, asked=asked)


def handlers(seed: int) -> outlive.App:
    """An app whose handler works and tells as a ``Toiler`` does."""
    app = outlive.App("toil")
    dice = random.Random(seed)

    @app.handler(QUEUE, concurrency=_HANDS)
    async def toil(_: None) -> dict[str, int]:
        job, token = outlive.current().job, outlive.current().token
        # When the claim was asked for is not known here: at some time before.
        say("claimed", jobs=[(job, token)], asked=0.0)
        try:
            await asyncio.sleep(dice.uniform(*_WORK_S))
            looked = now()
            outlive.current().check()
        except (asyncio.CancelledError, outlive.ClaimLost):
            say("settled", job=job, token=token, outcome="lost", believed=None)
            raise
        say("settled", job=job, token=token, outcome="finished", believed=looked)
        return {"token": token}

    return app


async def main(url: str, name: str, ttl_s: str, seed: str, manner: str) -> None:
    """Work until the test closes its end."""
    speak_the_log()
    ears = Ears()
    app = handlers(int(seed)) if manner == "handlers" else None
    async with outlive.connect(url, app=app, name=name, session_ttl=float(ttl_s)) as host:
        toiler = Toiler(host, int(seed), careless=manner == "careless")
        working = asyncio.ensure_future(toiler.run() if app is None else host.run())
        say("ready")
        while await ears.next() is not None:
            continue
        working.cancel()
        await asyncio.wait([working])
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
