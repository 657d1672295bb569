"""A private Azure Cosmos DB: the emulator from npm, behind a launcher of ours.

Owns one Node process and its port, which stays the same across `kill` and `revive`. The emulator
keeps everything in memory, so that a revived one is empty: that is what losing the record looks
like. It speaks HTTP. What it does otherwise than the service stands in ``cosmos_emulator.js``; what
it cannot do at all (throttling, regions, staleness) is played by `tests.services.http_faults`.
"""

from __future__ import annotations

import base64
import itertools
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tests.services import START_LIMIT_S, Unavailable, end, free_port, install

LAUNCHER = Path(__file__).with_name("cosmos_emulator.js")


class CosmosEmulator:
    """One account, from `start` to `stop`; also a context manager.

    Raises:
        Unavailable: On `start`, when Node or the emulator cannot be had, or it does not come up.
    """

    backend = "Azure Cosmos DB emulator"

    def __init__(self, *, multi_write: bool = False) -> None:
        self.port = 0
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        self.version = ""
        self._flags = ["--multi-write"] if multi_write else []
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._names = itertools.count(1)

    @property
    def endpoint(self) -> str:
        """Where the account is."""
        return f"http://127.0.0.1:{self.port}/"

    def url_of(self, container: str = "", *, endpoint: str | None = None) -> str:
        """Give the URL of a container of this account, with its key."""
        path = f"/DistributedLeasing/{container}" if container else ""
        where = quote(endpoint or self.endpoint, safe="")
        return f"cosmos://emulator{path}?endpoint={where}&account_key={quote(self.key, safe='')}"

    def new_url(self) -> str:
        """Give the URL of a container that does not exist yet."""
        return self.url_of(f"Leases{next(self._names)}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start an empty account and wait until it answers."""
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-cosmos-"))
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
        """Stop for good. Safe to repeat, and before `start`."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """End the server at once: connections break, and everything it held is gone."""
        if self._process is not None:
            assert self._process.stdout is not None
            end(self._process, signal.SIGKILL)
            self._process.stdout.close()
            self._process = None

    def revive(self) -> None:
        """Start again after `kill`, on the same port, with nothing in it."""
        self._launch()

    def _launch(self) -> None:
        node, package = install.node(), install.cosmos_emulator()
        assert self._folder is not None
        with (self._folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C in a terminal reaches pytest and not the server.
            self._process = subprocess.Popen(
                [node, LAUNCHER, package, str(self.port), self.key, *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        line = self._first_line(self._process)
        if not line.startswith("ready "):
            self.kill()
            raise Unavailable("cosmos", f"did not start: {self._last_words()}")
        self.version = line.removeprefix("ready ")

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_LIMIT_S)
        return process.stdout.readline().decode().strip() if ready else ""

    def _last_words(self) -> str:
        assert self._folder is not None
        lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        return next((line for line in lines if "Error" in line), "no answer in time")
