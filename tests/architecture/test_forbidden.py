"""What the package must not use: code made from data, and a clock, dice or environment of its own.

A name is followed through its import, so that ``from time import monotonic as m`` is found as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Module, modules

# Each of these turns bytes from a store or a client into running code.
DATA_AS_CODE = ("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "yaml.load")
BUILTINS_AS_CODE = frozenset({"eval", "exec", "__import__", "compile"})

# Time, chance and surroundings come in as arguments, or tests could not move them.
AMBIENT = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random",
    "uuid",
    "secrets",
    "os.environ",
    "os.getenv",
    "os.urandom",
)
# A type, or a generator whose seed its caller gives, depends on nothing outside.
# A name-based id is a digest of its arguments.
HARMLESS = frozenset({"random", "random.Random", "uuid", "uuid.UUID", "uuid.uuid5", "secrets"})
# The composition root and the entry points, and the one module that hands ids and dice to the rest.
MAY_LOOK_OUTSIDE = (
    "src/outlive/clock.py",
    "src/outlive/connect.py",
    "src/outlive/settings.py",
    "src/outlive/cli/",
    "src/outlive/demo",
    "src/outlive/runtime/runtime.py",
)

# From Python 3.14 on a shield tells the loop of an error that comes after its waiter was cancelled,
# also where somebody else takes it. ``asyncio.wait`` leaves a task alone as well, and tells nobody.
# In these the error is nobody's, or is none.
MAY_SHIELD = (
    "src/outlive/blocking/leases.py",
    "src/outlive/connect.py",
    "src/outlive/drivers/redis/wire.py",
    "src/outlive/drivers/sqlite/writer.py",
    "src/outlive/flows/saga.py",
    "src/outlive/host.py",
    "src/outlive/server/serving.py",
)


def names_used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Give each imported name and each dotted use of one, in full, with its line."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node, imported)
            if dotted is not None:
                yield node.lineno, dotted


def _dotted(node: ast.expr, imported: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, imported)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def within(name: str, forbidden: tuple[str, ...]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in forbidden)


def data_as_code(tree: ast.Module) -> list[tuple[int, str]]:
    found = [(line, name) for line, name in names_used(tree) if within(name, DATA_AS_CODE)]
    found += [
        (node.lineno, node.func.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in BUILTINS_AS_CODE
    ]
    return found


def ambient(tree: ast.Module) -> list[tuple[int, str]]:
    return [
        (line, name)
        for line, name in names_used(tree)
        if within(name, AMBIENT) and name not in HARMLESS
    ]


def package() -> tuple[Module, ...]:
    return modules("src/outlive")


def listed(module: Module, found: list[tuple[int, str]]) -> list[str]:
    return [f"{module.name}:{line} {name}" for line, name in found]


def test_data_never_becomes_code():
    found = [entry for module in package() for entry in listed(module, data_as_code(module.tree))]
    assert found == []


def test_time_chance_and_environment_come_in_as_arguments():
    inner = [module for module in package() if not module.name.startswith(MAY_LOOK_OUTSIDE)]
    assert len(inner) > 5
    found = [entry for module in inner for entry in listed(module, ambient(module.tree))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.monotonic()",
        "from time import monotonic as m",
        "import time as t\nx = t.time",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as d\nd.datetime.now(d.UTC)",
        "import random\nrandom.random()",
        "from uuid import uuid4",
        "import os\nos.environ['A']",
        "from os import environ",
        "import secrets\nsecrets.token_hex()",
    ],
)
def test_the_search_finds_what_is_forbidden(text):
    assert ambient(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from pickle import loads", "import yaml\nyaml.load('')", "eval('1')"],
)
def test_the_search_finds_code_made_from_data(text):
    assert data_as_code(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "import random\ndef f(dice: random.Random): ...",
        "from uuid import UUID",
        "from datetime import datetime\nx: datetime",
        "import yaml\nyaml.safe_load('')",
        "self.time.monotonic()",
    ],
)
def test_the_search_lets_the_harmless_pass(text):
    assert not ambient(ast.parse(text))
    assert not data_as_code(ast.parse(text))


def test_shields_stand_only_where_nobody_takes_the_error() -> None:
    shields = {
        module.name
        for module in package()
        if any(name == "asyncio.shield" for _, name in names_used(module.tree))
    }
    assert shields == set(MAY_SHIELD)


def test_no_statement_of_sqlite_has_numbered_parameters() -> None:
    # Python 3.12.0 to 3.12.3 takes them for named ones and warns of each statement.
    numbered = re.compile(r"[\s(,=<>]\?\d")
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules("src/outlive/drivers/sqlite", "benchmarks", "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and numbered.search(node.value)
    ]
    assert not found
