"""``lint``: calls in the source of flows that a replay could not repeat.

Reads source by ``ast`` and runs nothing. It looks at the function of each flow, and at the plain
functions (without decorators) of the same file that this calls by name, and that those call. Names
are known by the imports of the file, under any alias; few methods by their names alone. It follows
no variable, no method, no function of another module, and none that is passed on instead of called.
What it does not find, a replay does: ``crash_at_every_commit`` and ``replay-check``.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from outlive.errors import UsageError
from outlive.flows.flow import Flow

_NOW, _RANDOM, _STEP = "outlive.now()", "outlive.random()", "a step (@app.step)"

# What to use instead of what. The longest name that a call begins with decides; "?" is any object.
_CALLS = {
    _NOW: "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter "
    "time.perf_counter_ns time.process_time time.thread_time time.clock_gettime "
    "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today",
    "await asyncio.sleep(…)": "time.sleep",
    _RANDOM: "random secrets os.urandom os.getrandom",
    "outlive.uuid()": "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.getnode",
    "an argument of the flow, or a step": "os.environ os.getenv",
    "await outlive.wait_signal(…)": "builtins.input getpass.getpass",
    _STEP: "builtins.open io.open io.FileIO os os.path.exists os.path.getmtime os.path.getsize "
    "os.path.isdir os.path.isfile pathlib.Path.cwd pathlib.Path.exists pathlib.Path.glob "
    "pathlib.Path.home pathlib.Path.is_dir pathlib.Path.is_file pathlib.Path.mkdir "
    "pathlib.Path.open pathlib.Path.rename pathlib.Path.stat pathlib.Path.touch "
    "pathlib.Path.unlink shutil tempfile glob sqlite3 asyncpg psycopg psycopg2 redis requests "
    "httpx aiohttp urllib3 urllib.request http.client socket smtplib ftplib imaplib subprocess "
    "threading multiprocessing concurrent.futures asyncio.to_thread asyncio.open_connection "
    "asyncio.open_unix_connection asyncio.start_server asyncio.start_unix_server "
    "asyncio.create_subprocess_exec asyncio.create_subprocess_shell "
    "?.run_in_executor ?.read_text ?.read_bytes ?.write_text ?.write_bytes ?.iterdir ?.rglob",
    "": "os.fsdecode os.fsencode os.fspath os.path random.Random secrets.compare_digest",
}
_INSTEAD = {name: instead for instead, names in _CALLS.items() for name in names.split()}

# With an argument these depend on nothing else.
_BARE = {"random.Random": _RANDOM, "time.localtime": _NOW, "time.gmtime": _NOW, "time.ctime": _NOW}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """A call in a flow, and what to use ``instead``."""

    file: str
    line: int
    flow: str
    call: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: flow {self.flow!r} calls {self.call}: use {self.instead}"


class _App(Protocol):
    flows: dict[str, Flow[..., Any]]


def lint(app: _App) -> list[Finding]:
    """What the flows of an ``outlive.App`` call and should not, by file and line. Imports nothing.

    Raises:
        UsageError: The source of a flow cannot be read.
    """
    found: dict[tuple[str, int, int], Finding] = {}
    for flow in app.flows.values():
        code = _code_of(flow.function)
        try:
            tree = ast.parse("".join(inspect.findsource(code)[0]))
        except (OSError, SyntaxError) as error:
            raise UsageError(f"the source of flow {flow.name!r} cannot be read: {error}") from error
        for call, instead in _calls(tree, code.co_name, code.co_firstlineno):
            # Of ``datetime.now(UTC).date()`` the inner call counts, which begins there and is last.
            found[code.co_filename, call.lineno, call.col_offset] = Finding(
                file=code.co_filename,
                line=call.lineno,
                flow=flow.name,
                call=f"{ast.unparse(call.func)}()",
                instead=instead,
            )
    return sorted(found.values())


def _code_of(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    return getattr(function, "__code__", None) or function.__call__.__code__


def _calls(tree: ast.Module, name: str, line: int) -> Iterator[tuple[ast.Call, str]]:
    """Calls to report of the function that begins on ``line``, and of those that it leads to."""
    nodes = list(ast.walk(tree))
    methods = {each for node in nodes if isinstance(node, ast.ClassDef) for each in node.body}
    functions = [node for node in nodes if isinstance(node, _Function)]
    plain = {f.name: f for f in functions if not f.decorator_list and f not in methods}
    imported = dict(pair for node in nodes for pair in _imports(node))
    begins = {f: min(node.lineno for node in [f, *f.decorator_list]) for f in functions}
    found = [f for f in functions if (f.name, begins[f]) == (name, line)]
    for function in found:  # It grows meanwhile.
        inner = list(ast.walk(function))
        own = {node.arg for node in inner if isinstance(node, ast.arg)}
        own |= {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for call in [node for node in inner if isinstance(node, ast.Call)]:
            called = plain.get(call.func.id) if isinstance(call.func, ast.Name) else None
            if called is not None:
                found += [called] if called not in found else []
            elif instead := _instead(call, imported, own):
                yield call, instead


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for each in node.names:
            top = each.name.partition(".")[0]
            yield each.asname or top, each.name if each.asname else top
    elif isinstance(node, ast.ImportFrom):
        for each in node.names:
            yield each.asname or each.name, f"{'.' * node.level}{node.module}.{each.name}"


def _instead(call: ast.Call, imported: Mapping[str, str], own: Container[str]) -> str:
    owner, path = call.func, ""
    while isinstance(owner, (ast.Attribute, ast.Call)):
        path = f".{owner.attr}{path}" if isinstance(owner, ast.Attribute) else path
        owner = owner.value if isinstance(owner, ast.Attribute) else owner.func
    name = ""
    if isinstance(owner, ast.Name) and owner.id not in own:
        name = imported.get(owner.id, "" if path else f"builtins.{owner.id}") + path
    if name in _BARE and not (call.args or call.keywords):
        return _BARE[name]
    while name and name not in _INSTEAD:
        name = name.rpartition(".")[0]
    return _INSTEAD.get(name or f"?.{path.rpartition('.')[2]}", "")
