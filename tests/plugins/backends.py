"""Which backends took part in a run, and in which version: the proof beside the green dots.

Owns the register. A server that `service_tests` starts enters by itself if it has a ``version``
(``"15.18"``); it is named by its ``backend``, or else by its class without ``Server``. What needs
no server enters by its conformance tests. What a worker of pytest-xdist saw is added to what the
others saw.
"""

from __future__ import annotations

import sqlite3

import pytest

_TOOK_PART = pytest.StashKey[dict[str, set[str]]]()
# The tests of a backend without a server, its name and its version.
_EMBEDDED = {
    "test_memory.py": ("memory", ""),
    "test_sqlite.py": ("SQLite", sqlite3.sqlite_version),
}


def note(config: pytest.Config, server: object) -> None:
    """Enter ``server``, now that it has started; what has no version is no backend."""
    version = getattr(server, "version", None)
    if isinstance(version, str):
        name = getattr(server, "backend", type(server).__name__.removesuffix("Server"))
        _register(config).setdefault(name, set()).add(version)


def entries(config: pytest.Config) -> dict[str, list[str]]:
    """The register, in a form that goes from a worker to the run it belongs to."""
    return {name: sorted(versions) for name, versions in _register(config).items()}


def add(config: pytest.Config, seen: dict[str, list[str]]) -> None:
    """Enter what a worker saw."""
    for name, versions in seen.items():
        _register(config).setdefault(name, set()).update(versions)


def line(config: pytest.Config) -> str | None:
    """Every backend of this run with its versions, or ``None`` if there was none."""
    register = _register(config)
    if not register:
        return None
    # By name: with several workers the order in which servers started means nothing.
    named = [
        " ".join([name, *sorted(versions - {""})])
        for name, versions in sorted(register.items(), key=lambda entry: entry[0].lower())
    ]
    return f"backends: {', '.join(named)}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.parent.name == "conformance" and item.path.name in _EMBEDDED:
        name, version = _EMBEDDED[item.path.name]
        _register(item.config).setdefault(name, set()).add(version)


def _register(config: pytest.Config) -> dict[str, set[str]]:
    return config.stash.setdefault(_TOOK_PART, {})
