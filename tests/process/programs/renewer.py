"""Renews one lease thousands of times, by hand or by itself, and watches every one.

Tells only the sums: what was seen wrong, and how much was seen at all.
"""

from __future__ import annotations

import asyncio
import sys

import outlive
from tests.process.programs.speech import say

# Far longer than a healthy run takes; a lease that stops renewing fails the test, not the clock.
_LIMIT_S = 240.0


class Watch:
    """Looks at a lease after each renewal."""

    def __init__(self, lease: outlive.Lease, ttl_s: float) -> None:
        self.lease = lease
        self.ttl_s = ttl_s
        self.token = lease.token
        self.version = lease.version
        self.looks = 0
        self.longest_s = 0.0
        self.wrong: list[str] = []

    def look(self, version: int) -> None:
        """The record has just reached ``version``."""
        lease = self.lease
        held, remaining_s = lease.is_held, lease.remaining_s
        if not held:
            self.wrong.append(f"not held at version {version}")
        elif lease.token != self.token:
            self.wrong.append(f"token {lease.token} at version {version}")
        if version != self.version + 1:
            self.wrong.append(f"version {version} after {self.version}")
        if remaining_s > self.ttl_s:
            self.wrong.append(f"{remaining_s} s remain at version {version}")
        self.version = version
        self.looks += 1
        self.longest_s = max(self.longest_s, remaining_s)

    def tell(self, info: outlive.LeaseInfo | None) -> None:
        """The sums, beside what the store says."""
        assert info is not None
        say(
            "renewed",
            looks=self.looks,
            renewals=self.lease.renewals,
            version=self.lease.version,
            token=self.token,
            longest_s=self.longest_s,
            wrong=self.wrong[:10],
            stored={"version": info.version, "token": info.token, "left_s": info.remaining_s},
        )


async def by_hand(host: outlive.Host, ttl_s: float, count: int) -> Watch:
    """A tight loop of explicit renewals, with the keeper's out of the way."""
    lease = await host.leases.acquire("by_hand", ttl=ttl_s, auto_renew=False)
    watch = Watch(lease, ttl_s)
    for _ in range(count):
        await lease.renew()
        watch.look(lease.version)
    return watch


async def by_itself(host: outlive.Host, ttl_s: float, count: int) -> Watch:
    """Automatic renewals only, each reported by its event."""
    lease = await host.leases.acquire("by_itself", ttl=ttl_s, renew_interval=0.01, renew_jitter=0.0)
    watch = Watch(lease, ttl_s)
    enough = asyncio.Event()

    def seen(event: outlive.Renewed) -> None:
        watch.look(event.version)
        if watch.looks >= count:
            enough.set()

    stop = lease.on(outlive.Renewed, seen)
    async with asyncio.timeout(_LIMIT_S):
        await enough.wait()
    stop()
    return watch


async def main(url: str, how: str, ttl_s: str, count: str) -> None:
    """Renew, then compare with the store."""
    async with outlive.connect(url) as host:
        renew = {"by_hand": by_hand, "by_itself": by_itself}[how]
        watch = await renew(host, float(ttl_s), int(count))
        watch.tell(await host.leases.get(how))
        await watch.lease.release()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
