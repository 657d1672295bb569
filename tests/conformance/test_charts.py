"""The engine does what XState 5 was recorded to do, scenario by scenario.

The scenarios are those in ``tests/golden/charts``, or in the folder that
``HOLDFAST_CONFORMANCE_DIR`` names; each file is a test.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from tests.conformance.chart_scenarios import Run, differences, load, trace_of

HERE = Path(__file__).resolve().parents[1] / "golden" / "charts"
FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE_DIR") or HERE)


def scenarios(suite: str) -> list[Path]:
    return sorted(path for path in (FOLDER / suite).glob("*.json") if path.name != "manifest.json")


def name(path: Path) -> str:
    return path.stem


async def check(path: Path) -> None:
    scenario = load(path)
    golden = scenario["golden"]["trace"]
    if golden[0].get("throws") or "value" not in golden[0]:
        # XState refuses some documents only when they start; refusing them at once is as right.
        with pytest.raises(HoldfastError):
            await Run(scenario).start()
        return
    entries = await trace_of(scenario)
    assert len(entries) == len(golden)
    found = {}
    for index, (entry, wanted) in enumerate(zip(entries, golden, strict=True)):
        differs = differences(entry, wanted)
        if differs:
            found[index, str(wanted.get("step"))] = differs
    if found and "xstate-quirk" in scenario["features"]:
        pytest.xfail(f"differs knowingly (docs/reference/charts.md): {scenario.get('note')}")
    assert found == {}
    expected = scenario.get("expectAtomic")
    if expected is not None and scenario.get("xstateAgrees"):
        for entry, atomic in zip(entries, expected, strict=True):
            assert atomic is None or entry["atomic"] == sorted(atomic)


@pytest.mark.parametrize("path", scenarios("xstate"), ids=name)
async def test_xstate(path: Path):
    await check(path)


@pytest.mark.parametrize("path", scenarios("xstate-from-scxml"), ids=name)
async def test_xstate_from_scxml(path: Path):
    await check(path)


def test_the_scenarios_are_there():
    assert scenarios("xstate") or scenarios("xstate-from-scxml")
