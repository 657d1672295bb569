"""The story: three instances race, the winner dies, the next one stalls, and nothing breaks.

Then workers share a queue, and one of them dies; and so does the host of a flow.

Starts real processes and ends only those. Every line printed is something that just happened.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import outlive
from outlive.clock import SystemClock
from outlive.demo import ledger
from outlive.demo.flow_act import run_flow
from outlive.demo.instances import REGIONS, Instance, first_to_say, start, tell
from outlive.demo.work_act import run_queue
from outlive.demo.worker import KEY, TTL_S

_clock = SystemClock()


async def run_race(instances: list[Instance]) -> tuple[Instance, list[Instance]]:
    """Let all go at once; returns the winner and the losers, who wait."""
    tell(f"1. Three instances race for the lock {KEY!r}")
    for instance in instances:
        await instance.hear("ready")
    for instance in instances:
        instance.go()
    first = await asyncio.gather(*(instance.hear("won", "lost") for instance in instances))
    winner = next(i for i, said in zip(instances, first, strict=True) if said["event"] == "won")
    losers = [instance for instance in instances if instance is not winner]
    for instance, said in zip(instances, first, strict=True):
        if said["event"] == "won":
            tell(f"   {instance.region:9} won, with fencing token {said['token']}")
        else:
            tell(f"   {instance.region:9} lost to {said['to']}, and waits for the lock")
    await winner.hear("wrote")
    tell(f"   {winner.region:9} writes under its lock\n")
    return winner, losers


async def run_crash(winner: Instance, losers: list[Instance]) -> Instance:
    """Kill the owner without warning; somebody takes over."""
    tell(f"2. The {winner.region} instance is killed (SIGKILL); its ttl is {TTL_S:g} s")
    winner.signal(signal.SIGKILL)
    killed_at = _clock.monotonic()
    successor, said = await first_to_say(losers, "won")
    latency_s = _clock.monotonic() - killed_at
    tell(f"   {successor.region:9} took over after {latency_s:.2f} s, with token {said['token']}\n")
    await successor.hear("wrote")
    return successor


async def run_stall(stalled: Instance, last: Instance) -> None:
    """Stop the owner past its ttl, let another take over, then let the old one go on."""
    tell(f"3. The {stalled.region} instance stalls (SIGSTOP), as in a long pause of its machine")
    stalled.signal(signal.SIGSTOP)
    stopped_at = _clock.monotonic()
    said = await last.hear("won")
    latency_s = _clock.monotonic() - stopped_at
    tell(f"   {last.region:9} took over after {latency_s:.2f} s, with token {said['token']}")
    await last.hear("wrote")
    stalled.signal(signal.SIGCONT)
    tell(f"   {stalled.region:9} resumes and tries to write again:")
    for _ in range(2):
        refusal = await stalled.hear("refused")
        tell(f"             refused by {refusal['by']}: {refusal['why']}")
    tell()


async def show_history(file: Path) -> None:
    """The ownership history, as the store kept it."""
    tell("4. The owners of the lock, from the history in the store")
    async with outlive.connect(f"sqlite:///{file}", name="demo", session=False) as host:
        history = await host.leases.history(KEY)
    tell(f"   {'token':>5}  {'owner':<10} {'from':<13} {'to':<13} ended")
    for entry in reversed(history):
        ended_at = "" if entry.ended_at is None else f"{entry.ended_at:%H:%M:%S.%f}"[:12]
        began_at = f"{entry.acquired_at:%H:%M:%S.%f}"[:12]
        why = "still owns it" if entry.ended is None else entry.ended.value
        owner = entry.owner.partition("/")[0]
        tell(f"   {entry.token:>5}  {owner:<10} {began_at:<13} {ended_at:<13} {why}")


async def tell_story(file: Path) -> int:
    """The whole demonstration; returns the exit code."""
    tell(f"Outlive {outlive.__version__}: one SQLite file, three processes, no server.\n")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        ledger.create(connection)
    began_at = _clock.monotonic()
    instances: list[Instance] = []
    try:
        for region in REGIONS:
            # One by one, so that each is ended whatever becomes of the next.
            instances.append(await start(file, region))  # noqa: PERF401
        winner, losers = await run_race(instances)
        successor = await run_crash(winner, losers)
        last = next(instance for instance in losers if instance is not successor)
        await run_stall(successor, last)
        await show_history(file)
    finally:
        for instance in instances:
            await instance.end()
    whole = await run_queue(file) and await run_flow(file)
    with closing(sqlite3.connect(file)) as connection:
        stale = ledger.stale_lines(connection)
    elapsed_s = _clock.monotonic() - began_at
    tell(
        f"\nStale writes that reached the table: {stale}. The demonstration took {elapsed_s:.1f} s."
    )
    return 0 if stale == 0 and whole else 1
