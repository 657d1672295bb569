"""What the library logs, as lines of talk that say which flow, step or job they are about.

Must never print a secret, and never raise into the code that logs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from holdfast.cli import errors
from holdfast.runtime.logs import masked, message_of

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


class Listener(logging.Handler):
    """Log records as lines of talk."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker

    def emit(self, record: logging.LogRecord) -> None:
        """Say what ``record`` says, its first line with what it is about."""
        at = datetime.fromtimestamp(record.created, UTC)
        message = message_of(record)
        about = ", ".join(_subjects(record, message, self._speaker.secrets))
        for line in message.splitlines():
            self._speaker.complain(f"{line} [{about}]" if about else line, at)
            about = ""
        if record.exc_info and record.exc_info[1] is not None and self._speaker.verbose:
            for line in errors.trace_of(record.exc_info[1]):
                self._speaker.complain(line, at)


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
