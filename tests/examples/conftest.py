"""Programs of ``examples/``, started as their own first lines say."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0


class Program:
    """A running example and what it says. It is read all the time, so that no pipe fills up."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")}
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *arguments],
            cwd=folder,
            env={**inherited, "PYTHONUNBUFFERED": "1", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self.said.append(line.rstrip())
                self._lines.put(line.rstrip())
        self._lines.put(None)

    def hear(self, words: str) -> str:
        """The next line that says ``words``."""
        try:
            while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
                if words in line:
                    return line
        except queue.Empty:
            pass
        pytest.fail(f"never said {words!r}:\n" + "\n".join(self.said))

    def finish(self) -> int:
        """Wait for its end; all it said is in ``said`` then."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def end(self) -> None:
        """Kill it, if it still runs; a stopped one hears SIGKILL too."""
        if self.process.poll() is None:
            self.process.kill()
        self.finish()


class Programs:
    """The examples that one test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Program] = []

    def start(self, example: str, *arguments: str, **environ: str) -> Program:
        return self._start(str(EXAMPLES / example), *arguments, **environ)

    def start_module(self, module: str, *arguments: str, **environ: str) -> Program:
        """A program that serves an example."""
        return self._start("-m", module, *arguments, **environ)

    def _start(self, *arguments: str, **environ: str) -> Program:
        self.started.append(Program(self.folder, *arguments, **environ))
        return self.started[-1]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    found = Programs(tmp_path)
    yield found
    for program in found.started:
        program.end()
