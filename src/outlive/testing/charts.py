"""A pytest plugin for tests of charts: ``pytest_plugins = "outlive.testing.charts"``.

Owns one fixture. It is loaded by name and not by itself, so that whoever does not test charts pays
nothing. With pytest-xdist each worker is a process and has its own orchestrator, so that parallel
tests cannot disturb each other; tests that follow each other in one process are kept apart by their
groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from outlive.charts.orchestrator import Group, Machine, Orchestrator, orchestrator


@pytest.fixture
def chart_group(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A group of the process's orchestrator, named after the test and released at its end.

    Machines that the test started elsewhere and left running, in the default group or in a group of
    its own making, fail the test; they are ended, so that the next test begins with nothing.
    """
    shared = orchestrator()
    before = set(_running(shared))
    group = shared.group(request.node.nodeid[-255:])
    yield group
    leaked = [
        machine
        for machine in _running(shared)
        if machine not in before and machine.group is not group
    ]
    _run_release([group, *{machine.group for machine in leaked}])
    if leaked:
        names = ", ".join(sorted(machine.id for machine in leaked))
        pytest.fail(
            f"the test left {len(leaked)} machines running outside of its group: {names}; start "
            "them in chart_group, or release their group",
            pytrace=False,
        )


def _running(shared: Orchestrator) -> list[Machine]:
    return [machine for group in shared.groups for machine in group.machines if machine.running]


def _run_release(groups: list[Group]) -> None:
    # Not asyncio.run: it would unset the event loop that another plugin has set.
    loop = asyncio.new_event_loop()
    try:
        for group in groups:
            loop.run_until_complete(group.release())
    finally:
        loop.close()
