"""Races others for a few keys until told to stop, and tells everything that a checker needs.

Holds now and then for longer than the ttl, so that renewals matter, and renews by itself at times.
Every error of the store is told and followed by another try: nobody restarts a contender by hand.

A ``careless`` one believes in what it was granted until it has released it, and never asks the
handle, as users of locks without a deadline do: the negative control of the checker.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import outlive
from tests.process.programs.speech import Ears, now, say, say_error, speak_the_log

_LOOK_S = 0.02
_RENEW_CHANCE = 0.05
_LONGER_S = 0.1


class Contender:
    """One host among several."""

    def __init__(
        self, host: outlive.Host, keys: list[str], ttl_s: float, seed: int, *, careless: bool
    ) -> None:
        self._host = host
        self._keys = keys
        self._ttl_s = ttl_s
        self._random = random.Random(seed)
        self._careless = careless
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            key = self._random.choice(self._keys)
            asked = now()
            try:
                lease = await self._host.leases.acquire(key, ttl=self._ttl_s, timeout=1.2)
            except outlive.AcquireTimeout:
                say("refused", key=key, asked=asked)
                continue
            except outlive.StoreError as error:
                say_error("met", error, key=key)
                await self._rest(0.05)
                continue
            await self._own(lease, asked)

    async def _own(self, lease: outlive.Lease, asked: float) -> None:
        grant: dict[str, Any] = {
            "key": lease.key,
            "token": lease.tenure.grant.token,
            "grant": lease.owner,
        }
        self._believe("granted", lease, grant, asked=asked)
        long = self._random.random() < 0.1
        until = now() + (self._ttl_s + _LONGER_S if long else self._random.uniform(0.0, 0.03))
        while now() < until and not self.stopping.is_set():
            await self._rest(min(_LOOK_S, max(0.0, until - now())))
            if not self._believe("believe", lease, grant):
                break
            if self._random.random() < _RENEW_CHANCE:
                await self._renew(lease, grant)
        # Told before it is done: killed in between, it would pass for an owner.
        say("release", **grant)
        try:
            await lease.release()
        except outlive.StoreError as error:
            say_error("met", error, key=lease.key)

    async def _renew(self, lease: outlive.Lease, grant: Any) -> None:
        asked = now()
        try:
            await lease.renew()
        except outlive.LeaseLost:
            # The next look at the handle tells it.
            return
        except outlive.StoreError as error:
            say_error("met", error, key=lease.key)
        else:
            say("renewed", asked=asked, **grant)

    def _believe(self, event: str, lease: outlive.Lease, grant: Any, **more: Any) -> bool:
        # The time is read first: what the handle says holds at that time for certain.
        at, remaining_s = now(), lease.remaining_s
        if self._careless:
            say(event, at=at, deadline=at + self._ttl_s, wall=time.time(), **grant, **more)
            return True
        if not lease.is_held:
            reason = lease.tenure.error.reason if lease.tenure.error is not None else None
            say("lost", at=at, reason=reason, **grant, **more)
            return False
        say(event, at=at, deadline=at + remaining_s, wall=time.time(), **grant, **more)
        return True

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return


async def main(
    url: str, name: str, keys: str, ttl_s: str, seed: str, manner: str = "careful"
) -> None:
    """Contend until the test closes its end."""
    speak_the_log()
    ears = Ears()
    async with outlive.connect(url, name=name) as host:
        careless = manner == "careless"
        contender = Contender(host, keys.split(","), float(ttl_s), int(seed), careless=careless)
        say("ready")
        running = asyncio.create_task(contender.run())
        listening = asyncio.create_task(ears.next())
        await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
        contender.stopping.set()
        await running
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
