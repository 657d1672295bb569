"""What a flow's code names of the outside world, found where the flow is defined.

Reads code objects and runs nothing: names are followed through globals, closures, imports and the
attributes of modules and classes, into inner functions and into plain functions of the same module.
What it cannot resolve it leaves alone, so that whatever it says is so.
"""

from __future__ import annotations

import dis
import functools
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from outlive.flows.sources import (
    CHANCE,
    Source,
    Sources,
    attribute_of,
    is_a,
    is_known_module,
    key_of,
    members_of,
    sources,
)
from outlive.flows.unchecked import is_unchecked

# Functions of one module that one flow leads to. Each is read once, in less than a
# millisecond; a module with more is a program of its own, and importing it should not take seconds.
_FUNCTIONS_MAX = 200

# A name that stands for nothing that could be known. ``None`` is a value like any other.
_UNKNOWN: Any = object()

# What ``functools.cache`` and ``lru_cache`` make of a function; it has no public name.
_CACHED: type = type(functools.cache(lambda: None))

# Since then the mark of a call comes behind what is called; before, it came first.
_MARK_COMES_LAST = sys.version_info >= (3, 13)

_FAST = re.compile("(LOAD|STORE)_FAST")
_FREE = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME", "NOT_TAKEN"})
_ON_THE_WAY = frozenset({"PUSH_NULL", "PRECALL"})
_JUMPS = frozenset({"POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE"})


class Finding(NamedTuple):
    """What was found, and where."""

    source: Source
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.source.name} in {self.function} ({self.file}, line {self.line})"


class Scan(NamedTuple):
    """What was found first, if anything; and whether names were not defined yet."""

    finding: Finding | None
    unresolved: bool


def scan(function: Any) -> Scan:
    """Look through the code of a flow. Repeatable; it changes nothing and calls nothing of it."""
    scanner = _Scanner()
    scanner.follow(function)
    return Scan(next(scanner.findings(), None), scanner.unresolved)


class _Scanner:
    """One search: functions to read, and those that were read."""

    def __init__(self) -> None:
        self.unresolved = False
        self._known: Sources = {}
        self._modules = 0
        self._found: list[FunctionType] = []
        self._seen: set[CodeType] = set()

    def follow(self, callable_: Any) -> None:
        """Read what a flow was made of: a function, a method, a partial, an object to be called."""
        while is_a(callable_, functools.partial):
            callable_ = callable_.func
        if type(callable_) is MethodType:
            callable_ = callable_.__func__
        if type(callable_) is not FunctionType:
            callable_ = attribute_of(callable_, "__call__")
        while type(callable_) is FunctionType:
            self._add(callable_)
            callable_ = vars(callable_).get("__wrapped__")

    def findings(self) -> Iterator[Finding]:
        """Each thing that was found, in no promised order but the flow's own code first."""
        for function in self._found:  # It grows meanwhile.
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            scope = {name: self._content(cell) for name, cell in cells.items()}
            yield from self._read(function.__code__, function, scope)

    def source(self, value: Any) -> Source | None:
        """Which entry of the table this is, if it is one."""
        key = key_of(value)
        if key is None:
            return None
        if len(sys.modules) != self._modules:
            # Looking at a name may have loaded what it stands for.
            self._known, self._modules = sources(), len(sys.modules)
        return self._known.get(key)

    def _content(self, cell: Any) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            self.unresolved = True
            return _UNKNOWN

    def _add(self, function: FunctionType) -> None:
        if is_unchecked(function) or function.__code__ in self._seen:
            return
        if len(self._found) < _FUNCTIONS_MAX:
            self._seen.add(function.__code__)
            self._found.append(function)

    def _read(
        self, code: CodeType, function: FunctionType, scope: dict[str, Any]
    ) -> Iterator[Finding]:
        reader = _Reader(self, code, function, scope)
        for source, line in reader.named():
            file = PurePath(code.co_filename).name
            yield Finding(source, code.co_qualname, file, line)
        for inner in code.co_consts:
            # Annotations have a code of their own in later versions, and are no flow code.
            if isinstance(inner, CodeType) and inner.co_name != "__annotate__":
                yield from self._read(inner, function, reader.scope_of(inner))

    def of_same_module(self, value: Any, function: FunctionType) -> None:
        """Read a plain function as well, where the module of ``function`` defines it."""
        if type(value) is MethodType:
            value = value.__func__
        for _ in range(_FUNCTIONS_MAX):
            if type(value) is FunctionType:
                if value.__globals__ is function.__globals__:
                    self._add(value)
            elif type(value) is not _CACHED:
                return
            value = vars(value).get("__wrapped__")


