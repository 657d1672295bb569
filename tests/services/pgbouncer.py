"""PgBouncer in transaction mode, in front of a `PostgresServer`.

Owns one PgBouncer process and its folder. Few server connections are shared by all clients, so that
two transactions of one client land on different ones: whatever leans on session state breaks here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import psycopg

from tests.services import START_LIMIT_S, Account, Unavailable, end, free_port, install, switch_to
from tests.services.postgres import PostgresServer

CONFIG = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,options
"""


class PgBouncer:
    """One pooler, from `start` to `stop`; also a context manager.

    Raises:
        Unavailable: On `start`, when PgBouncer cannot be had or does not come up.
    """

    def __init__(self, server: PostgresServer, *, pool_size: int = 4) -> None:
        self.port = 0
        self._server = server
        self._pool_size = pool_size
        self._account = Account.for_servers()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def url_of(self, server_url: str) -> str:
        """Give the URL that reaches the database of ``server_url`` through the pooler."""
        database = server_url.rpartition("/")[2]
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def url(self) -> str:
        """The server's first database, through the pooler."""
        return self.url_of(self._server.url)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start, and wait until a client gets through to the server."""
        program = install.pgbouncer()
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-pgbouncer-"))
        self.port = free_port()
        config = self._folder / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(
                server_port=self._server.port,
                port=self.port,
                folder=self._folder,
                pool_size=self._pool_size,
            )
        )
        (self._folder / "users").write_text('"postgres" ""\n')
        if self._account is not None:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, self._account.uid, self._account.gid)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, config],
                **switch_to(self._account),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_ready(self._process)
        return self

    def stop(self) -> None:
        """Stop at once and remove the folder. Safe to repeat, and before `start`."""
        if self._process is not None:
            end(self._process, signal.SIGTERM)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=2).close()
                if process.poll() is None:
                    return
            # Waiting for the process's end is the pause between two tries.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
                break
        assert self._folder is not None
        lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        self.stop()
        raise Unavailable("pgbouncer", f"did not start: {lines[-1] if lines else 'no log'}")
