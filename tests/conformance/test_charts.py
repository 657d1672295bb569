"""The engine does what XState 5 was recorded to do, scenario by scenario.

The scenarios are those in ``tests/golden/charts``, or in the folder that
``OUTLIVE_CONFORMANCE_DIR`` names, however deep they lie; each file is a test. Those marked as a
quirk of XState may differ, and ``docs/reference/charts.md`` says in what.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import OutliveError
from tests.conformance.chart_scenarios import Run, differences, load, trace_of

HERE = Path(__file__).resolve().parents[1] / "golden" / "charts"
FOLDER = Path(os.environ.get("OUTLIVE_CONFORMANCE_DIR") or HERE)


def scenarios() -> list[Path]:
    """Every scenario in the folder; other data may lie beside them."""
    return [path for path in sorted(FOLDER.rglob("*.json")) if "golden" in load(path)]


def name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


@pytest.mark.parametrize("path", scenarios(), ids=name)
async def test_scenario(path: Path):
    scenario = load(path)
    golden = scenario["golden"]["trace"]
    if golden[0].get("throws") or "value" not in golden[0]:
        # XState refuses some documents only when they start; refusing them at once is as right.
        with pytest.raises(OutliveError):
            await Run(scenario).start()
        return
    entries = await trace_of(scenario)
    assert len(entries) == len(golden)
    found = {
        (index, str(wanted.get("step"))): differs
        for index, (entry, wanted) in enumerate(zip(entries, golden, strict=True))
        if (differs := differences(entry, wanted))
    }
    if found and "xstate-quirk" in scenario["features"]:
        pytest.xfail(f"differs knowingly: {scenario.get('note')}")
    assert found == {}
    assert_atomic(scenario, entries)


def assert_atomic(scenario: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Hold the leaves to the third party's script, where XState agrees with it."""
    if not scenario.get("xstateAgrees"):
        return
    for entry, atomic in zip(entries, scenario["expectAtomic"], strict=True):
        assert atomic is None or entry["atomic"] == sorted(atomic)


def test_the_scenarios_are_there():
    assert len(scenarios()) > (150 if FOLDER == HERE else 0)
