"""A program at a real terminal: what a person would see there, and type."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Far above what any command here needs; a hang fails the test with what was on the screen.
PATIENCE_S = 60.0

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """One program whose input, output and complaints are one terminal."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self._master, program_side = os.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, "TERM": "xterm", "COLUMNS": "120"},
            stdin=program_side,
            stdout=program_side,
            stderr=program_side,
            start_new_session=True,
        )
        os.close(program_side)
        self._screen = ""
        self._seen = 0

    @property
    def screen(self) -> str:
        """All that was shown, without colours."""
        return _COLOUR.sub("", self._screen).replace("\r\n", "\n")

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until ``pattern`` appears after what was expected before."""
        until = time.monotonic() + PATIENCE_S
        while (found := re.compile(pattern).search(self.screen, self._seen)) is None:
            assert time.monotonic() < until, f"{pattern!r} never came:\n{self.screen}"
            assert self._read(), f"the program ended without {pattern!r}:\n{self.screen}"
        self._seen = found.end()
        return found

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C. The terminal belongs to no session here, so the signal is sent."""
        self.process.send_signal(signal.SIGINT)

    def hang_up(self) -> None:
        """Press Ctrl-D: whoever asks next gets no answer. It waits in the terminal until read."""
        os.write(self._master, b"\x04")

    def finish(self) -> int:
        """Wait for the end and give the exit code."""
        until = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < until, f"it never ended:\n{self.screen}"
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End the program, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        """Read what came; false when the program has closed the terminal."""
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            # What Linux says when the last program has left the terminal.
            return False
        self._screen += data.decode(errors="replace")
        return True
