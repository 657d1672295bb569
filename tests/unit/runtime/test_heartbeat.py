"""The session of a host: given up by our own clock, and whenever our loop does not turn."""

from __future__ import annotations

import asyncio

from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.runtime.heartbeat import Heartbeat
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession, safe_s
from outlive.testing import ManualClock


class FakeHosts:
    """Takes every call, and remembers it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def open(self, session: HostSession) -> None:
        self.calls.append(("open", session.id))

    async def renew(self, host: HostId, ttl_us: int) -> None:
        self.calls.append(("renew", host))

    async def close(self, host: HostId) -> None:
        self.calls.append(("close", host))


class FakeDriver:
    def __init__(self) -> None:
        self.hosts = FakeHosts()
        self.jobs = None


class FakeWatchdog:
    loop_closed = False
    stalled = 0.0

    def stalled_s(self, now: float) -> float:
        return self.stalled


def beating(**options):
    clock = ManualClock()
    session = HostSession(id=HostId("first"), name="a", ttl_us=10_000_000, metadata="{}")
    heartbeat = Heartbeat(Runtime(clock=clock), session, drift=0.005, **options)
    heartbeat.opened(clock.monotonic())
    return clock, heartbeat


async def turn(heartbeat, clock, driver):
    heartbeat.tick(clock.monotonic(), driver)
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_session_is_relied_on_for_less_than_its_ttl():
    assert safe_s(10.0, 0.005) == 10.0 * 0.995 - 0.5
    assert 0 < safe_s(0.3, 0.005) < 0.3


def test_a_reply_after_the_deadline_revives_nothing():
    clock = ManualClock()
    session = LiveSession(HostId("a"), clock, 5.0)
    assert not session.held
    assert session.accept(clock.monotonic())
    asked_at = clock.monotonic()
    clock.advance(5.1)
    assert not session.held
    assert not session.accept(asked_at)
    assert not session.accept(clock.monotonic())
    assert session.left_s < 0


async def test_a_session_that_was_not_renewed_is_lost_before_its_ttl_and_ended_in_the_store():
    clock, heartbeat = beating()
    driver, lost = FakeDriver(), []
    end = heartbeat.on_lost(lost.append)
    first = heartbeat.live
    clock.advance(9.44)
    assert first.held
    clock.advance(0.02)
    assert not first.held
    await turn(heartbeat, clock, driver)
    assert (lost, first.lost) == ([first], "expired")
    second = heartbeat.live
    assert second.held
    assert driver.hosts.calls == [("close", "first"), ("open", second.id)]
    assert heartbeat.handed_over == 1
    end()
    clock.advance(20)
    await turn(heartbeat, clock, driver)
    assert lost == [first]


async def test_a_host_whose_loop_stalls_gives_up_its_session_until_it_turns_again():
    watchdog = FakeWatchdog()
    clock, heartbeat = beating(watchdog=watchdog, stall_limit_s=30.0)
    driver, first = FakeDriver(), heartbeat.live
    watchdog.stalled = 31.0
    await turn(heartbeat, clock, driver)
    assert first.lost == "stalled"
    clock.advance(5)
    await turn(heartbeat, clock, driver)
    assert driver.hosts.calls == []
    watchdog.stalled = 0.0
    await turn(heartbeat, clock, driver)
    assert heartbeat.live.held


async def test_a_session_in_doubt_is_asked_for_at_once():
    clock, heartbeat = beating()
    driver = FakeDriver()
    await turn(heartbeat, clock, driver)
    assert driver.hosts.calls == []
    heartbeat.doubt(heartbeat.live)
    await turn(heartbeat, clock, driver)
    assert driver.hosts.calls == [("renew", "first")]
