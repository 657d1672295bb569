"""Pyright agrees with what the files beside this one say of the public types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Pyright starts a language server; the first start on a cold cache takes the longest.
LIMIT_S = 110.0


# Uses that a type checker must refuse.
LIES = {
    "nothing_was_acquired": (
        "async def f(x: outlive.Leases) -> None:\n    (await x.try_acquire('a')).token\n"
    ),
    "several_have_no_one_token": (
        "async def f(x: outlive.Leases) -> None:\n    (await x.acquire_all(['a'])).token\n"
    ),
    "an_owner_is_no_number": "def f(x: outlive.LeaseHeld) -> int:\n    return x.owner\n",
    "a_handler_takes_its_own_payload": (
        "async def f(w: outlive.Work, h: outlive.Handler[int, str]) -> None:\n"
        "    await w.enqueue(h, 'not a number')\n"
    ),
    "there_is_no_such_option": (
        "async def f(w: outlive.Work) -> None:\n    await w.enqueue('q', 1, colour='red')\n"
    ),
    "a_step_gives_its_own_result": (
        "async def f(s: outlive.Step[[int], str]) -> int:\n    return await s(1)\n"
    ),
    "a_step_takes_its_own_arguments": (
        "async def f(s: outlive.Step[[int], str]) -> str:\n    return await s('one')\n"
    ),
    "a_flow_is_started_with_its_own_arguments": (
        "async def f(x: outlive.Flows, s: outlive.Flow[[int], str]) -> None:\n"
        "    await x.start(s, 'one')\n"
    ),
    "a_plain_function_is_no_flow": (
        "async def g(n: int) -> int:\n    return n\n\n\n"
        "async def f(x: outlive.Flows) -> None:\n    await x.start(g, 1)\n"
    ),
    "a_child_takes_its_own_arguments": (
        "async def f(s: outlive.Flow[[int], str]) -> None:\n    outlive.start_child(s, 'one')\n"
    ),
}


def pyright(*paths: Path) -> dict[str, list[str]]:
    """What pyright finds wrong in each file, in strict mode, with the tests' interpreter."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable),
            *(str(path) for path in paths),
        ],
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    answer = json.loads(done.stdout[done.stdout.index("{") :])
    assert answer["summary"]["filesAnalyzed"] == len(paths), done.stderr
    wrong: dict[str, list[str]] = {path.stem: [] for path in paths}
    for found in answer["generalDiagnostics"]:
        if found["severity"] == "error":
            line = found["range"]["start"]["line"] + 1
            wrong[Path(found["file"]).stem].append(f"{line} {found['message']}")
    return wrong


def checked() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What pyright says of truths and lies, in one run: most of its time reads the package."""
    folder = tmp_path_factory.mktemp("lies")
    lies = [folder / f"{name}.py" for name in LIES]
    for path in lies:
        path.write_text(f"# pyright: strict\nimport outlive\n\n\n{LIES[path.stem]}")
    return pyright(*checked(), *lies)


def test_the_public_types_are_as_promised(wrong: dict[str, list[str]]) -> None:
    stated = sum(len(re.findall(r"assert_type\(", path.read_text())) for path in checked())
    assert stated >= 70
    assert {path.stem: wrong[path.stem] for path in checked() if wrong[path.stem]} == {}


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_use_is_found(lie: str, wrong: dict[str, list[str]]) -> None:
    assert wrong[lie] != []
