"""Which ways of claiming there are, on which stores, and which of them are sound.

The list is data; ``open_arena`` alone knows who implements what.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlive.bench.arena import Arena, Site
from outlive.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way of claiming on one store.

    ``sound`` ones must never let two claim the same item; the control must, or the contest is too
    tame to show anything.
    """

    store: str
    name: str
    says: str
    sound: bool = True

    @property
    def label(self) -> str:
        """Store and name."""
        return f"{self.store}/{self.name}"


_OPTIMISTIC = "read an item and its version; write if the version is unchanged"
_NAIVE = "the control: read a free item, then write"
_OURS = "the job store of Outlive"

STRATEGIES = (
    Strategy(store="sqlite", name="transaction", says="BEGIN IMMEDIATE, read, write, COMMIT"),
    Strategy(store="sqlite", name="optimistic", says=_OPTIMISTIC),
    Strategy(store="sqlite", name="outlive", says=_OURS),
    Strategy(store="sqlite", name="naive", says=_NAIVE, sound=False),
    Strategy(
        store="postgres", name="transaction", says="one statement with FOR UPDATE SKIP LOCKED"
    ),
    Strategy(store="postgres", name="optimistic", says=_OPTIMISTIC),
    Strategy(store="postgres", name="outlive", says=_OURS),
    Strategy(store="postgres", name="naive", says=_NAIVE, sound=False),
    Strategy(store="redis", name="lock", says="SET NX PX, read, write, compare and delete"),
    Strategy(store="redis", name="lua", says="one script that pops an item and records its owner"),
    Strategy(store="redis", name="outlive", says=_OURS),
    Strategy(store="redis", name="naive", says=_NAIVE, sound=False),
)

STORES = tuple(dict.fromkeys(strategy.store for strategy in STRATEGIES))
NAMES = tuple(dict.fromkeys(strategy.name for strategy in STRATEGIES))


def find_strategy(store: str, name: str) -> Strategy:
    """The strategy of this name on this store."""
    return next(s for s in STRATEGIES if (s.store, s.name) == (store, name))


def open_arena(site: Site, strategy: Strategy, runtime: Runtime) -> Arena:
    """The strategy at work at ``site``. Opens files at once and connections when first used.

    Raises:
        ConfigurationError: A URL is wrong.
    """
    if strategy.name == "outlive":
        from outlive.bench.job_arena import JobArena

        control = open_arena(site, find_strategy(strategy.store, "naive"), runtime)
        return JobArena(site, strategy.store, control, runtime)
    match strategy.store:
        case "sqlite":
            from outlive.bench.sqlite_arena import SqliteArena

            return SqliteArena(site, strategy.name, runtime)
        case "postgres":
            from outlive.bench.postgres_arena import PostgresArena

            return PostgresArena(site, strategy.name)
        case _:
            from outlive.bench.redis_arena import RedisArena

            return RedisArena(site, strategy.name, runtime)
