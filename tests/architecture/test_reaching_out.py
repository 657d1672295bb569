"""Where the package starts programs, sends requests of its own and imports by a name that varies.

What is stored in a payload, or sent by a client, leads to none of these: only entry points do, by
the arguments of their caller.
"""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import modules
from tests.architecture.test_forbidden import names_used, within

PROGRAMS = (
    *("subprocess", "multiprocessing", "os.system", "os.popen", "os.fork", "os.posix_spawn"),
    *("os.execv", "os.execve", "os.execvp", "os.execvpe"),
    *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
)
# The command of `lease run`, and processes of our own.
MAY_START_PROGRAMS = {
    "src/outlive/bench/crew.py",
    "src/outlive/cli/child.py",
    "src/outlive/demo/instances.py",
    "src/outlive/demo/race.py",
}

REQUESTS = (
    *("urllib.request", "http.client", "aiohttp", "httpx", "requests"),
    *("asyncio.open_connection", "socket.create_connection"),
)
# The client of the HTTP API, whose program names the address.
MAY_SEND_REQUESTS = {"src/outlive/client/http.py"}

# The app of a command, the command itself, and a driver by its scheme. The scan of flow code looks
# into modules that the program has imported.
MAY_IMPORT_BY_NAME = {
    "src/outlive/cli/main.py",
    "src/outlive/cli/worker.py",
    "src/outlive/connect.py",
    "src/outlive/flows/scanning.py",
}


def users_of(names: tuple[str, ...]) -> set[str]:
    return {
        module.name
        for module in modules("src/outlive")
        if any(within(name, names) for _, name in names_used(module.tree))
    }


def imports_by_name(tree: ast.Module) -> bool:
    """Whether a module is imported by something else than a text that stands there."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        and not isinstance(node.args[0], ast.Constant)
        for node in ast.walk(tree)
    )


def test_nothing_stored_starts_a_program():
    assert users_of(PROGRAMS) - MAY_START_PROGRAMS == set()


def test_no_server_and_no_host_sends_requests_to_stored_addresses():
    assert users_of(REQUESTS) - MAY_SEND_REQUESTS == set()


def test_nothing_stored_names_a_module_to_import():
    found = {module.name for module in modules("src/outlive") if imports_by_name(module.tree)}
    assert found - MAY_IMPORT_BY_NAME == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import importlib\nimportlib.import_module(job.handler)", True),
        ("from importlib import import_module\nimport_module(f'{a}.b')", True),
        ("__import__(name)", True),
        ("import importlib\nimportlib.import_module('pydantic')", False),
    ],
)
def test_an_import_by_name_is_found(text, found):
    assert imports_by_name(ast.parse(text)) is found
