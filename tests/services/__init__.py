"""Real servers for tests: private copies on free ports, in temporary folders.

Owns finding, fetching, starting and stopping them. Never touches a server that it did not start,
and never leaves one behind: each is stopped by the process id that starting it gave. A server that
cannot be had raises `Unavailable`, which the fixtures turn into a visible skip, or into a failure
under ``CI=true``.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A private server starts in about a second; ten times that means that it never will.
START_LIMIT_S = 30.0


class Unavailable(Exception):
    """A service cannot be had here. ``reason`` is one line, fit for the end of a test run."""

    def __init__(self, service: str, reason: str) -> None:
        self.service = service
        self.reason = " ".join(reason.split())
        super().__init__(f"{service}: {self.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a server runs as. Database servers refuse root, so that root hands over to another."""

    name: str
    uid: int
    gid: int

    @classmethod
    def for_servers(cls) -> Account | None:
        """Give the account to switch to, or ``None`` when the current one will do."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
        raise Unavailable("servers", "running as root and there is no account to hand over to")

    def can_run(self, program: Path) -> bool:
        """Tell whether this account reaches ``program``; a folder above it may be closed to it."""
        try:
            done = subprocess.run(
                [program, "--version"],
                **switch_to(self),
                cwd="/",
                capture_output=True,
                check=False,
                timeout=START_LIMIT_S,
            )
        except OSError:
            return False
        return done.returncode == 0


def switch_to(account: Account | None) -> dict[str, object]:
    """Give the arguments that make ``subprocess`` start a program as ``account``."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def free_port() -> int:
    """Give a port that nobody used a moment ago. A server may still lose the race for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end(process: subprocess.Popen[bytes], how: signal.Signals, *, limit_s: float = 15.0) -> None:
    """Send ``how`` to a process that we started and wait for its end; kill it after ``limit_s``."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
