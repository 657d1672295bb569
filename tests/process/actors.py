"""The other processes of a test: started, heard, signalled and ended by their id.

Owns every process that it starts. Waits on what a process says, never on time alone, and every
wait has a limit; a wait that fails shows all that the process said.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.process.nursery import ROOT, Nursery, Program
from tests.process.wall_clock import read_offset

# A busy machine of two cores starts a program in a second; this is for the worst of days.
WAIT_LIMIT_S = 20.0

Message = dict[str, Any]


def now() -> float:
    """The reference clock of all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Actor:
    """One process, running a program of ``tests/process/programs``."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        program: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"{program}-{time.monotonic_ns()}"
        self.heard: list[Message] = []
        # Of the machine's clocks, one with each message.
        self.readings: list[tuple[float, float]] = []
        self.ended_at: float | None = None
        self._taken: dict[str, int] = {}
        self._news = threading.Condition()
        self._errors = folder / f"{self.name}.stderr"
        # The environment of a developer must not configure the hosts under test.
        clean = {name: text for name, text in os.environ.items() if "OUTLIVE" not in name}
        asked = Program(
            module=f"tests.process.programs.{program}",
            arguments=[str(argument) for argument in arguments],
            folder=folder,
            env=clean | {"PYTHONPATH": str(ROOT)} | dict(env or {}),
        )
        with self._errors.open("wb") as errors:
            self.process = nursery.start(asked, errors.fileno())
        self._reader = threading.Thread(target=self._read, name=f"hear-{self.name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            reading = read_offset()
            with self._news:
                if reading is not None:
                    self.readings.append(reading)
                self.heard.append(message)
                self._news.notify_all()

    def wait(self, event: str, *, limit_s: float = WAIT_LIMIT_S, **fields: Any) -> Message:
        """The next message of this kind that no earlier wait has passed."""
        deadline = time.monotonic() + limit_s
        with self._news:
            while True:
                for index in range(self._taken.get(event, 0), len(self.heard)):
                    message = self.heard[index]
                    if message["event"] == event and fields.items() <= message.items():
                        self._taken[event] = index + 1
                        return message
                if not self._news.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"no {event!r} {fields} within {limit_s} s: {self!r}")

    def forget(self, event: str) -> None:
        """Let the next wait for this kind of message be for one that comes after now."""
        with self._news:
            self._taken[event] = len(self.heard)

    def linger(self, limit_s: float) -> None:
        """Wait until it says something more, for ``limit_s`` at most."""
        with self._news:
            self._news.wait(limit_s)

    def all(self, event: str, **fields: Any) -> list[Message]:
        """Every message of this kind so far."""
        with self._news:
            return [m for m in self.heard if m["event"] == event and fields.items() <= m.items()]

    def tell(self, do: str, **fields: Any) -> None:
        """Give a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, *, limit_s: float = WAIT_LIMIT_S, **fields: Any) -> Message:
        """Give a command and wait until it is done; an error of it fails the test."""
        self.tell(do, **fields)
        message = self.wait("did", do=do, limit_s=limit_s)
        assert "error" not in message, f"{do}: {message}"
        return message

    def provoke(self, do: str, *, limit_s: float = WAIT_LIMIT_S, **fields: Any) -> Message:
        """Give a command that must raise; the message tells the error."""
        self.tell(do, **fields)
        message = self.wait("did", do=do, limit_s=limit_s)
        assert "error" in message, f"{do} should have failed: {message}"
        return message

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel says that every thread has stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        assert self.process.await_stop()

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> float:
        """SIGKILL; gives the time at which it was certainly dead."""
        self.process.kill()
        self.process.wait(WAIT_LIMIT_S)
        self.ended_at = now()
        self._reader.join(WAIT_LIMIT_S)
        return self.ended_at

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.terminate()

    def join(self, limit_s: float = WAIT_LIMIT_S) -> int:
        """Close its input, wait for its end, give its exit code; all it said is heard then."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(limit_s)
        self.ended_at = now()
        self._reader.join(WAIT_LIMIT_S)
        return code

    def close(self) -> None:
        """End it, whatever its state. Repeatable."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_LIMIT_S)
        self._reader.join(WAIT_LIMIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def __repr__(self) -> str:
        said = "\n  ".join(map(json.dumps, self.heard[-40:]))
        errors = self._errors.read_text(errors="replace")[-4000:]
        code = self.process.poll()
        return f"{self.name} (exit code {code}) said:\n  {said}\nand on stderr:\n{errors}"
