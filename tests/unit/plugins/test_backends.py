"""The end of a test run names each backend that took part, and its version."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

PROGRAM = """
class RedisServer:
    version = "7.0.15"

class Emulator:
    backend, version = "Cosmos emulator", "1.0.1"

class Pooler:
    pass

def test_servers_enter_when_they_start(pytestconfig):
    from tests.plugins import backends
    for server in (RedisServer(), RedisServer(), Emulator(), Pooler()):
        backends.note(pytestconfig, server)
"""


def last_line(folder: Path, *options: str) -> str:
    """Run the tests of ``folder`` with the two plugins, and give the last line it prints."""
    root = Path(__file__).parents[3]
    # By name: loading what every installed tool brings takes longer than the tests.
    named = ("xdist", "tests.plugins.backends", "tests.plugins.service_tests")
    plugins = [word for name in named for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, *plugins, *options, folder],
        env={**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()[-1]


def test_each_backend_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "conformance").mkdir()
    for name in ("test_memory", "test_sqlite"):
        (tmp_path / "conformance" / f"{name}.py").write_text("def test_it(): pass\n")
    (tmp_path / "test_servers.py").write_text(PROGRAM)
    wanted = f"Cosmos emulator 1.0.1, memory, Redis 7.0.15, SQLite {sqlite3.sqlite_version}"
    assert last_line(tmp_path) == f"backends: {wanted}"
    assert last_line(tmp_path, "-n", "2") == f"backends: {wanted}"


def test_a_run_without_backends_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_it(): pass\n")
    assert last_line(tmp_path).startswith("1 passed")
