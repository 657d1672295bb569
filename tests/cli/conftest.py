"""The command line as a user meets it, against a SQLite file of the test's own.

Two ways lead there. ``outlive`` starts real processes: for signals, terminals, pipes, the
interpreter's surroundings, and once for each group of commands. ``shell`` runs the same commands in
this process, for everything else. Both share one folder, and with it the store.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from outlive.cli.main import main
from tests.cli.terminals import Terminal
from tests.services.azurite import ACCOUNT, AzuriteServer
from tests.services.cosmos import CosmosEmulator

COMMAND = (sys.executable, "-m", "outlive.cli.main")

# The stores that demo and wizard are tried on: "sqlite", or a fixture that gives a URL, or a
# ``SharedStore`` where a secret is needed. A driver joins with one line.
SHARED_STORES = [
    "sqlite",
    pytest.param("postgres_url", marks=pytest.mark.service),
    pytest.param("redis_url", marks=pytest.mark.service),
    pytest.param("azblob_store", marks=pytest.mark.service),
    pytest.param("cosmos_store", marks=pytest.mark.service),
]

# Far above what any command here needs; a hang fails the test with its output.
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A store, and how the wizard is told to get in: by ``auth``, with the secret in ``variable``.

    ``environ`` is set for every command, and must hold what opens the store without the wizard's
    file (``OUTLIVE_OPTIONS_…``) as well as the variable.
    """

    url: str
    auth: str = "none"
    variable: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Program:
    """Runs ``outlive`` in its own folder, with nothing inherited but what the test gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SharedStore(f"sqlite:///{folder}/leases.db")
        self.started: list[subprocess.Popen[str]] = []
        self.terminals: list[Terminal] = []

    @property
    def url(self) -> str:
        return self.store.url

    def environ(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")}
        return {**inherited, **self.store.environ, "OUTLIVE_URL": self.url, **more}

    def __call__(self, *arguments: str, **environ: str) -> Outcome:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ(**environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.started.append(process)
        return process

    def at_terminal(self, *arguments: str, **environ: str) -> Terminal:
        terminal = Terminal([*COMMAND, *arguments], self.folder, self.environ(**environ))
        self.terminals.append(terminal)
        return terminal

    def finish(self, process: subprocess.Popen[str]) -> Outcome:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        return Outcome(process.returncode, stdout, stderr)


class Shell:
    """Runs ``outlive`` in this process, where a start costs nothing.

    The same code, but that the interpreter's own start and end are left out.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/leases.db"

    def __call__(self, *arguments: str, stdin: str = "", **environ: str) -> Outcome:
        with self._monkeypatch.context() as patch, log_of_one_command():
            for name in [name for name in os.environ if name.startswith("OUTLIVE_")]:
                patch.delenv(name)
            patch.setenv("OUTLIVE_URL", self.url)
            for name, value in environ.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "argv", ["outlive", *arguments])
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            with pytest.raises(SystemExit) as ended:
                main()
        said = self._capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err)


@contextmanager
def log_of_one_command() -> Iterator[None]:
    """Let a command listen to the log by itself, and take its ears off when it ends.

    Also what the app that it imports sets up on the root logger, beside pytest's own handlers.
    """
    ours, root = logging.getLogger("outlive"), logging.getLogger()
    found = [(each, list(each.handlers), each.propagate, each.level) for each in (ours, root)]
    ours.handlers.clear()
    try:
        yield
    finally:
        for logger, handlers, propagate, level in found:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def made_store(shell: Shell) -> None:
    """The store of ``shell`` and ``outlive``, made: commands that add something make none."""
    assert shell("migrate").code == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts processes: all that ask for ``outlive``."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "outlive" in fixtures and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.process)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something another process does; there is no signal to wait on."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether ``pid`` runs: a zombie whose parent does not reap it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def outlive(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    for process in program.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for terminal in program.terminals:
        terminal.close()


@pytest.fixture
def azblob_store(azurite_server: AzuriteServer) -> SharedStore:
    """A container of its own, opened by a connection string in a variable."""
    return SharedStore(
        f"azblob://{ACCOUNT}/cli-{uuid.uuid4().hex}",
        auth="connection-string",
        variable="STORAGE",
        environ={
            "STORAGE": azurite_server.connection_string,
            "OUTLIVE_OPTIONS_CONNECTION_STRING": "env:STORAGE",
        },
    )


@pytest.fixture
def cosmos_store(cosmos_emulator: CosmosEmulator) -> SharedStore:
    """A container of its own, opened by the account's key in a variable."""
    endpoint = quote(cosmos_emulator.endpoint, safe="")
    return SharedStore(
        f"cosmos://emulator/cli/{uuid.uuid4().hex}?endpoint={endpoint}",
        auth="key",
        variable="COSMOS",
        environ={
            "COSMOS": cosmos_emulator.key,
            "OUTLIVE_OPTIONS_ACCOUNT_KEY": "env:COSMOS",
        },
    )


@pytest.fixture(params=SHARED_STORES)
def shared(request: pytest.FixtureRequest, outlive: Program) -> Program:
    """``outlive`` on each store that several processes can share."""
    if request.param != "sqlite":
        found = request.getfixturevalue(request.param)
        outlive.store = found if isinstance(found, SharedStore) else SharedStore(found)
    return outlive
