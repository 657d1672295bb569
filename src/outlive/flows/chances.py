"""Chance for flow code: numbers that look random and are the same at every replay."""

from __future__ import annotations

import random
import uuid
from typing import Any


class Chances:
    """The dice of one run, seeded by its id and where it begins."""

    __slots__ = ("_dice", "seed")

    def __init__(self, id: str, base: int) -> None:  # noqa: A002 - it is one
        self.seed = f"{id}@{base}"
        self._dice: random.Random | None = None

    @property
    def dice(self) -> random.Random:
        """The one generator of the run; made when it is first asked for."""
        if self._dice is None:
            self._dice = random.Random(self.seed)  # noqa: S311 - to be repeated, not to be secret
        return self._dice

    @property
    def state(self) -> Any:
        """How the dice lie, for ``restore``."""
        return None if self._dice is None else self._dice.getstate()

    def restore(self, state: Any) -> None:
        """Let them lie as they did."""
        if self._dice is not None and state is not None:
            self._dice.setstate(state)

    def uuid(self) -> uuid.UUID:
        """An id that no other run of this namespace draws, but copies and one of the same id."""
        return uuid.UUID(int=self.dice.getrandbits(128), version=4)
