"""The width of lines, and that each module says what it is for. Lengths are nobody's rule."""

from __future__ import annotations

import ast

from tests.architecture.sources import Module, modules

COLUMNS_MAX = 100

# Packages whose surface is their ``__init__``: the rest of the program imports nothing behind it.
SEALED = ("outlive.serialization", "outlive.telemetry")


def judged() -> tuple[Module, ...]:
    return modules("src/outlive", "tests", "benchmarks", "examples", "tools")


def test_lines_fit_in_a_hundred_columns():
    too_wide = [
        f"{module.name}:{number}"
        for module in judged()
        for number, line in enumerate(module.text.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert too_wide == []


def test_every_module_says_what_it_owns():
    silent = [module.name for module in judged() if not ast.get_docstring(module.tree)]
    assert silent == []


def test_nothing_reaches_behind_the_surface_of_a_sealed_package():
    past = [
        f"{module.name}:{node.lineno} {node.module}"
        for module in modules("src/outlive")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for package in SEALED
        if node.module.startswith(f"{package}.")
        and not module.name.startswith(f"src/{package.replace('.', '/')}/")
    ]
    assert past == []
