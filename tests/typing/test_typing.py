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


def pyright(*paths: Path) -> list[str]:
    """What pyright finds wrong, in strict mode, with the interpreter that runs the tests."""
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
    return [
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1} {found['message']}"
        for found in answer["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def checked() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


def test_the_public_types_are_as_promised() -> None:
    stated = sum(len(re.findall(r"assert_type\(", path.read_text())) for path in checked())
    assert stated >= 70
    assert pyright(*checked()) == []


@pytest.mark.parametrize(
    "lie",
    [
        "async def f(x: holdfast.Leases) -> None:\n    (await x.try_acquire('a')).token\n",
        "async def f(x: holdfast.Leases) -> None:\n    (await x.acquire_all(['a'])).token\n",
        "def f(x: holdfast.LeaseHeld) -> int:\n    return x.owner\n",
        (
            "async def f(w: holdfast.Work, h: holdfast.Handler[int, str]) -> None:\n"
            "    await w.enqueue(h, 'not a number')\n"
        ),
        "async def f(w: holdfast.Work) -> None:\n    await w.enqueue('q', 1, colour='red')\n",
        "async def f(s: holdfast.Step[[int], str]) -> int:\n    return await s(1)\n",
        "async def f(s: holdfast.Step[[int], str]) -> str:\n    return await s('one')\n",
        "async def f(s: holdfast.Flow[[int], str]) -> None:\n    holdfast.start_child(s, 'one')\n",
    ],
)
def test_a_wrong_use_is_found(lie: str, tmp_path: Path) -> None:
    path = tmp_path / "lie.py"
    path.write_text(f"# pyright: strict\nimport holdfast\n\n\n{lie}")
    assert pyright(path) != []
