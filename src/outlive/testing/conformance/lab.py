"""Where a suite works: opens hosts on one store, moves time, and speaks the ports in sentences.

Owns the drivers a test opens and closes them all at its end. Knows no backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import pytest

from outlive.clock import Clock, SystemClock
from outlive.errors import StoreUnavailable
from outlive.model.lease import AcquireRequest, Grant, Held, LeaseRecord
from outlive.model.location import parse_url
from outlive.model.turns import WAITER_TTL_US
from outlive.names import HostId, Owner, WaiterId
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import Driver, DriverContext, DriverFactory
from outlive.testing.clock import ManualClock

# A test that takes longer has hung: the slowest waits for a handful of ttls.
LIMIT_S = 30.0
# Closing must not hang either, and gets its own time after a test used up the limit.
CLOSE_LIMIT_S = 10.0

# The ttl of leases that must not end while a test runs.
LONG_S = 60.0
# The ttl of leases that a test lets expire: short, and still longer than a slow machine needs
# between two calls, because real stores run on real time.
SHORT_S = 0.8
# How far past an expiry a test goes before it looks.
BEYOND_S = 0.15
# How much longer than a ttl an observer may wait: the drift of clocks, and a margin.
OBSERVER_PATIENCE = 1.2


class Lab:
    """Hosts on one store, and its clock.

    Give a ``ManualClock`` when the driver takes its store clock from ``context.clock``: time then
    moves only in ``advance``. Otherwise the store owns its clock and ``advance`` really waits.
    Each test needs a store without rows of other tests; where they must share one, give each lab
    a ``prefix`` of its own, which goes before every namespace.

    Where the shortest ttl is too long to wait for, say ``expiry="broken"``: cases that only need an
    ended grant then break it, and those that need it to expire are skipped. Test those by other
    means, once.

    A backend whose wake-ups reach all listening hosts, noted or not, says ``rings="all"``: cases of
    who hears nothing of a job are skipped then.
    """

    def __init__(
        self,
        factory: DriverFactory,
        url: str,
        clock: Clock | None = None,
        options: dict[str, Any] | None = None,
        *,
        prefix: str = "",
        expiry: Literal["real", "broken"] = "real",
        rings: Literal["noted", "all"] = "noted",
    ) -> None:
        self.factory = factory
        self.url = url
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._prefix = prefix
        self._expiry = expiry
        self._rings = rings
        self._options = dict(options or {})
        self._drivers: list[Driver] = []
        self._numbers = itertools.count(1)
        self._last_id: dict[str, HostId] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What the backend promises."""
        return self.factory.capabilities

    @property
    def short_s(self) -> float:
        """A ttl that can be waited for, on a backend that sets a minimum."""
        return max(SHORT_S, self.capabilities.ttl_min_s)

    def require(self, *promises: str) -> None:
        """Skip the test unless the backend makes all these promises."""
        for promise in promises:
            if not getattr(self.capabilities, promise):
                pytest.skip(f"{self.capabilities.backend} does not promise {promise!r}")

    async def open(self, host: str = "a", namespace: str = "default", role: str = "host") -> Driver:
        """Open the store once more, as another host; closed at the end of the test.

        A ``keeper`` shares the id of the host of its name that was opened last, if there is one.
        """
        _, driver = await self._open(host, namespace, role)
        return driver

    async def host(self, name: str = "a", namespace: str = "default") -> Member:
        """Open the store as another host and speak for it."""
        host_id, driver = await self._open(name, namespace, "host")
        return Member(self, driver, host_id, name)

    async def _open(self, name: str, namespace: str, role: str) -> tuple[HostId, Driver]:
        number = next(self._numbers)
        host_id = self._last_id.get(name) if role == "keeper" else None
        if host_id is None:
            # Unique among the labs of this process too, which may share a store.
            host_id = HostId(f"{name}-{number}-{id(self):x}")
        self._last_id[name] = host_id
        context = DriverContext(
            clock=self.clock,
            random=random.Random(host_id),  # noqa: S311 - jitter, not secrets
            namespace=self._prefix + namespace,
            host=host_id,
            role=role,
            options=dict(self._options),
        )
        driver = await self.factory.open(parse_url(self.url), context)
        self._drivers.append(driver)
        return host_id, driver

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on the store's clock."""
        if isinstance(self.clock, ManualClock):
            self.clock.advance(seconds)
            await settle()
        else:
            await asyncio.sleep(seconds)

    async def expire(self, beyond_s: float = BEYOND_S) -> None:
        """Let every lease of ``short_s`` that was granted until now run out.

        Where only those take over who have watched for one ttl, every open host looks first.
        """
        self.require_expiry()
        if self.capabilities.observes:
            await self._observe()
        await self.advance(self.short_s + beyond_s)

    async def _observe(self) -> None:
        for driver in self._drivers:
            # A host that the test has closed takes over nothing.
            with contextlib.suppress(StoreUnavailable):
                await driver.leases.list(prefix="", owner=None, active=False, after=None, limit=100)

    def takeover_s(self, ttl_s: float) -> float:
        """The longest that others wait for a key after its owner fell silent."""
        # Who judges by a clock of its own waits longer than the owner believes, on purpose.
        return ttl_s * OBSERVER_PATIENCE if self.capabilities.observes else ttl_s

    def require_expiry(self) -> None:
        """Skip the test where an expiry takes too long to wait for."""
        if self._expiry == "broken":
            pytest.skip(f"an expiry takes {self.short_s:g} s here; it has a test of its own")

    def require_silence(self) -> None:
        """Skip the test where hosts are rung that did not wait."""
        self.require("push")
        if self._rings == "all":
            pytest.skip("every listening host is rung here; a hint too many is harmless")

    async def end(self, key: str) -> None:
        """End the grant of ``short_s`` that somebody has of ``key``: by expiry, or by a break."""
        if self._expiry == "real":
            await self.expire()
        else:
            _, driver = await self._open("operator", "default", "host")
            await driver.leases.break_lease(key, reason="a test ends it")

    def ttl_us(self, seconds: float) -> int:
        """A ttl in microseconds, moved into the range that the backend offers."""
        longest = self.capabilities.ttl_max_s or seconds
        return round(min(max(seconds, self.capabilities.ttl_min_s), longest) * 1e6)

    def judge_within(self, seconds: float, *, since: float) -> None:
        """Skip the rest of a test whose machine was too slow for it to prove anything."""
        if self.elapsed_since(since) >= seconds:
            pytest.skip(f"more than {seconds:g} s passed between two calls: too slow to judge")

    def elapsed_since(self, start_s: float) -> float:
        """Seconds since ``start_s``, a reading of ``clock.monotonic``.

        An upper bound for what passed on the store's clock between two calls.
        """
        return self.clock.monotonic() - start_s

    async def close(self) -> None:
        """Close every driver that was opened, the newest first."""
        while self._drivers:
            await self._drivers.pop().close()


