"""Starts programs by forking a process that has imported what they need.

A program is a process as if ``python -m`` had started it: its own id, session, folder, environment
and streams, and the same death. Only the imports, which are most of a start, were done before.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
# Set for a process before its interpreter or its libraries begin: only a new one can heed them.
_BEFORE_THE_START = ("LD_PRELOAD", "PYTHONHASHSEED")
# What the forking process imports from; with another path, a program gets other modules.
_PATH = str(ROOT)
# More than a forked process needs to hear that nobody asks any more.
_END_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start: a module, its arguments and its surroundings."""

    module: str
    arguments: list[str]
    folder: Path
    env: Mapping[str, str]


class Nursery:
    """Owns the process that forks. It reaps nobody until it is asked: no id is reused before."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            module = "tests.process.programs.nursery"
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", module, str(theirs.fileno())],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(self, program: Program, errors: int) -> Forked | Spawned:
        """Start ``program``, with ``errors`` open for what it says there."""
        elsewhere = program.env.get("PYTHONPATH") != _PATH
        if elsewhere or any(name in program.env for name in _BEFORE_THE_START):
            return Spawned(
                [sys.executable, "-W", "error", "-m", program.module, *program.arguments],
                cwd=program.folder,
                env=program.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        return Forked(self, program, errors)

    def ask(self, do: str, *streams: int, **fields: Any) -> int:
        """Send one request, with open streams, and wait for its answer."""
        data = json.dumps({"do": do, **fields}).encode()
        with self._asking:
            socket.send_fds(self._requests, [data], list(streams))
            answer = self._requests.recv(64)
        if not answer:
            raise RuntimeError(f"the nursery has ended, with code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process that forks."""
        self._requests.close()
        self._process.wait(_END_LIMIT_S)


class Forked:
    """One program, with those parts of ``subprocess.Popen`` that tests use."""

    def __init__(self, nursery: Nursery, program: Program, errors: int) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.stdin: IO[str] = os.fdopen(ours_in, "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(ours_out, encoding="utf-8")
        self.returncode: int | None = None
        self._nursery = nursery
        self.pid = nursery.ask(
            "start",
            *(theirs_in, theirs_out, errors),
            module=program.module,
            arguments=program.arguments,
            folder=str(program.folder),
            env=dict(program.env),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and give the exit code; negative for a signal."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _look(self, limit_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], limit_s)[0]:
            self.returncode = self._nursery.ask("reap", pid=self.pid)
            os.close(self._ended)
        return self.returncode

    def await_stop(self) -> bool:
        """Wait until every thread has stopped, as the kernel says it; ``False``: it has ended."""
        return bool(self._nursery.ask("await_stop", pid=self.pid))

    def kill(self) -> None:
        """SIGKILL, unless it is known to have ended."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM, unless it is known to have ended."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class Spawned(subprocess.Popen[str]):
    """One program that was started the usual way."""

    def await_stop(self) -> bool:
        """Wait until every thread has stopped, as the kernel says it; ``False``: it has ended."""
        # WNOWAIT leaves the end of the process to Popen.
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return found is not None and found.si_code == os.CLD_STOPPED
