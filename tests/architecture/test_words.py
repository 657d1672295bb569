"""The words of errors, log lines, help texts and command output: plain ones, about named things.

Owns the list of words that these texts do not use, because a reader cannot look them up in the
field's own books, or because they name nothing. Docstrings and identifiers are not looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from outlive import errors
from tests.architecture.sources import Module, modules

_WORDS = re.compile(
    r"""\b(?:
    ring | rings | ringing | rang | rung | bells? | doorbells?          # notification
    | (?<!dead\ )letters?                                               # message
    | wish | wishes | wished                                            # cancellation request
    | turn | turns | turned | turning                                   # loop iteration; runs
    | void | salvag\w+ | heed\w* | former                               # discarded, reused, checked
    | lone | lonely | company | quiet | usual                           # uncontended, concurrent
    | at\ once                                                          # immediately
    | stands? | stood | (?:is|are|was|were|be)\ there                   # is in, exists
    | taken(?!\ over) | tak(?:es?|ing)\ (?:\S+\ ){0,3}back              # already used; recovered
    | (?:give[sn]?|giving|gave)\ (?:\S+\ ){0,3}back | handed            # released
    | rous\w+ | forfeit\w* | lets?\ go | gone                           # wake, drop; dead
    | tends? | tended | tender | patrols? | strays? | books?            # clean up; poller
    | chances? | dice | household | desk | duties | keeper              # randomness; services
    | who | whoever | whatever | nobody | somebody | anybody | everybody | one\ that | those\ that
    | no\ such\ thing | to\ be\ had                                     # name the thing
    | told | tells? | hears? | heard | knows | wants? | owes?           # receives, has, needs
    | noted | noting | spins? | hush | wind\ up | talk | bad\ day
    | hangs?\ on | hung | does\ it | does\ not\ take
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)

_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
# What shows a text to people, besides loggers and classes of errors.
_SHOWING = frozenset(
    {"say", "complain", "echo", "secho", "confirm", "prompt", "warn", "check_outside"}
    | {"Problem", "Finding", "Endpoint", "__init__", "_patiently", *errors.__all__}
)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the texts of a module that people meet, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _shows(node.func)):
            yield from _strings(node)
        elif isinstance(node, ast.keyword) and node.arg == "help":
            yield from _strings(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""


def _shows(function: ast.expr) -> bool:
    *owner, name = ast.unparse(function).split(".")
    if name in _LOG_METHODS:
        return "log" in ".".join(owner).lower()
    return name in _SHOWING or name.endswith("Error")


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = (ast.unparse(each).partition("(")[0] for each in function.decorator_list)
    return any(name.rpartition(".")[2] in ("command", "group") for name in names)


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the sentences inside of ``node``; a word by itself is a code, a name or a key."""
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
        text = "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)
        return
    if " " in text.strip():
        yield node.lineno, text


def wrong_words(module: Module) -> list[str]:
    return sorted(
        {
            f"{module.name}:{line} {found[0]!r} in {' '.join(text.split())[:100]!r}"
            for line, text in texts(module.tree)
            if (found := _WORDS.search(text)) is not None
        }
    )


def test_messages_use_plain_words():
    assert [entry for module in modules("src/outlive") for entry in wrong_words(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "raise UsageError(f'{key!r} is taken')",
        "raise NotFound(id, message='there is no such thing')",
        "self._log.warning('rung by %s', name)",
        "_log.exception('letting others have it failed; the ttl does it')",
        "Problem('conflict', 'Somebody else was first.')",
        "option('--on', help='One that is live hears of it.')",
        "@work.command('ls')\ndef list_jobs():\n    '''Give a job back.'''",
    ],
)
def test_the_search_finds_wrong_words(text):
    assert wrong_words(Module(name="src/outlive/x.py", text=text))


@pytest.mark.parametrize(
    "text",
    [
        "raise UsageError('the dead letters of the queue were returned')",
        "raise RetryRefused(id, 'heard')",
        "def bell():\n    '''Ring, if anybody is there.'''",
        "catalog.append('a bell')",
    ],
)
def test_the_search_lets_the_rest_pass(text):
    assert not wrong_words(Module(name="src/outlive/x.py", text=text))
