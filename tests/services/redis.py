"""A private Redis server.

Owns its folder, its port and its process. The port stays the same across `revive`, so that a
client's URL outlives a crash. By default every write reaches the log before it is answered, which
a crash of the *server* survives; only ``durable=True`` also waits for the disk, for measurements.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.services import START_LIMIT_S, Unavailable, end, free_port, install

# The log is written at every command either way; this is whether the disk is waited for.
FAST = {"appendfsync": "no"}
DURABLE = {"appendfsync": "always"}
LOGGED = {"appendonly": "yes", "save": ""}
EMPTY = '""'
# For a server that keeps nothing at all.
FORGETFUL = {"appendonly": "no", "save": ""}


class RedisServer:
    """One server, from `start` to `stop`; also a context manager.

    ``settings`` are those of redis.conf and win over the defaults. With ``tls`` the port speaks TLS
    and nothing else.

    Raises:
        Unavailable: On `start`, when Redis cannot be had or does not come up.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        tls: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.port = 0
        self._tls = tls
        self._settings = {**LOGGED, **(DURABLE if durable else FAST), **(settings or {})}
        self._folder: Path | None = None
        self._program: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        """The Unix socket."""
        return self._require_folder() / "socket"

    @property
    def pid(self) -> int:
        """The server's process id. It must be running."""
        assert self._process is not None
        return self._process.pid

    @property
    def version(self) -> str:
        """The server's version, such as ``7.0.15``."""
        program = self._program or install.redis_server()
        said = subprocess.run([program, "--version"], capture_output=True, check=True, text=True)
        found = re.search(r"v=(\S+)", said.stdout)
        return found[1] if found else said.stdout.strip()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start, and wait until it answers."""
        self._program = install.redis_server()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="outlive-redis-"))
        # Another program may take the port between our choosing and the server's binding it.
        for last_try in (False, False, True):
            self.port = free_port()
            try:
                self._launch()
            except Unavailable:
                if last_try:
                    self.stop()
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Stop the server and remove its folder. Safe to repeat, and before `start`."""
        # A server that writes its first log refuses to end in an orderly way.
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def crash(self) -> None:
        """Kill the server: connections break, nothing is written. `revive` starts it again."""
        self._end()

    def revive(self, *, loaded: bool = True) -> None:
        """Start again on the same port, with whatever the server kept.

        Without ``loaded`` the server may still be busy with reading it.
        """
        self._launch(loaded=loaded)

    def slow_down(self, setting: str, value: str) -> None:
        """Let the next start use ``setting``; for delays that Redis has for its own tests."""
        self._settings[setting] = value

    def command(self, *words: str) -> str:
        """Send one command on a connection of its own and give the raw reply."""
        return self.commands(words)

    def commands(self, *commands: tuple[str, ...]) -> str:
        """Send commands one after the other and give the raw reply to the last."""
        with socket.create_connection(("127.0.0.1", self.port), START_LIMIT_S) as connection:
            reply = b""
            for words in commands:
                connection.sendall(_packed(words))
                reply = connection.recv(1 << 20)
        return reply.decode(errors="replace")

    def log(self) -> str:
        """Give what the server wrote, for a failing test to show."""
        path = self._require_folder() / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _require_folder(self) -> Path:
        if self._folder is None:
            raise Unavailable("redis", "the server was not started, or is stopped for good")
        return self._folder

    def _launch(self, *, loaded: bool = True) -> None:
        folder = self._require_folder()
        assert self._program is not None
        settings = {
            "port": "0" if self._tls else str(self.port),
            **({"tls-port": str(self.port)} if self._tls else {}),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "unixsocket": str(folder / "socket"),
            **self._settings,
        }
        path = folder / "redis.conf"
        # Servers differ in how they read a value of several words from the command line.
        path.write_text("".join(f"{name} {value or EMPTY}\n" for name, value in settings.items()))
        with (folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C in a terminal reaches pytest and not the server.
            self._process = subprocess.Popen(
                [self._program, path],
                env=dict(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_ready(self._process, loaded=loaded)

    def _wait_ready(self, process: subprocess.Popen[bytes], *, loaded: bool) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            answer = self._answer()
            # One that asks for a password answers with an error, and answers.
            ready = answer and not (loaded and answer.startswith(b"-LOADING"))
            if ready and process.poll() is None:
                return
            # Waiting for the process's end is the pause between two tries.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
                break
        self._end()
        lines = self.log().strip().splitlines()
        raise Unavailable("redis", f"did not start: {lines[-1] if lines else 'no log'}")

    def _answer(self) -> bytes:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2.0)
            connection.connect(str(self.socket_path))
            connection.sendall(_packed(("PING",)))
            return connection.recv(1024)
        return b""

    def _end(self) -> None:
        if self._process is not None:
            end(self._process, signal.SIGKILL)
            self._process = None


def _packed(words: tuple[str, ...]) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)
