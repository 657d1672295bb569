"""Every record that the library may write, found in its source, for docs/reference/logs.md.

``python -m tests.docs.log_events write`` writes the tables anew; the test compares.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlive.model.schema_version import NEWER_SERVED

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "outlive"
PAGE = ROOT / "docs" / "reference" / "logs.md"
BEGIN, END = "<!-- events: begin -->\n", "<!-- events: end -->\n"

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "log": 0}
NAMES = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}

# The logger of a folder or a module; the others have their own name.
AREAS = {
    "runtime": "host",
    "host.py": "host",
    "connect.py": "host",
    "duties.py": "host",
    "drivers": "driver",
    "ports": "driver",
}
# They test and demonstrate the library, and write no log of it.
LEFT_OUT = {"testing", "demo", "bench", "cli"}


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a log method."""

    area: str
    level: int
    message: str
    fields: tuple[str, ...]


def events() -> list[Event]:
    """All of them, by area and from the loudest."""
    found: set[Event] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0]
        if part in LEFT_OUT or (path.parent.name == "telemetry" and path.name == "logging.py"):
            continue
        area = AREAS.get(part, part.removesuffix(".py"))
        module = ast.parse(path.read_text())
        top: list[ast.stmt] = [each for each in module.body if isinstance(each, ast.Assign)]
        constants = _assigned(ast.Module(top, []))
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found.update(_of_function(function, area, constants))
    return sorted(found, key=lambda event: (event.area, -event.level, event.message, event.fields))


def _assigned(tree: ast.AST) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _of_function(function: ast.AST, area: str, constants: dict[str, ast.expr]) -> Iterator[Event]:
    names = {**constants, **_assigned(function)}
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, owner = node.func.attr, ast.unparse(node.func.value)
        if method not in LEVELS or not owner.lower().endswith(("log", "logger")):
            continue
        levels, arguments = [LEVELS[method]], node.args
        if method == "log":
            levels, arguments = _levels(node.args[0], names), node.args[1:]
        extra = [word.value for word in node.keywords if word.arg == "extra"]
        fields = tuple(sorted(set(_fields(extra[0], names)))) if extra else ()
        for message in _messages(arguments[0], names):
            yield from (Event(area, level, message, fields) for level in levels)


def _levels(node: ast.expr, names: dict[str, ast.expr]) -> list[int]:
    """Those that a first argument of ``log`` names."""
    if isinstance(node, ast.Name):
        node = names[node.id]
    found = [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return [number for number, name in NAMES.items() if name in found]


def _messages(node: ast.expr, names: dict[str, ast.expr]) -> Iterator[str]:
    """What the first argument may be; of what is not written there, the expression."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from _messages(node.body, names)
            yield from _messages(node.orelse, names)
        case ast.Name(id=name) if name in names:
            yield from _messages(names[name], {})
        case ast.Name(id="NEWER_SERVED"):
            yield NEWER_SERVED
        case ast.Call(func=ast.Attribute(attr="format", value=inner)):
            yield from _messages(inner, names)
        case _:
            yield f"({ast.unparse(node)})"


def _fields(node: ast.expr, names: dict[str, ast.expr]) -> Iterator[str]:
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value)
                else:
                    yield from _fields(value, names)
        case ast.Name(id=name) if name in names:
            yield from _fields(names[name], {})
        case ast.Call(func=ast.Attribute(attr="_fields")):
            yield from ("key", "token")
            yield from (word.arg for word in node.keywords if word.arg)
        case _:
            raise AssertionError(f"fields that cannot be read: {ast.unparse(node)}")


def tables() -> str:
    """The tables of the page."""
    lines: list[str] = []
    found = events()
    for area in sorted({event.area for event in found}):
        lines += [f"## `outlive.{area}`", "", "| level | message | fields |", "|---|---|---|"]
        for event in found:
            if event.area == area:
                message = event.message.replace("\n", " ").replace("|", "\\|")
                fields = ", ".join(f"`{field}`" for field in event.fields)
                lines.append(f"| {NAMES[event.level]} | `{message}` | {fields} |")
        lines.append("")
    return "\n".join(lines)


def written(page: str) -> str:
    """``page`` with the tables as they are."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{tables()}\n{END}{tail}"


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    PAGE.write_text(written(PAGE.read_text()))