class _Reader:
    """One code object, read from its first instruction to its last."""

    def __init__(
        self, scanner: _Scanner, code: CodeType, function: FunctionType, scope: dict[str, Any]
    ) -> None:
        self.scanner = scanner
        self.code = code
        self.function = function
        self.scope = scope
        self.instructions, self.joined = _instructions(code)
        self.globals = function.__globals__
        stored = Counter(code.co_varnames[: _parameters(code)])
        for each in self.instructions:
            stored.update(name for verb, name in _fast_names(each) if verb == "STORE")
        self.stored = stored
        self.bound: dict[str, Any] = {}
        """Names of this code that stand for one thing that is known."""

    def named(self) -> Iterator[tuple[Source, int]]:
        """Each source of the outside that counts here, and its line."""
        at, line, until = 0, 0, -1
        while at < len(self.instructions):
            begun = at
            line = self._line(at, line)
            value, at = self._chain(at)
            if self.instructions[begun].offset < until:
                continue
            if value is False and self._is_for_type_checkers(begun, at):
                until = self._jump(at)
                continue
            source = self._source(value, begun, at)
            if source is not None:
                yield source, line
            elif value is not _UNKNOWN:
                self.scanner.of_same_module(value, self.function)

    def scope_of(self, inner: CodeType) -> dict[str, Any]:
        """What is known of the names that an inner function has from here.

        A name that it gives to something of its own hides the one that is meant elsewhere.
        """
        known = {name: self.bound.get(name, _UNKNOWN) for name in self.code.co_cellvars}
        scope = {**self.scope, **known}
        return {name: scope.get(name, _UNKNOWN) for name in inner.co_freevars}

    # -- what a chain of names stands for ---------------------------------------------------------

    def _chain(self, at: int) -> tuple[Any, int]:
        """What is loaded here, with all attributes behind it; and where it ends."""
        begun = instruction = self.instructions[at]
        if instruction.opname == "IMPORT_NAME":
            return _UNKNOWN, self._import(at)
        value = self._loaded(instruction)
        at += 1
        while value is not _UNKNOWN and at < len(self.instructions):
            instruction = self.instructions[at]
            if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            if instruction.offset in self.joined or _starts_before(instruction, begun):
                # ``(given or time).time()``: of something else as well, which is not known.
                break
            value = self._attribute(value, str(instruction.argval))
            at += 1
        if value is not _UNKNOWN and at < len(self.instructions):
            self._bind(self.instructions[at], value)
        return value, at

    def _loaded(self, instruction: dis.Instruction) -> Any:
        name, opname = instruction.argval, instruction.opname
        if opname in _GLOBAL:
            if opname != "LOAD_GLOBAL" and self.stored[name]:
                return _UNKNOWN
            return self._global(name)
        if opname in _FREE:
            return self.bound.get(name, self.scope.get(name, _UNKNOWN))
        loaded = [name for verb, name in _fast_names(instruction) if verb == "LOAD"]
        return self.bound.get(loaded[-1], _UNKNOWN) if loaded else _UNKNOWN

    def _global(self, name: str) -> Any:
        if name in self.globals:
            return self.globals[name]
        builtins: Any = self.globals.get("__builtins__")
        # A dictionary, or in the main program the module itself.
        members: Any = members_of(builtins) if is_a(builtins, ModuleType) else builtins or {}
        if name not in members:
            self.scanner.unresolved = True
        return members.get(name, _UNKNOWN)

    def _attribute(self, value: Any, name: str) -> Any:
        if value is _UNKNOWN or type(value) is Source:
            return value
        dice = attribute_of(sys.modules.get("random"), "Random")
        if is_a(dice, type) and is_a(value, dice):
            # Shared by all flows, and nowhere recorded, whatever its seed.
            return Source(f"random.Random.{name}", CHANCE)
        found = attribute_of(value, name)
        return _UNKNOWN if found is None else found

    def _bind(self, instruction: dis.Instruction, value: Any) -> None:
        """Remember what is put under a name that is given only once, and nothing else."""
        if instruction.offset in self.joined:
            return
        for verb, name in _fast_names(instruction)[:1]:
            if verb == "STORE" and self.stored[name] == 1:
                self.bound[name] = value

    def _import(self, at: int) -> int:
        """Remember what an import inside of the code binds; where it ends."""
        level, names = self.instructions[at - 2].argval, self.instructions[at - 1].argval
        path = str(self.instructions[at].argval)
        module: Any = _UNKNOWN
        if level == 0 and is_known_module(path):
            # Of the standard library, or loaded already: nothing of the program is run by it.
            module = _module(path if names else path.partition(".")[0])
        value, at = module, at + 1
        while at < len(self.instructions):
            instruction = self.instructions[at]
            if instruction.opname == "IMPORT_FROM":
                value = self._attribute(module, instruction.argval)
                # ``import a.b as c`` goes down one by one.
                module = module if names else value
            elif instruction.opname.startswith("STORE"):
                self._bind(instruction, value)
                value = module
                if "LOAD" in instruction.opname:
                    break
            elif instruction.opname not in ("SWAP", "POP_TOP"):
                break
            at += 1
        return at

    # -- whether it counts ------------------------------------------------------------------------

    def _source(self, value: Any, begun: int, end: int) -> Source | None:
        if type(value) is Source:
            return value
        source = self.scanner.source(value)
        if source is None or (source.called and not self._is_called(begun, end)):
            return None
        return source if not source.bare or self._is_called_bare(end) else None

    def _is_called(self, begun: int, end: int) -> bool:
        first, last = self.instructions[begun], self.instructions[end - 1]
        if first.opname == "LOAD_GLOBAL" and (first.arg or 0) & 1:
            return True
        if last.opname == "LOAD_METHOD":
            return True
        if last.opname == "LOAD_ATTR" and sys.version_info >= (3, 12) and (last.arg or 0) & 1:
            return True
        mark = end if _MARK_COMES_LAST else begun - 1
        return 0 <= mark < len(self.instructions) and (
            self.instructions[mark].opname == "PUSH_NULL"
        )

    def _is_called_bare(self, end: int) -> bool:
        while end < len(self.instructions) and self.instructions[end].opname in _ON_THE_WAY:
            end += 1
        last = self.instructions[end] if end < len(self.instructions) else None
        return last is not None and last.opname == "CALL" and last.arg == 0

    def _is_for_type_checkers(self, begun: int, end: int) -> bool:
        last = self.instructions[max(begun, end - 1)]
        return last.argval == "TYPE_CHECKING" and self._jump(end) >= 0

    def _jump(self, at: int) -> int:
        """To where the condition that ends here leads if it is false; -1 if it is none."""
        for instruction in self.instructions[at : at + 2]:
            if instruction.opname in _JUMPS:
                return int(instruction.argval)
        return -1

    def _line(self, at: int, before: int) -> int:
        positions = self.instructions[at].positions
        return before if positions is None or positions.lineno is None else positions.lineno


