"""The ledger ``tests/promises.toml``: each promise has its sentence, and tests that prove it.

The tests are found in the source, because collecting all of them would take a minute. A promise
that only tests with the mark ``whitebox`` prove says so, because these die with their modules.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.architecture.sources import ROOT, Module, modules

LEDGER = ROOT / "tests" / "promises.toml"
FIELDS = {"sentence", "tests", "planned", "whitebox"}

COUNTS = {"L": 10, "Q": 7, "O": 9, "S": 5, "B": 4}
INVARIANTS = {
    f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)
}
DURABLE_CHARTS = {f"S{number}" for number in range(1, 6)}

# Defects that the invariants and the rules name, independent of stores and engines.
NAMED_DEFECTS = {
    f"planted.named.{name}"
    for name in (
        "no-fence",
        "deadline-from-the-reply",
        "deferred-transaction",
        "completion-without-token",
        "timer-deleted-before-commit",
        "one-shot-recovery",
        "unchecked-rollback",
    )
}

# Rules that settle details of the design, some of which is still to come.
RULES = (
    *("sessions", "sqlite-writer", "postgres", "commits", "flowloop"),
    *("work", "leases", "clocks", "charts"),
)
SECTIONS = {*RULES, "fault", "trap", "security"}

# A test with one of these marks is no part of an ordinary run.
NOT_RUN = {"skip", "soak"}

# Modules behind these packages may be replaced together with the tests that look into them. The
# surface of a driver is ``outlive.drivers.<name>``.
INNER = re.compile(r"outlive\.(?:flows|work|drivers\.\w+)\.\w")
INNER_TESTS = ("tests/unit/flows/", "tests/unit/work/", "tests/unit/drivers/")

# The section of the ledger that holds the defects of each file.
PLANTED_IN = {
    "tests/conformance/planted_defects.py": "lease-store",
    "tests/conformance/planted_job_defects.py": "job-store",
    "tests/conformance/planted_claim_defects.py": "instance-store",
    "tests/conformance/planted_commit_defects.py": "instance-store",
    "tests/conformance/planted_desk_defects.py": "instance-store",
    "tests/conformance/planted_mail_defects.py": "instance-store",
    "tests/simulation/test_planted_defects.py": "simulated-leases",
    "tests/simulation/test_planted_flow_defects.py": "simulated-flows",
    "tests/simulation/test_planted_job_defects.py": "simulated-jobs",
    "tests/simulation/test_orchestra.py": "simulated-charts",
    "tests/simulation/test_schedules_simulation.py": "simulated-schedules",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Entries = dict[str, Mapping[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    yield
    files.cache_clear()


@functools.cache
def files() -> dict[str, Module]:
    return {module.name: module for module in modules("tests", "src/outlive")}


def tree_of(path: str) -> ast.Module | None:
    return files()[path].tree if path in files() else None


def path_of(dotted: str) -> str | None:
    """The file of a module or package of this repository."""
    base = dotted.replace(".", "/")
    places = (f"{folder}{base}{end}" for folder in ("", "src/") for end in (".py", "/__init__.py"))
    return next((place for place in places if place in files()), None)


def entries_of(text: str) -> Entries:
    """Every entry by its dotted path; TOML itself refuses a path that appears twice."""

    def walk(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not all(isinstance(value, dict) for value in table.values()) or "planned" in table:
            yield path, table
        else:
            for name, inner in table.items():
                yield from walk(inner, f"{path}.{name}" if path else name)

    return dict(walk(tomllib.loads(text), ""))


@functools.cache
def ledger() -> Entries:
    return entries_of(LEDGER.read_text())


# -- faults of an entry ---------------------------------------------------------------------------


def faults_of(entries: Entries) -> list[str]:
    return [f"{id_}: {fault}" for id_, entry in entries.items() for fault in faults_in(id_, entry)]


def faults_in(id_: str, entry: Mapping[str, Any]) -> Iterator[str]:
    unknown = sorted(entry.keys() - FIELDS)
    if unknown:
        yield f"an entry has no {unknown}"
    if not str(entry.get("sentence", "")).strip():
        yield "it has no sentence"
    if "planned" in entry:
        yield from faults_in_plan(id_, entry)
        return
    nodes = entry.get("tests", [])
    if not nodes:
        yield "no test proves it"
    for node in nodes:
        reason = why_no_proof(node)
        if reason:
            yield f"{node} {reason}"
    whitebox = bool(nodes) and all("whitebox" in marks_of_file(node) for node in nodes)
    if whitebox and entry.get("whitebox") is not True:
        yield "only white-box tests prove it, which die with their module: say whitebox = true"
    elif not whitebox and "whitebox" in entry:
        yield "not all of its tests are white-box: leave whitebox out"


def faults_in_plan(id_: str, entry: Mapping[str, Any]) -> Iterator[str]:
    plan = entry["planned"]
    if entry.keys() & {"tests", "whitebox"}:
        yield "a planned promise has no tests; split it if a part of it is true"
    if set(plan) != {"why", "until"} or not all(plan.values()):
        yield "planned has a reason (why) and the thing whose existence ends it (until)"
    elif exists(plan["until"]):
        yield f"{plan['until']} exists: name its tests"
    later = id_ in DURABLE_CHARTS or id_.startswith(
        (*(f"{rule}." for rule in RULES), "security.ui-")
    )
    if not later:
        yield "it is a promise of the present code, which is not planned"


def exists(until: str) -> bool:
    """Whether there is a folder (``web/``), a module, or ``module:Class.attribute``."""
    if until.endswith("/"):
        return (ROOT / until).is_dir()
    dotted, _, member = until.partition(":")
    path = path_of(dotted)
    if path is None or not member:
        return path is not None
    owner, _, attribute = member.partition(".")
    found = class_in(files()[path].tree.body, owner)
    assert found is not None, f"there is no {until.rpartition('.')[0]}"
    return any(
        (isinstance(node, Function) and node.name == attribute)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{attribute}")
        or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == attribute)
        for node in ast.walk(found)
    )


# -- whether a test exists and runs ---------------------------------------------------------------


def why_no_proof(node: str) -> str:
    """Why a name is not that of a test which runs; empty if it is."""
    path, *names = node.split("::")
    tree = tree_of(path)
    if tree is None or not path.rpartition("/")[2].startswith("test_"):
        return "is in no file of tests"
    if len(names) not in (1, 2) or not names[-1].startswith("test") or "[" in node:
        return "is neither file::test nor file::Class::test without parameters"
    marks = marks_of_file(node)
    found: Function | None
    if len(names) == 1:
        found = function_in(tree.body, names[0])
    else:
        owner = class_in(tree.body, names[0])
        if owner is None or not names[0].startswith("Test"):
            return "is in a class that does not exist"
        marks |= marks_in(owner.decorator_list)
        found = method_of(owner, path, names[1])
    if found is None:
        return "does not exist"
    marks |= marks_in(found.decorator_list)
    return "is no part of an ordinary run" if marks & NOT_RUN or skips(found) else ""


def function_in(body: list[ast.stmt], name: str) -> Function | None:
    return next((s for s in body if isinstance(s, Function) and s.name == name), None)


def class_in(body: list[ast.stmt], name: str) -> ast.ClassDef | None:
    return next((s for s in body if isinstance(s, ast.ClassDef) and s.name == name), None)


def method_of(owner: ast.ClassDef, path: str, name: str) -> Function | None:
    """A method of a class, its own or one of the suites that it is made of."""
    own = function_in(owner.body, name)
    if own is not None or name in assigned_in(owner.body):
        return own
    for base in owner.bases:
        place = class_known_as(ast.unparse(base), path)
        found = None if place is None else method_of(place[0], place[1], name)
        if found is not None:
            return found
    return None


def class_known_as(name: str, path: str) -> tuple[ast.ClassDef, str] | None:
    """The class that a file knows by a name, and the file that defines it."""
    tree = tree_of(path)
    body = [] if tree is None else tree.body
    found = class_in(body, name)
    if found is not None:
        return found, path
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            source = path_of(statement.module)
            for alias in statement.names:
                if source and name == (alias.asname or alias.name):
                    return class_known_as(alias.name, source)
    return None


def assigned_in(body: list[ast.stmt]) -> dict[str, ast.expr]:
    return {
        ast.unparse(target): statement.value
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    }


def marks_of_file(node: str) -> set[str]:
    tree = tree_of(node.partition("::")[0])
    value = None if tree is None else assigned_in(tree.body).get("pytestmark")
    if value is None:
        return set()
    return marks_in(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])


def marks_in(expressions: list[ast.expr]) -> set[str]:
    """The names of marks; one that skips if something constant is true is a plain skip."""
    found: set[str] = set()
    for text in map(ast.unparse, expressions):
        name = re.match(r"pytest\.mark\.(\w+)", text)
        if name is not None:
            always = re.match(r"pytest\.mark\.skipif\((True|1)\b", text)
            found.add("skip" if always else name[1])
    return found


def skips(function: Function) -> bool:
    """Whether the first thing that a test does is to leave itself out."""
    first = function.body[1 if ast.get_docstring(function) else 0 :][:1]
    return any(ast.unparse(statement).startswith("pytest.skip(") for statement in first)


# -- the planted defects --------------------------------------------------------------------------


def planted_defects() -> set[str]:
    """The ids of all defects that stores and simulations are tested with.

    In ``conformance`` they are the classes made from ``Defective``; in ``simulation`` the functions
    that take a ``MonkeyPatch`` and nothing else and are no fixtures, and the tests of one defect.
    """
    found: set[str] = set()
    for path, module in files().items():
        stores = re.fullmatch(r"tests/conformance/planted_\w+\.py", path)
        if stores or re.fullmatch(r"tests/simulation/test_\w+\.py", path):
            section = PLANTED_IN.get(path, path)
            found |= {
                f"planted.{section}.{statement.name.removeprefix('test_')}"
                for statement in module.tree.body
                if (is_defect(statement) if stores else plants(statement))
            }
    return found


def is_defect(statement: ast.stmt) -> bool:
    bases = statement.bases if isinstance(statement, ast.ClassDef) else []
    return [ast.unparse(base) for base in bases] == ["Defective"]


def plants(function: ast.stmt) -> bool:
    if not isinstance(function, Function):
        return False
    if function.name.startswith("test_"):
        alone = re.fullmatch(r"test_\w+_is_(found|caught)", function.name)
        return alone is not None and function.name != "test_a_planted_defect_is_found"
    annotated = [ast.unparse(each.annotation) for each in function.args.args if each.annotation]
    return not function.decorator_list and annotated == ["pytest.MonkeyPatch"]


# -- the ledger -----------------------------------------------------------------------------------


def test_every_promise_has_a_sentence_and_a_proof():
    faults = faults_of(ledger())
    assert faults == [], "\n".join(faults)


def test_every_invariant_and_every_planted_defect_has_an_entry():
    defects = planted_defects()
    assert len(defects) > 150
    wanted = INVARIANTS | NAMED_DEFECTS | defects
    assert sorted(wanted - ledger().keys()) == []
    planted = {id_ for id_ in ledger() if id_.startswith("planted.")}
    assert sorted(planted - wanted) == []


def test_every_subject_has_entries():
    assert SECTIONS - {id_.partition(".")[0] for id_ in ledger()} == set()


def test_a_look_into_flows_work_or_drivers_has_the_mark():
    wrong = [
        f"{path}: imports {inner}, so that it is marked whitebox"
        if inner
        else f"{path}: imports nothing of the inside, and is marked whitebox"
        for path, module in files().items()
        if path.startswith(INNER_TESTS) and path.rpartition("/")[2].startswith("test_")
        for inner in [inner_modules(module.tree)]
        if bool(inner) is not ("whitebox" in marks_of_file(path))
    ]
    assert wrong == [], "\n".join(wrong)


def inner_modules(tree: ast.Module) -> list[str]:
    """The modules behind a surface that a file imports, or names as the place of a patch."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.rpartition(".")[0])
    return sorted(name for name in found if INNER.match(name) and path_of(name))


