"""A host under remote control: does what the test says, one command a line, and tells the result.

Faults that must strike between two instructions (a stop, a blocked loop) are waited for here, in
the process itself, because a command would arrive too late.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from typing import Any

import outlive
from tests.process.programs.ledgers import Ledger, open_ledger
from tests.process.programs.speech import Ears, now, say, say_error, speak_the_log

# A process that was stopped misses at least this much; a busy machine does not.
_GAP_S = 0.5
_WAIT_MOST_S = 30.0


def block_here(seconds: float) -> None:
    """Block whoever calls; its name is what the watchdog's log must show."""
    time.sleep(seconds)


def wait_for_a_stop() -> float:
    """Block the event loop until the process was stopped and continued; gives the gap."""
    began = last = now()
    say("watching")
    while last - began < _WAIT_MOST_S:
        time.sleep(0.002)
        current = now()
        if current - last > _GAP_S:
            return current - last
        last = current
    raise AssertionError("nobody stopped this process")


class Owner:
    """The commands. Each method is one; what it returns is told."""

    def __init__(self, host: outlive.Host, url: str) -> None:
        self.host = host
        self.url = url
        self.leases: dict[str, outlive.Lease] = {}
        self.ledger: Ledger | None = None
        self.tasks: list[asyncio.Task[None]] = []
        host.leases.on(outlive.Lost, lambda lost: say("lost", key=lost.key, reason=lost.reason))

    async def acquire(self, key: str, **options: Any) -> dict[str, Any]:
        asked = now()
        lease = await self.host.leases.acquire(key, **options)
        self.leases[key] = lease
        return {"asked": asked, **self._seen(lease)}

    async def try_acquire(self, key: str, **options: Any) -> dict[str, Any]:
        lease = await self.host.leases.try_acquire(key, **options)
        if lease is None:
            return {"granted": False}
        self.leases[key] = lease
        return {"granted": True, **self._seen(lease)}

    async def look(self, key: str) -> dict[str, Any]:
        return self._seen(self.leases[key])

    async def get(self, key: str) -> dict[str, Any]:
        info = await self.host.leases.get(key)
        assert info is not None
        return {"token": info.token, "version": info.version, "active": info.active}

    async def renew(self, key: str) -> dict[str, Any]:
        await self.leases[key].renew()
        return self._seen(self.leases[key])

    async def release(self, key: str) -> dict[str, Any]:
        asked = now()
        await self.leases.pop(key).release()
        return {"asked": asked}

    async def drop(self, key: str) -> dict[str, Any]:
        del self.leases[key]
        gc.collect()
        return {}

    async def block(self, seconds: float) -> dict[str, Any]:
        say("blocking")
        block_here(seconds)
        return {}

    async def write(self, key: str) -> dict[str, Any]:
        await self._ledger_write(self.leases[key])
        return {}

    async def wake_and(self, key: str, use: str) -> dict[str, Any]:
        """Use the lease once, as the very first thing after a stop."""
        lease = self.leases[key]
        if use == "guard" and self.ledger is None:
            self.ledger = await open_ledger(self.url)
        gap = wait_for_a_stop()
        if use == "is_held":
            return {"gap": gap, "is_held": lease.is_held}
        if use == "token":
            return {"gap": gap, "token": lease.token}
        if use == "guard":
            await self._ledger_write(lease)
        if use == "store":
            await lease.renew()
        return {"gap": gap}

    async def stop_inside(self, key: str) -> dict[str, Any]:
        """Be stopped between the guard and the write it guards."""

        async def pause() -> None:
            say("gap", seconds=wait_for_a_stop())

        await self._ledger_write(self.leases[key], pause)
        return {}

    async def hold_and_turn(self, key: str, **options: Any) -> dict[str, Any]:
        """Be stopped inside a block; count the turns of the loop until the block is cancelled."""
        returned = 0
        try:
            async with self.host.leases.hold(key, **options) as lease:
                say("holding", token=lease.token)
                wait_for_a_stop()
                while True:
                    await asyncio.sleep(0)
                    returned += 1
        except outlive.LeaseLost as error:
            return {"reason": error.reason, "returned": returned}

    async def fork(self, key: str) -> dict[str, Any]:
        """Fork, and tell what the child found."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, json.dumps(self._as_child(self.leases[key])).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = await asyncio.wait_for(asyncio.to_thread(pipe.read), _WAIT_MOST_S)
        await asyncio.to_thread(os.waitpid, child, 0)
        return {"child": json.loads(text)}

    def _as_child(self, lease: outlive.Lease) -> dict[str, Any]:
        found: dict[str, Any] = {"is_held": lease.is_held}
        try:
            found["token"] = lease.token
        except outlive.LeaseLost as error:
            found["reason"] = error.reason
        for name, attempt in (
            ("acquire", lambda: self.host.leases.try_acquire("child")),
            ("get", lambda: self.host.leases.get(lease.key)),
        ):
            try:
                asyncio.run(asyncio.wait_for(attempt(), 5))
            except BaseException as error:
                found[name] = type(error).__name__
            else:
                found[name] = "worked"
        return found

    async def _ledger_write(self, lease: outlive.Lease, pause: Any = None) -> None:
        if self.ledger is None:
            self.ledger = await open_ledger(self.url)
        await self.ledger.write(lease, self.host.name, pause)

    def _seen(self, lease: outlive.Lease) -> dict[str, Any]:
        held = lease.is_held
        return {
            "is_held": held,
            "token": lease.tenure.grant.token,
            "version": lease.version,
            "renewals": lease.renewals,
            "remaining_s": lease.remaining_s,
        }


async def main(url: str, name: str) -> None:
    """Obey until the test closes its end."""
    speak_the_log()
    ears = Ears()
    async with outlive.connect(url, name=name) as host:
        owner = Owner(host, url)
        say("ready", pid=os.getpid())
        while (command := await ears.next()) is not None:
            do = command.pop("do")
            try:
                result = await getattr(owner, do)(**command)
            except Exception as error:
                say_error("did", error, do=do)
            else:
                say("did", do=do, **result)
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
