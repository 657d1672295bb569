"""A fleet of three hosts: one leader at a time, each tick once, through a stop and a kill."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytestmark = pytest.mark.process

# A machine that stalls for seconds must not cost a leader its lease.
TTL_S = 6.0


class Fleet:
    """The hosts of a test, and who of them does what."""

    def __init__(self, cast, url):
        self.hosts = [cast.start("fleet", url, f"host-{n}", TTL_S) for n in range(3)]
        for host in self.hosts:
            host.wait("ready")
        self.alive = list(self.hosts)

    def leads(self, event):
        """The living host that said ``event`` last; waits until there is one."""
        for _ in range(1200):
            said = [(host.all(event)[-1], host) for host in self.alive if host.all(event)]
            ended = {m["token"] for host in self.alive for m in host.all("led")}
            current = [(m["at"], host) for m, host in said if m.get("token") not in ended]
            if current:
                return max(current, key=lambda pair: pair[0])[1]
            self.alive[0].linger(0.05)
        raise AssertionError(f"nobody said {event!r}: {self.alive}")

    def wait_ticks(self, count):
        """Wait until the fleet has run ``count`` more ticks."""
        wanted = len(self.ticks()) + count
        for _ in range(1200):
            if len(self.ticks()) >= wanted:
                return
            self.alive[0].linger(0.05)
        raise AssertionError(f"only {len(self.ticks())} of {wanted} ticks: {self.alive}")

    def ticks(self):
        """Every tick that ran, in order, with the host that ran it."""
        said = [(m["number"], m, host) for host in self.hosts for m in host.all("tick")]
        return sorted(said, key=lambda entry: entry[0])

    def tenures(self):
        """From when to when each host led; a killed one led until its death."""
        found = []
        for host in self.hosts:
            ends = {m["token"]: m["at"] for m in host.all("led")}
            for message in host.all("leading"):
                end = ends.get(message["token"], host.ended_at)
                assert end is not None, host
                found.append((message["at"], end, message, host))
        return sorted(found, key=lambda tenure: tenure[0])

    def stop(self, host):
        """SIGTERM, and wait for the end in good order."""
        self.alive.remove(host)
        host.terminate()
        assert host.join() == 0, host
        assert host.all("drained"), host

    def kill(self, host):
        self.alive.remove(host)
        return host.kill()


def test_fleet_has_one_leader_and_runs_each_tick_once(store, cast):
    fleet = Fleet(cast, store.url)
    first = fleet.leads("leading")
    fleet.wait_ticks(2)
    # A stop in good order: the next leader starts only after the clean-up, and then at once.
    fleet.stop(first)
    second = fleet.leads("leading")
    assert second is not first
    fleet.wait_ticks(2)
    # A death: whoever leads and whoever ticks may be two hosts; both roles move on.
    ticking = fleet.leads("tick")
    killed_at = fleet.kill(ticking)
    fleet.wait_ticks(2)
    last = fleet.leads("leading")
    fleet.stop(last)
    check_leaders(fleet, first)
    check_ticks(fleet, ticking, killed_at)
    print(f"{store.kind}: {len(fleet.ticks())} ticks, {len(fleet.tenures())} leaders")


def check_leaders(fleet, first):
    tenures = fleet.tenures()
    assert len(tenures) >= 2
    for (_, end, before, host), (start, _, after, _) in pairwise(tenures):
        assert end <= start
        assert before["token"] < after["token"]
        # Stepping down frees the key; only a death makes it run out.
        assert (after["previous"] is None) == (host.process.returncode == 0)
    # The lease said "not held" before the clean-up was done.
    assert tenures[0][3] is first
    for host in fleet.hosts:
        assert [m for m in host.all("led") if m["still_held"]] == []


def check_ticks(fleet, killed, killed_at):
    ticks = fleet.ticks()
    assert len(ticks) >= 6
    after_death = 0
    for (number, before, _), (next_number, after, host) in pairwise(ticks):
        assert number < next_number, f"tick {number} ran twice"
        # Every tick between two that ran was missed by the fleet, and the later one says so.
        assert after["missed"] == next_number - number - 1
        takeover = before["at"] <= killed_at <= after["at"]
        after_death += takeover
        if not takeover:
            assert after["missed"] == 0, f"tick {number + 1} did not run"
            continue
        assert host is not killed
        # The dead host's lease kept others out for most of a ttl, which is more than one tick.
        assert after["missed"] >= 1
        told = [m["text"] for m in host.all("log") if "missed" in m["text"]]
        assert any(f"missed {after['missed']} tick" in text for text in told), told
    assert after_death == 1