class Member:
    """One host of a lab: says what it wants of a key in one short call each."""

    def __init__(self, lab: Lab, driver: Driver, host_id: HostId, name: str) -> None:
        self.lab = lab
        self.driver = driver
        self.leases = driver.leases
        self.wakeups = driver.wakeups
        self.id = host_id
        self.name = name

    def owner(self, nonce: str = "1") -> Owner:
        """An owner of this host; the nonce tells one acquire call from another."""
        return Owner(f"{self.name}/{nonce}")

    async def attempt(  # noqa: PLR0913 - the fields of a request
        self,
        key: str,
        nonce: str = "1",
        *,
        ttl: float = LONG_S,
        limit: int = 1,
        waiter: WaiterId | None = None,
        queue: float = 0.0,
        resume: bool = False,
        metadata: str = "{}",
    ) -> Grant | Held:
        """One attempt to own ``key``."""
        return await self.leases.acquire(
            AcquireRequest(
                key=key,
                owner=self.owner(nonce),
                ttl_us=self.lab.ttl_us(ttl),
                metadata=metadata,
                host=self.id,
                limit=limit,
                waiter=waiter,
                queue_us=round(queue * 1e6),
                resume=resume,
            )
        )

    async def own(self, key: str, nonce: str = "1", *, ttl: float = LONG_S, **more: Any) -> Grant:
        """Own ``key``; the test fails if it is refused."""
        outcome = await self.attempt(key, nonce, ttl=ttl, **more)
        assert isinstance(outcome, Grant), f"{self.owner(nonce)} was refused: {outcome}"
        assert outcome.key == key
        assert outcome.owner == self.owner(nonce)
        return outcome

    async def own_briefly(self, key: str, nonce: str = "1", **more: Any) -> Grant:
        """Own ``key`` with a ttl that ``lab.expire`` ends."""
        return await self.own(key, nonce, ttl=self.lab.short_s, **more)

    async def is_refused(self, key: str, nonce: str = "1", **more: Any) -> Held:
        """Ask for ``key``; the test fails if it is granted."""
        outcome = await self.attempt(key, nonce, **more)
        assert isinstance(outcome, Held), f"{self.owner(nonce)} should be refused: {outcome}"
        assert outcome.key == key
        return outcome

    async def queue(self, key: str, nonce: str = "1", **more: Any) -> WaiterId:
        """Ask for ``key``, be refused, and have a place in its queue."""
        more.setdefault("queue", WAITER_TTL_US / 1e6)
        held = await self.is_refused(key, nonce, **more)
        assert held.waiter is not None, "a place was asked for and none was given"
        return held.waiter

    async def renew(self, grant: Grant, ttl: float = LONG_S, *, state: str | None = None) -> Grant:
        """Renew ``grant``."""
        return await self.leases.renew(grant, self.lab.ttl_us(ttl), state=state)

    async def record(self, key: str) -> LeaseRecord:
        """The first record of ``key``."""
        records = await self.leases.get(key)
        assert records, f"no record of {key!r}"
        return records[0]

    async def token(self, key: str) -> int:
        """The newest token of ``key``, over all its slots."""
        return max(record.token for record in await self.leases.get(key))


async def settle() -> None:
    """Let the event loop turn until what is ready has run."""
    for _ in range(5):
        await asyncio.sleep(0)


Suite = TypeVar("Suite")
Rest = ParamSpec("Rest")


def scenario(
    test: Callable[Concatenate[Suite, Lab, Rest], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Suite, Lab, Rest], None]:
    """Make a plain test of an ``async def`` one: a fresh event loop, a time limit, a clean lab."""

    @functools.wraps(test)
    def run(suite: Suite, lab: Lab, *args: Rest.args, **kwargs: Rest.kwargs) -> None:
        async def within_limits() -> None:
            try:
                async with asyncio.timeout(LIMIT_S):
                    await test(suite, lab, *args, **kwargs)
            finally:
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await lab.close()

        asyncio.run(within_limits())

    return run