# -- the test of the ledger must be able to fail --------------------------------------------------

SOUND = "tests/conformance/test_sqlite.py::TestSqliteLeases::test_a_new_key_is_granted"
INSIDE = "tests/unit/drivers/sqlite/test_writer.py::test_a_future_is_resolved_only_after_commit"
PLAN = 'planned = { why = "later", until = "%s" }'


@pytest.mark.parametrize(
    ("id_", "lines", "said"),
    [
        ("L1", f'tests = ["{SOUND}"]', ""),
        ("L1", f'tests = ["{INSIDE}"]\nwhitebox = true', ""),
        ("S1", PLAN % "outlive.host:Host.nothing_of_that_name", ""),
        ("work.x", PLAN % "outlive.work.nothing_of_that_name", ""),
        ("L1", f'tests = ["{SOUND}ed"]', "granteded does not exist"),
        ("L1", f'tests = ["{SOUND}[a]"]', "without parameters"),
        ("L1", f'tests = ["{SOUND.replace("Leases:", "Lease:")}"]', "class that does not exist"),
        ("L1", f'tests = ["{SOUND.replace("Leases:", "LeasesInRealTime:")}"]', "ordinary run"),
        ("L1", f'tests = ["{SOUND.replace("_sqlite", "_sql")}"]', "no file of tests"),
        ("L1", "tests = []", "no test proves it"),
        ("L1", f'tests = ["{INSIDE}"]', "whitebox = true"),
        ("L1", f'tests = ["{SOUND}", "{INSIDE}"]\nwhitebox = true', "leave whitebox out"),
        ("L1", f'tests = ["{SOUND}"]\nproof = "x"', "no ['proof']"),
        ("L1", PLAN % "outlive.nothing_of_that_name", "promise of the present code"),
        ("S1", PLAN % "outlive.host:Host.flows", "name its tests"),
        ("work.x", PLAN % "outlive.work.worker", "name its tests"),
        ("work.x", PLAN % "src/", "name its tests"),
        ("work.x", PLAN % "", "existence ends it"),
        ("work.x", f'{PLAN % "x"}\ntests = ["{SOUND}"]', "no tests"),
    ],
)
def test_a_false_entry_is_found(id_, lines, said):
    faults = faults_of(entries_of(f'[{id_}]\nsentence = "A promise."\n{lines}'))
    assert len(faults) <= 1
    assert said in "".join(faults)
    assert bool(said) is bool(faults)


