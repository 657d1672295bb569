"""The pages of the documentation, cut into prose and fenced blocks.

Owns the syntax of a block. A comment in the line above a fence tells the test what a reader does
not need to know:

    <!-- test: postgres -->       the block speaks to a real PostgreSQL
    <!-- test: redis -->          the block speaks to a real Redis
    <!-- test: azblob -->         the block speaks to Azurite, the emulator of Azure Blob Storage
    <!-- test: cosmos -->         the block speaks to the emulator of Azure Cosmos DB
    <!-- test: until-stopped -->  a program that runs until SIGTERM, and must then end well
    <!-- test: shell -->          a script that a test of its own runs

A block of Python with a title, as in ```python title="shop.py"```, is a file: it is written, and
later blocks and commands import it. A second block of that title is appended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICES = frozenset({"azblob", "cosmos", "postgres", "redis"})
MARKS = SERVICES | {"until-stopped", "shell"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_TITLE = re.compile(r'title="(?P<name>\w+\.py)"')
_MARK = re.compile(r"^<!-- test: (?P<words>[a-z, -]+) -->$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, file name, text, the line it begins on, and its marks."""

    language: str
    title: str | None
    text: str
    line: int
    marks: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One document."""

    path: Path
    text: str
    prose: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """Its path in the repository; a page from elsewhere is named by its whole path."""
        inside = self.path.is_relative_to(ROOT)
        return (self.path.relative_to(ROOT) if inside else self.path).as_posix()


def read(path: Path) -> Page:
    """Read one document.

    Raises:
        ValueError: A fence is never closed, or a mark is unknown.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    prose: list[str] = []
    blocks: list[Block] = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            prose.append(lines[number])
            number += 1
            continue
        marks = _marks(lines[number - 1] if number else "", f"{path.name}:{number}")
        body: list[str] = []
        number += 1
        begins = number + 1
        while number < len(lines) and lines[number].strip() != fence["ticks"]:
            body.append(lines[number].removeprefix(fence["indent"]))
            number += 1
        if number == len(lines):
            raise ValueError(f"{path.name}:{begins}: the block is never closed")
        number += 1
        language, _, rest = fence["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        blocks.append(
            Block(
                language=language,
                title=title and title["name"],
                text="\n".join(body) + "\n",
                line=begins,
                marks=marks,
            )
        )
    return Page(path=path, text=text, prose="\n".join(prose), blocks=tuple(blocks))


def _marks(line: str, where: str) -> frozenset[str]:
    match = _MARK.match(line.strip())
    if match is None:
        return frozenset()
    words = frozenset(word.strip() for word in match["words"].split(","))
    if not words <= MARKS:
        raise ValueError(f"{where}: unknown mark in {line!r}")
    return words


def guides() -> list[Page]:
    """README.md and everything under docs: what readers copy from."""
    return [read(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def pages() -> list[Page]:
    """Every document of the repository."""
    others = [path for path in sorted(ROOT.glob("*.md")) if path.name != "README.md"]
    return [*(read(path) for path in others), *guides()]


def reference() -> str:
    """The text of all reference pages together."""
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs" / "reference").rglob("*.md"))
    )
