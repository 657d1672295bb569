"""What the library logs, as lines of talk that say which flow, step or job they are about.

Owns the handler of the command line on the logger ``outlive``, and takes it off again where the
program that is run logs in its own way. Must never print a secret, and never raise into the code
that logs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from outlive.cli import errors
from outlive.serialization import masked
from outlive.telemetry import message_of

# What a line names, in this order. The rest is for a formatter: the host, for one, is that of the
# whole process, and a token means little to whoever reads a terminal.
_SUBJECTS = ("flow", "step", "job", "attempt")

# An id may have 512 bytes, and a record of the user's own may hold anything under these names. A
# line of a terminal is about as long as this.
_SUBJECT_CHARS_MAX = 100


class Speaker(Protocol):
    """Who says a line on stderr."""

    verbose: bool
    secrets: frozenset[str]

    def complain(self, text: str, at: datetime | None = None) -> None:
        """Say ``text``, of that time, without secrets and control characters."""
        ...


class _Level(int):
    """A level that is told by its identity from one of the same number that a program set."""

    __slots__ = ()


class Listener(logging.Handler):
    """Log records as lines of talk."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker
        self._logger = logging.getLogger("outlive")
        self._level_found, self._propagate_found = self._logger.level, self._logger.propagate
        # From the import of a program's module on: the handlers before, which are not its own.
        self._before: list[logging.Handler] | None = None

    def listen(self) -> None:
        """Hear warnings, or everything where the speaker is verbose; safe to repeat."""
        self._logger.setLevel(logging.DEBUG if self._speaker.verbose else logging.WARNING)
        self._logger.propagate = False
        if not self._logger.handlers:
            self._logger.addHandler(self)

    @contextmanager
    def giving_way(self) -> Generator[None]:
        """Import a program inside of this: if it sets up handlers of its own, they alone count.

        Its own are those that are new on the root logger or on ``outlive``, but for those that
        print nothing. Then nothing is left of what ``listen`` did, and what the program set stays,
        its level of ``outlive`` among it. Without them all is as before, and so it is for a
        speaker who wants to hear everything. A record meanwhile goes to the handlers of the program
        once it has one, and is said here before that: it comes to one of both, and never to both.
        """
        if self._speaker.verbose:
            yield
            return
        heard = self._logger.level
        # As a program finds it, so that what it sets holds at once.
        meanwhile = _Level(self._level_found)
        self._before = [*_handlers(self._logger), self]
        self._logger.setLevel(meanwhile)
        self._logger.propagate = self._propagate_found
        try:
            yield
        finally:
            replaced = self._is_replaced()
            if replaced:
                # It stays deaf: another thread may be on its way here with a record.
                self._logger.removeHandler(self)
            else:
                self._before = None
                self._logger.propagate = False
            if self._logger.level is meanwhile:
                self._logger.setLevel(self._level_found if replaced else heard)

    def _is_replaced(self) -> bool:
        before = self._before
        return before is not None and any(each not in before for each in _handlers(self._logger))

    def emit(self, record: logging.LogRecord) -> None:
        """Say what ``record`` says, its first line with what it is about."""
        if self._is_replaced():
            return
        at = datetime.fromtimestamp(record.created, UTC)
        message = message_of(record)
        about = ", ".join(_subjects(record, message, self._speaker.secrets))
        for line in message.splitlines():
            self._speaker.complain(f"{line} [{about}]" if about else line, at)
            about = ""
        if record.exc_info and record.exc_info[1] is not None and self._speaker.verbose:
            for line in errors.trace_of(record.exc_info[1]):
                self._speaker.complain(line, at)


def _handlers(logger: logging.Logger) -> list[logging.Handler]:
    found = [*logging.getLogger().handlers, *logger.handlers]
    return [each for each in found if not isinstance(each, logging.NullHandler)]


def _subjects(record: logging.LogRecord, message: str, secrets: frozenset[str]) -> Iterator[str]:
    """What ``record`` is about, where ``message`` does not name it already."""
    for noun in _SUBJECTS:
        value = getattr(record, noun, None)
        if value is None or (noun == "attempt" and type(value) is int and value == 1):
            # Most attempts are the first one, and few lines are worth the words.
            continue
        try:
            text = str(value)
        except Exception as error:  # noqa: BLE001 - a record of the user's own may hold anything
            text = f"(unprintable: {type(error).__name__})"
        if not _names(message, noun, text):
            # Scrubbed while it is whole: a secret that is cut could not be recognised any more.
            yield f"{noun} {masked(errors.scrub(text, secrets), _SUBJECT_CHARS_MAX)}"


def _names(message: str, noun: str, text: str) -> bool:
    """Whether ``message`` has the noun and the whole of ``text`` after it, quoted or not."""
    if text not in message:
        return False
    # What may go on with an id: flow o-1 is not named by "flow o-1-b", nor by "flow o-1.b".
    pattern = rf"(?<!\w){noun} ['\"]?{re.escape(text)}(?![\w/#-]|[.:]\w)"
    return re.search(pattern, message) is not None