def test_an_entry_without_a_sentence_and_an_id_that_appears_twice_are_found():
    assert faults_of(entries_of(f'[L1]\ntests = ["{SOUND}"]')) == ["L1: it has no sentence"]
    with pytest.raises(tomllib.TOMLDecodeError):
        entries_of('[L1]\nsentence = "x"\n[L1]\nsentence = "y"')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from outlive.flows.run import FlowRun", True),
        ("import outlive.work.worker as inside", True),
        ("from outlive.drivers.sqlite import files", True),
        ("patch('outlive.flows.stuck._FIRST_S', 0)", True),
        ("from outlive.drivers.sqlite import SqliteFactory", False),
        ("from outlive.drivers import sqlite", False),
        ("import outlive\nfrom outlive.testing.faults import Faults", False),
        ("logger('outlive.flows')", False),
    ],
)
def test_a_look_inside_is_found(text, found):
    assert bool(inner_modules(ast.parse(text))) is found


def test_a_test_that_leaves_itself_out_is_no_proof():
    for text in ('"""Why."""\n    pytest.skip("no")', 'pytest.skip("no")\n    assert True'):
        (function,) = ast.parse(f"def test_x():\n    {text}").body
        assert skips(function)
    marks = [ast.parse(f"pytest.mark.{mark}", mode="eval").body for mark in ("soak", "skip('no')")]
    assert marks_in(marks) == NOT_RUN
    assert marks_in([ast.parse("pytest.mark.skipif(True, reason='x')", mode="eval").body]) == {
        "skip"
    }
    assert marks_in([ast.parse("pytest.mark.skipif(on_windows)", mode="eval").body]) == {"skipif"}
