"""Programs of ``examples/``, started as their own first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0


class Program:
    """A running example and what it says."""

    def __init__(self, folder: Path, example: str, *arguments: str, **environ: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / example), *arguments],
            cwd=folder,
            env={**inherited, "PYTHONUNBUFFERED": "1", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def hear(self, beginning: str) -> str:
        """The next line that begins like this; a program that never says it is killed."""
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                self.said.append(line.strip())
                if line.startswith(beginning):
                    return line.strip()
        finally:
            timer.cancel()
        pytest.fail(f"never said {beginning!r}:\n" + "\n".join(self.said))

    def finish(self) -> int:
        """Wait for its end, and hear the rest."""
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        self.said += rest.splitlines()
        return self.process.returncode


class Programs:
    """The examples that one test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Program] = []

    def start(self, example: str, *arguments: str, **environ: str) -> Program:
        self.started.append(Program(self.folder, example, *arguments, **environ))
        return self.started[-1]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    found = Programs(tmp_path)
    yield found
    for program in found.started:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()
