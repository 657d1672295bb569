"""The pytest plugin for charts: in a pytest of its own, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SUITE = """
import asyncio
import pytest
import outlive
from outlive.charts import Chart

CHART = Chart.load({"id": "order", "initial": "a", "states": {"a": {"on": {"GO": "b"}}, "b": {}}})
seen = set()


@pytest.mark.parametrize("number", range(12))
def test_each_test_has_its_own_group(chart_group, number):
    async def main():
        machine = await chart_group.start(CHART, id="order")
        assert len(chart_group) == 1
        assert chart_group.get("order") is machine
        assert (await machine.request("GO")).value == "b"

    asyncio.run(main())
    assert chart_group.id not in seen
    seen.add(chart_group.id)


def test_nothing_is_left_of_the_others(chart_group):
    assert outlive.orchestrator().groups == (chart_group,)


def test_a_released_group_of_its_own_is_no_leak(chart_group):
    async def main():
        async with outlive.orchestrator().group("mine") as group:
            await group.start(CHART)

    asyncio.run(main())
"""

LEAKS = """
import asyncio
import outlive
from outlive.charts import Chart

CHART = Chart.load({"id": "order"})


def test_leaks(chart_group):
    async def main():
        await outlive.orchestrator().start(CHART)
        await outlive.orchestrator().group("other").start(CHART)

    asyncio.run(main())


def test_goes_on_with_nothing(chart_group):
    assert outlive.orchestrator().groups == (chart_group,)
"""


def run_pytest(folder, text: str, *options: str) -> tuple[int, str]:
    (folder / "test_suite.py").write_text(text, encoding="utf-8")
    (folder / "conftest.py").write_text('pytest_plugins = "outlive.testing.charts"\n')
    (folder / "pytest.ini").write_text("[pytest]\n")
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # What every installed tool brings takes longer to load than the tests take.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "3")], ids=["alone", "xdist"])
def test_every_test_has_a_group_of_the_shared_orchestrator(tmp_path, options):
    code, said = run_pytest(tmp_path, SUITE, *options)
    assert code == 0, said
    assert re.search(r"14 passed", said)


@pytest.mark.process
def test_leaked_machines_fail_the_test_and_not_the_next(tmp_path):
    code, said = run_pytest(tmp_path, LEAKS)
    assert code == 1
    assert re.search(r"2 passed, 1 error", said), said
    assert "left 2 machines running outside of its group" in said
