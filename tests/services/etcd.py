"""A private etcd: one member, or several that form a cluster.

Owns its folder, its ports and its process. The ports stay the same across `restart`, so that a
client's URL outlives a crash. Elections are quick, which also lets leases be as short as a second.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.services import START_LIMIT_S, Unavailable, end, free_port, install

# A tenth and a fifth of the defaults. The shortest ttl is one and a half election time-outs,
# rounded up to a second.
HEARTBEAT_MS = 20
ELECTION_MS = 200


class EtcdServer:
    """One member, from `start` to `stop`; also a context manager.

    ``options`` are added to its command line. A member of a cluster is given its ``peers``, itself
    among them, by `EtcdCluster`.

    Raises:
        Unavailable: On `start`, when etcd cannot be had or does not come up.
    """

    backend = "etcd"

    def __init__(self, *options: str, name: str = "m0", tls: dict[str, Path] | None = None) -> None:
        self.name = name
        self.port = 0
        self.peer_port = 0
        self._options = options
        self._tls = tls
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"etcd://{self.endpoint}"

    @property
    def pid(self) -> int:
        """Its process id. It must be running."""
        assert self._process is not None
        return self._process.pid

    @functools.cached_property
    def version(self) -> str:
        """The version of the server, for example "3.4.23"."""
        done = subprocess.run(
            [install.etcd(), "--version"], capture_output=True, text=True, check=True, timeout=30
        )
        found = re.search(r"etcd Version: (\S+)", done.stdout)
        return found[1] if found else "unknown"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start alone and wait until it takes writes."""
        # Another program may take a port between our choosing and the server's binding it.
        for last_try in (False, False, True):
            self.choose_ports()
            try:
                self.launch([self])
                self.wait_ready()
            except Unavailable:
                self.stop()
                if last_try:
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def choose_ports(self) -> None:
        """Take two ports that nobody used a moment ago."""
        self.port, self.peer_port = free_port(), free_port()

    def launch(self, cluster: Sequence[EtcdServer]) -> None:
        """Start the process as one of ``cluster``. The folder is made at the first time."""
        program = install.etcd()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="outlive-etcd-"))
        scheme = "http" if self._tls is None else "https"
        client, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        members = (f"{other.name}=http://127.0.0.1:{other.peer_port}" for other in cluster)
        self._command = [
            str(program),
            *("--name", self.name, "--data-dir", str(self._folder / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(members)),
            *("--heartbeat-interval", str(HEARTBEAT_MS)),
            *("--election-timeout", str(ELECTION_MS)),
            *("--log-level", "error", "--logger", "zap"),
            *(part for name, path in (self._tls or {}).items() for part in (name, str(path))),
            *self._options,
        ]
        self._run()

    def _run(self) -> None:
        assert self._folder is not None
        with (self._folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C in a terminal reaches pytest and not the server.
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return once a leader is known and writes are taken."""
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.is_healthy() and self._process.poll() is None:
                return
            # Waiting for the process's end is the pause between two tries.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
        lines = self.log().strip().splitlines()
        raise Unavailable("etcd", f"did not start: {lines[-1] if lines else 'no log'}")

    def is_healthy(self) -> bool:
        """Whether it says so itself. With TLS, a connection is all that is looked at."""
        if self._tls is not None:
            return not port_is_closed(self.port)
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=2) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    @property
    def has_died(self) -> bool:
        """Whether its process has ended, though nobody stopped it."""
        return self._process is not None and self._process.poll() is not None

    def is_leader(self) -> bool:
        """Whether it leads its cluster, by its own metrics."""
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/metrics", timeout=2) as answer:
                return b"\netcd_server_is_leader 1" in answer.read()
        except OSError:
            return False

    def log(self) -> str:
        """Give what the server wrote, for a failing test to show."""
        path = self._folder / "log" if self._folder is not None else None
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def kill(self) -> None:
        """End the process with SIGKILL; its data stay for `revive`."""
        if self._process is not None:
            end(self._process, signal.SIGKILL)

    def revive(self) -> None:
        """Start again after `kill`, on the same ports and data."""
        # A client that tries a port again and again while nobody listens may connect to itself, and
        # keep the port for as long as it takes to notice.
        for last_try in (False, False, True):
            self._run()
            try:
                self.wait_ready()
            except Unavailable:
                self.kill()
                if last_try:
                    raise
            else:
                return

    def pause(self) -> None:
        """Stop the process where it stands: connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The signal reaches thread after thread, and until then some of them may still answer.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Let a paused process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process and remove its folder. Safe to repeat, and before `start`."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGCONT)
            end(self._process, signal.SIGTERM)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class EtcdCluster:
    """Several members on the loopback interface."""

    backend = "etcd"

    def __init__(self, size: int = 3) -> None:
        self.members = [EtcdServer(name=f"m{number}") for number in range(size)]

    @property
    def url(self) -> str:
        """The URL that names all members."""
        return "etcd://" + ",".join(member.endpoint for member in self.members)

    @property
    def version(self) -> str:
        """The version of the servers."""
        return self.members[0].version

    def start(self) -> Self:
        """Start all members and wait until each takes writes."""
        for member in self.members:
            member.choose_ports()
        try:
            for member in self.members:
                member.launch(self.members)
            for member in self.members:
                member.wait_ready()
        except Unavailable:
            self.stop()
            raise
        return self

    def leader(self) -> EtcdServer:
        """The member that leads now."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            for member in self.members:
                if member.is_leader():
                    return member
        raise Unavailable("etcd", "no member leads")

    def stop(self) -> None:
        """Stop all members. Safe to repeat."""
        for member in self.members:
            member.stop()


def port_is_closed(port: int) -> bool:
    """Tell whether nobody takes connections there."""
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