def _instructions(code: CodeType) -> tuple[list[dis.Instruction], set[int]]:
    """What counts of a code; and the offsets to which something else leads than what is before."""
    found: list[dis.Instruction] = []
    joined: set[int] = set()
    reached = False
    for each in dis.get_instructions(code):
        reached = reached or each.is_jump_target
        if each.opname not in _SKIPPED:
            found.append(each)
            if reached:
                joined.add(each.offset)
            reached = False
    return found, joined


def _starts_before(instruction: dis.Instruction, other: dis.Instruction) -> bool:
    """Whether more belongs to it than what begins with ``other``.

    The compiler may write the end of ``return (given if given else time).time()`` twice.
    """
    start, other_start = (
        (each.positions.lineno, each.positions.col_offset) if each.positions else (None, None)
        for each in (instruction, other)
    )
    if None in start or None in other_start:
        return False
    return start < other_start


def _parameters(code: CodeType) -> int:
    starred = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + starred


def _fast_names(instruction: dis.Instruction) -> list[tuple[str, str]]:
    """Which local names are loaded and stored, in order: later versions do two at once."""
    opname = instruction.opname
    name: Any = instruction.argval
    if opname in ("STORE_DEREF", "STORE_NAME"):
        return [("STORE", name)]
    if "_FAST" not in opname:
        return []
    verbs: list[str] = _FAST.findall(opname)
    return list(zip(verbs, (name,) if isinstance(name, str) else name, strict=False))


def _module(path: str) -> Any:
    if path not in sys.modules and path.partition(".")[0] not in sys.stdlib_module_names:
        return _UNKNOWN
    try:
        return importlib.import_module(path)
    except Exception:  # noqa: BLE001 - not every Python has all of its library
        return _UNKNOWN
