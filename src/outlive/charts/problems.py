"""What is wrong with a chart, collected: one error names every problem, with its place.

Owns the form of a problem. A place is a JSON pointer into the document as the user wrote it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from outlive.errors import InvalidChart

# A document that is wrong everywhere does not get better by the thousandth line.
PROBLEMS_MAX = 200

# To compare spellings takes long: a hint must not cost more than everything else.
HINT_LENGTH_MAX = 100
HINTED_MAX = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or (a ``warning``) most likely not meant."""

    pointer: str
    message: str
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.message}"


class Problems:
    """Everything found in one chart so far."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    @property
    def full(self) -> bool:
        """Whether another error would be left out."""
        return len(self.errors) >= PROBLEMS_MAX

    def add(self, pointer: str, message: str) -> None:
        """Note an error."""
        if not self.full:
            self.errors.append(Problem(pointer, message))

    def warn(self, pointer: str, message: str) -> None:
        """Note a warning."""
        if len(self.warnings) < PROBLEMS_MAX:
            self.warnings.append(Problem(pointer, message, "warning"))

    def refuse(self, chart: str) -> None:
        """Insist that there is no error.

        Raises:
            InvalidChart: There is; it lists all of them.
        """
        if self.errors:
            found = sorted(self.errors, key=lambda problem: problem.pointer)
            raise InvalidChart(chart, tuple(found))


def at(pointer: str, *keys: object) -> str:
    """The pointer to what lies under ``keys``."""
    escaped = (str(key).replace("~", "~0").replace("/", "~1") for key in keys)
    return "/".join((pointer, *escaped))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that offers what is spelled most like ``name``."""
    if len(name) > HINT_LENGTH_MAX:
        return ""
    short = (each for each in known if len(each) <= HINT_LENGTH_MAX)
    near = difflib.get_close_matches(name, list(itertools.islice(short, HINTED_MAX)), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
