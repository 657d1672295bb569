"""Where the package starts programs, sends requests, and imports or matches by a text that varies.

No stored payload and no request of a client leads to any of these: only entry points do, by the
arguments of their caller.
"""

from __future__ import annotations

import ast
import re

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
    # The command stands on its own command line; of a job it has the payload on its input.
    "src/outlive/cli/work_run.py",
    "src/outlive/bench/contest.py",
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

# The app of a command, the command itself, and a driver by its scheme.
MAY_IMPORT_BY_NAME = {
    "src/outlive/cli/main.py",
    "src/outlive/cli/worker.py",
    "src/outlive/connect.py",
}

# Patterns that are put together from names of our own, and from text that is escaped.
MAY_MAKE_PATTERNS = {"src/outlive/cli/invocation.py", "src/outlive/server/flow_answers.py"}


def users_of(names: tuple[str, ...]) -> set[str]:
    return {
        module.name
        for module in modules("src/outlive")
        if any(within(name, names) for _, name in names_used(module.tree))
    }


IMPORT = re.compile(r"(importlib\.)?import_module|__import__")
PATTERN = re.compile(r"re\.(compile|match|fullmatch|search|sub|split|findall|finditer)")


def calls_by_what_varies(function: re.Pattern[str], tree: ast.Module) -> bool:
    """Whether a function is called with something else than a text that stands there."""
    return any(
        isinstance(node, ast.Call)
        and function.fullmatch(ast.unparse(node.func))
        and not isinstance(node.args[0], ast.Constant)
        for node in ast.walk(tree)
    )


def callers_of(function: re.Pattern[str]) -> set[str]:
    return {
        module.name
        for module in modules("src/outlive")
        if calls_by_what_varies(function, module.tree)
    }


def test_nothing_stored_starts_a_program():
    assert users_of(PROGRAMS) - MAY_START_PROGRAMS == set()


def test_no_server_and_no_host_sends_requests_to_stored_addresses():
    assert users_of(REQUESTS) - MAY_SEND_REQUESTS == set()


def test_nothing_stored_names_a_module_to_import():
    assert callers_of(IMPORT) - MAY_IMPORT_BY_NAME == set()


def test_no_user_gives_a_regular_expression():
    assert callers_of(PATTERN) - MAY_MAKE_PATTERNS == set()


@pytest.mark.parametrize(
    ("function", "text", "found"),
    [
        (IMPORT, "importlib.import_module(job.handler)", True),
        (IMPORT, "import_module(f'{a}.b')", True),
        (IMPORT, "__import__(name)", True),
        (IMPORT, "importlib.import_module('pydantic')", False),
        (PATTERN, "re.compile(request.query)", True),
        (PATTERN, "re.fullmatch('[a-z]+', name)", False),
    ],
)
def test_a_call_by_what_varies_is_found(function, text, found):
    assert calls_by_what_varies(function, ast.parse(text)) is found
