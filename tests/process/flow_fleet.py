"""Hosts of flows in processes of their own, what can be done to them, and what they said.

Owns the processes of one run and the checks that hold for every one of them: nobody runs under a
token after a greater one was seen, no step is recorded twice, and nothing is stranded.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from typing import Any

from outlive.flows.events import StepEnded, decode_events
from tests.process.actors import Actor, now

Key = tuple[str, str]


class FlowFleet:
    """Some hosts, and a guest that starts flows and is never harmed."""

    def __init__(
        self,
        cast,
        store,
        *,
        hosts: int = 2,
        ttl: object = "default",
        loop: str = "",
        url=None,
        env=None,
    ) -> None:
        self.cast = cast
        self.store = store
        self.ttl = ttl
        self._loop = (loop,) if loop else ()
        self._url = url or store.url
        self._env = env
        self.everybody: list[Actor] = []
        self.guest = cast.start("flow_host", store.url, "guest", ttl, "guest")
        self.hosts = [self.hire() for _ in range(hosts)]
        for actor in (self.guest, *self.hosts):
            actor.wait("ready", limit_s=60)

    def hire(self) -> Actor:
        """Start one more host; all are started alike, and have one name."""
        arguments = (self._url, "host", self.ttl, "host", *self._loop)
        actor = self.cast.start("flow_host", *arguments, env=self._env)
        self.everybody.append(actor)
        return actor

    def start(self, flow: str, *args: Any, ids: list[str], by: Actor | None = None) -> None:
        (by or self.guest).ask("start", flow=flow, args=args, ids=ids, limit_s=60)

    def result(self, name: str, limit_s: float = 60.0) -> Any:
        asked = self.guest.ask("result", id=name, limit=limit_s, limit_s=limit_s + 5)
        return asked["result"]

    def results(self, names: list[str], limit_s: float = 60.0) -> list[Any]:
        asked = self.guest.ask("results", ids=names, limit=limit_s, limit_s=limit_s + 5)
        return asked["results"]

    def wait_for_runs(self, actor: Actor, keys: set[str], limit_s: float = 60.0) -> None:
        """Wait until a host has begun all of these, in whichever order."""
        until = now() + limit_s
        while not keys <= {message["key"] for message in actor.all("ran")}:
            assert now() < until, f"{keys} did not run: {actor!r}"
            actor.linger(0.2)

    def wait_until_put_aside(self, flow: str, limit_s: float = 30.0) -> None:
        """Wait until a flow lives, and nobody has it."""
        until = now() + limit_s
        while (flow, None) not in [row[:2] for row in self.store.ask(_LIVE[self.store.kind])]:
            assert now() < until, f"{flow} was not put aside"
            self.guest.linger(0.05)

    # -- what they said -------------------------------------------------------------------------

    def hear_out(self) -> None:
        """Read what all hosts have said up to now; each is read by a thread of its own."""
        for actor in self.everybody:
            actor.ask("results", ids=[], limit=1.0)

    def ran(self) -> list[dict[str, Any]]:
        """Every beginning of a body, in order of time."""
        said = [{"by": actor.name, **m} for actor in self.everybody for m in actor.all("ran")]
        return sorted(said, key=lambda message: message["at"])

    def runs(self) -> Counter[str]:
        """How often each step was begun."""
        return Counter(message["key"] for message in self.ran())

    def check_owners(self) -> None:
        """Nobody began a body under a token after a greater one had been seen."""
        newest: dict[str, int] = defaultdict(int)
        owners: dict[Key, str] = {}
        for message in self.ran():
            flow, token = message["flow"], message["token"]
            assert token >= newest[flow], f"{message} after token {newest[flow]}"
            newest[flow] = token
            by = owners.setdefault((flow, token), message["by"])
            assert by == message["by"], f"{flow}: two hosts had token {token}"

    def check_histories(self) -> None:
        """Versions have no gap, tokens never shrink, and each step has one record."""
        rows: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for flow, version, token, events in self.store.ask(_HISTORY[self.store.kind]):
            rows[flow].append((version, token, _text(events)))
        assert rows
        for flow, found in rows.items():
            found.sort()
            assert [version for version, _, _ in found] == list(range(1, len(found) + 1)), flow
            tokens = [token for _, token, _ in found]
            assert tokens == sorted(tokens), flow
            ends = [
                event.step
                for *_, text in found
                for event in decode_events(text)
                if isinstance(event, StepEnded)
            ]
            assert len(set(ends)) == len(ends), f"{flow} has a step with two records: {ends}"

    def check_nothing_stranded(self) -> None:
        """O9, asked of the tables: what lives has a living owner, or something to wake it."""
        living = self._living_sessions()
        rows = self.store.ask(_LIVE[self.store.kind])
        stranded = [flow for flow, session, woken in rows if not woken and session not in living]
        assert stranded == []

    def _living_sessions(self) -> set[str]:
        if self.store.kind == "postgres":
            return {session for (session,) in self.store.ask(_SESSIONS)}
        # SQLite keeps them in a file of their own, and what is there has not been reaped.
        path = f"{self.store.path}-hosts"
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            asked = "SELECT id FROM outlive_session WHERE ended_at_us IS NULL"
            return {session for (session,) in connection.execute(asked)}


def _text(events: Any) -> str:
    return events if isinstance(events, str) else json.dumps(events)


_HISTORY = {
    "sqlite": (
        "SELECT i.id, h.version, h.token, h.events FROM outlive_history h "
        "JOIN outlive_instance i ON i.number = h.instance"
    ),
    "postgres": "SELECT instance, version, token, events FROM outlive.instance_history",
}

_SESSIONS = "SELECT id FROM outlive.host WHERE ended_at IS NULL"

# What lives, its owner, and whether a due time, a letter or a living child will wake it. What waits
# for a signal alone has none of them: no flow does when these tests ask.
_LIVE = {
    "sqlite": (
        "SELECT i.id, i.session, i.due_at_us IS NOT NULL "
        "OR EXISTS (SELECT 1 FROM outlive_mailbox m WHERE m.instance = i.number) "
        "OR EXISTS (SELECT 1 FROM outlive_instance c WHERE c.parent = i.id "
        "AND c.ended_at_us IS NULL) "
        "FROM outlive_instance i WHERE i.ended_at_us IS NULL AND i.suspended = 0"
    ),
    "postgres": (
        "SELECT i.id, i.session, i.due_at_us IS NOT NULL "
        "OR EXISTS (SELECT FROM outlive.letter l "
        "WHERE l.namespace = i.namespace AND l.instance = i.id) "
        "OR EXISTS (SELECT FROM outlive.instance c WHERE c.parent = i.id "
        "AND c.ended_at_us IS NULL) "
        "FROM outlive.instance i WHERE i.ended_at_us IS NULL AND NOT i.suspended"
    ),
}
