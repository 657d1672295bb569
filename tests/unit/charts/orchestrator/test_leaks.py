"""Groups that come and go leave nothing behind: memory is measured over many cycles.

In a process of its own, because other threads of a process that runs tests make objects, too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.charts import Chart
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import GroupReleased

PAGE = 4096
WARM_UP = 300

# One byte for each ten cycles is far below any object, and far above what the allocator wavers.
GROWTH_MAX = 1_000_000

# An event loop keeps up to a hundred cancelled timers, of a few objects each. A cycle that left one
# object behind would leave two thousand.
OBJECTS_MAX = 600


def chart() -> Chart:
    async def wait() -> None:
        await asyncio.Event().wait()

    return Chart.load(
        {
            "id": "visitor",
            "context": {"n": 0},
            "initial": "a",
            "states": {"a": {"after": {"60000": "b"}, "invoke": {"src": "wait"}}, "b": {}},
            "on": {"SLOW": {"actions": "wait"}},
        },
        actions={"wait": wait},
        services={"wait": wait},
    )


async def cycle(hub: Orchestrator, visitor: Chart) -> None:
    """Everything that a group can hold when it is released."""
    async with hub.group("visit") as group:
        other = hub.group("other")
        group.link(other)
        machine = await group.start(visitor)
        unsubscribe = machine.subscribe(lambda _: None)
        machine.send("SLOW")
        waiting = asyncio.ensure_future(machine.request("LOOK"))
        await asyncio.sleep(0)
        unsubscribe()
    await other.release()
    with pytest.raises(GroupReleased):
        await waiting


def rss() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


async def grown_by(cycles: int) -> tuple[int, int]:
    """Bytes and objects that ``cycles`` cycles leave behind."""
    hub, visitor = Orchestrator(), chart()
    for _ in range(WARM_UP):
        await cycle(hub, visitor)
    gc.collect()
    objects, before = len(gc.get_objects()), rss()
    for _ in range(cycles):
        await cycle(hub, visitor)
    gc.collect()
    grown = rss() - before, len(gc.get_objects()) - objects
    assert hub.groups == ()
    assert hub.metrics().active_machines == 0
    return grown


def measured(cycles: int) -> tuple[int, int]:
    """``grown_by`` of a new process."""
    done = subprocess.run(
        [sys.executable, __file__, str(cycles)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    growth, objects = json.loads(done.stdout)
    return growth, objects


@pytest.mark.process
def test_cycles_leave_nothing_behind():
    growth, objects = measured(2_000)
    assert objects < OBJECTS_MAX
    assert growth < GROWTH_MAX


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_cycles_leave_nothing_behind():
    growth, objects = measured(100_000)
    assert objects < OBJECTS_MAX
    assert growth < GROWTH_MAX


async def test_an_idle_machine_has_no_task_and_no_dict():
    hub = Orchestrator()
    machine = await hub.start(Chart.load({"id": "c"}))
    await machine.request("LOOK")
    assert not hasattr(machine, "__dict__")
    assert machine._task is machine._mailbox is machine._extra is machine._next is None
    assert len(asyncio.all_tasks()) == 1
    await hub.force_cleanup()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(grown_by(int(sys.argv[1])))))
