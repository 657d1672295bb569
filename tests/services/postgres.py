"""A private PostgreSQL cluster.

Owns its folder, its port and its postmaster. The port stays the same across `restart`, so that a
client's URL outlives a crash. With ``durable=False`` nothing waits for the disk, which is right for
every test but a measurement: a crash of the *server* (`kill_immediate`) keeps committed work either
way, and only a crash of the machine would lose it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from tests.services import START_LIMIT_S, Account, Unavailable, end, free_port, install, switch_to

# A commit still hands its log to the operating system before it returns. Without synchronous_commit
# it would not, and a crash of the server would lose what a test was told is committed.
FAST = {"fsync": "off", "full_page_writes": "off"}
# Many hosts, each with a pool, share one server in a test.
MAX_CONNECTIONS = 200
STOP_SIGNALS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class PostgresServer:
    """One cluster, from `start` to `stop`; also a context manager.

    ``environment`` is added to the server's own, for example to shift its clock.

    Raises:
        Unavailable: On `start`, when PostgreSQL cannot be had or does not come up.
    """

    backend = "PostgreSQL"

    def __init__(
        self, *, durable: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        self.durable = durable
        self.port = 0
        self._environment = dict(environment or {})
        self._account = Account.for_servers()
        self._folder: Path | None = None
        self._bin: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)

    @property
    def url(self) -> str:
        """The URL of the cluster's first database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Give the URL of ``database`` on this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def version(self) -> str:
        """The server's version, such as 15.18. The server must be running."""
        with psycopg.connect(self.url) as connection:
            number = connection.info.server_version
        return f"{number // 10_000}.{number % 10_000}"

    @property
    def pid(self) -> int:
        """The postmaster's process id. The server must be running."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Make the cluster and wait until it takes connections."""
        if self._folder is None:
            try:
                self._create_cluster()
            except BaseException:
                self._remove_folder()
                raise
        # Another program may take the port between our choosing and the server's binding it.
        for last_try in (False, False, True):
            self.port = free_port()
            try:
                self._launch()
            except Unavailable:
                if last_try:
                    self._remove_folder()
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and remove its folder. Safe to repeat, and before `start`."""
        self._end(mode)
        self._remove_folder()

    def restart(self, mode: str = "fast") -> None:
        """Stop and start again on the same port, with the same data."""
        self._end(mode)
        self._launch()

    def kill_immediate(self) -> None:
        """Crash the server: connections break, nothing is flushed. `revive` recovers it."""
        self._end("immediate")

    def revive(self) -> None:
        """Start again after `kill_immediate`, on the same port; the log is replayed first."""
        self._launch()

    def create_database(self) -> str:
        """Make an empty database and give its URL."""
        name = f"test_{next(self._names)}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url_of(name)

    def drop_database(self, url: str) -> None:
        """Drop a database by its URL, connections and all. Safe to repeat."""
        name = url.rpartition("/")[2]
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def log(self) -> str:
        """Give what the server wrote, for a failing test to show."""
        path = self._require_folder() / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def _require_folder(self) -> Path:
        if self._folder is None:
            raise Unavailable("postgres", "the server was not started, or is stopped for good")
        return self._folder

    def _create_cluster(self) -> None:
        self._bin = install.postgres_bin()
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-postgres-"))
        if self._account is not None:
            os.chown(self._folder, self._account.uid, self._account.gid)
            if not self._account.can_run(self._bin / "postgres"):
                self._bin = _copy_programs(self._bin, self._folder / "programs")
        # Trust on the loopback interface only; -N skips the flush of an empty cluster.
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        done = subprocess.run(
            [self._bin / "initdb", "--pgdata", self._folder / "data", "--locale=C", *options],
            **switch_to(self._account),
            cwd=self._folder,
            capture_output=True,
            check=False,
            timeout=START_LIMIT_S * 2,
        )
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise Unavailable("postgres", f"initdb failed: {lines[-1] if lines else 'silently'}")

    def _launch(self) -> None:
        folder = self._require_folder()
        assert self._bin is not None
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "max_connections": str(MAX_CONNECTIONS),
            **({} if self.durable else FAST),
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C in a terminal reaches pytest and not the server.
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", folder / "data", "-p", str(self.port), *options],
                **switch_to(self._account),
                cwd=folder,
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_ready(self._process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=2).close()
                # A stranger on the same port would have answered too.
                if process.poll() is None:
                    return
            # Waiting for the process's end is the pause between two tries.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
                break
        self._end("immediate")
        lines = self.log().strip().splitlines()
        raise Unavailable("postgres", f"did not start: {lines[-1] if lines else 'no log'}")

    def _end(self, mode: str) -> None:
        if self._process is not None:
            end(self._process, STOP_SIGNALS[mode])
            self._process = None

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _copy_programs(folder: Path, target: Path) -> Path:
    """Copy an installation out of a home folder that the server's account cannot enter.

    The programs find their files relative to themselves, so that a copy works where it keeps its
    shape: ``<package>/<installation>/bin``, and beside the package the libraries of its wheel.
    """
    installation, package = folder.parent, folder.parent.parent
    copy = target / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return copy / folder.name
