"""A private Azure Blob Storage: the emulator Azurite.

Owns one Node process, its folder and its port, which stay the same across `halt` and `revive`. The
account and its key are made up for each server. What it does otherwise than the service, and tests
must respect: a write under the id of a lease that ran out is refused, the service accepts it; a
renewal after expiry is not held to the lease id; a restart lets all leases run out; no request is
ever throttled.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from tests.services import START_LIMIT_S, Unavailable, end, free_port, install

ACCOUNT = "outlivetests"

# The account of an Azurite that was told nothing: the one of UseDevelopmentStorage=true.
PUBLIC = (
    "devstoreaccount1:Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr"
    "/KBHBeksoGMGw=="
)


class AzuriteServer:
    """One storage account, from `start` to `stop`; also a context manager.

    Raises:
        Unavailable: On `start`, when Node or Azurite cannot be had, or it does not come up.
    """

    def __init__(self) -> None:
        self.port = 0
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        self._package: Path | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        """The version of the emulator. It must have been started."""
        assert self._package is not None
        return json.loads((self._package / "package.json").read_text())["version"]

    @property
    def endpoint(self) -> str:
        """Where the account is."""
        return self.endpoint_at(self.port)

    def endpoint_at(self, port: int) -> str:
        """Give the address of the account behind another port, such as a proxy's."""
        return f"http://127.0.0.1:{port}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """What a client needs to know."""
        return f"AccountName={ACCOUNT};AccountKey={self.key};BlobEndpoint={self.endpoint}"

    def url_of(self, container: str) -> str:
        """Give the URL of a container, with all that it takes to use it."""
        query = urlencode({"endpoint": self.endpoint, "account_key": self.key})
        return f"azblob://{ACCOUNT}/{container}?{query}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start an empty account and wait until it answers."""
        self._package = install.azurite()
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-azurite-"))
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
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """End the server with SIGKILL. What it did not save by then is lost."""
        self._end(signal.SIGKILL)

    def halt(self) -> None:
        """End the server in order, so that `revive` finds everything."""
        self._end(signal.SIGTERM)

    def revive(self) -> None:
        """Start again on the same port, with what was saved."""
        self._launch()

    def _launch(self) -> None:
        assert self._package is not None
        assert self._folder is not None
        with (self._folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C in a terminal reaches pytest and not the server.
            self._process = subprocess.Popen(
                [
                    str(install.node()),
                    str(self._package / "dist" / "src" / "blob" / "main.js"),
                    *("--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
                    *("--location", str(self._folder / "data")),
                    # A new client library may be ahead of the emulator.
                    *("--silent", "--skipApiVersionCheck", "--disableTelemetry"),
                ],
                env=os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.key};{PUBLIC}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_ready(self._process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
                # A stranger on the same port would have answered too.
                if process.poll() is None:
                    return
            # Waiting for the process's end is the pause between two tries.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
                break
        self.kill()
        assert self._folder is not None
        lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        raise Unavailable("azurite", f"did not start: {lines[-1] if lines else 'no log'}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            end(self._process, how)
            self._process = None
