"""Log records that say which host they come from, and a formatter that writes them as JSON.

Owns two things. ``bind_host`` makes loggers that stamp host and namespace on each record and let a
limited number pass each second, without touching the process's logging: several hosts in one
process each have their own, and nothing needs to be undone. ``JsonFormatter`` writes one JSON
object per line; it never raises, never writes an endless line, and never shows a password in a URL.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from outlive.serialization import masked

# A collector of logs drops or splits lines beyond some tens of KiB; these keep a line below that.
VALUE_CHARS_MAX = 4 * 1024
MESSAGE_CHARS_MAX = 8 * 1024
TRACEBACK_CHARS_MAX = 16 * 1024

# A person can follow a few lines a second, and a search can do with some hundreds. Thousands would
# cost a worker under load more than its work, and say the same. Warnings and errors always pass.
RECORDS_PER_S_MAX = 200

# What a person wrote as extra fields is less than this; more is a mistake or an attack.
_FIELDS_MAX = 64
_ITEMS_MAX = 50
_DEPTH_MAX = 4

_SECRET_FIELD = re.compile(r"password|passwd|secret|api_key|credential", re.IGNORECASE)

# What every record has by itself; all else came in by ``extra``.
_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)
_OURS = frozenset({"time", "level", "logger", "message", "exception", "stack"})

_encoder = msgspec.json.Encoder()


def plural(count: int, noun: str) -> str:
    """``count`` with its noun: ``1 job``, ``2 jobs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def message_of(record: logging.LogRecord) -> str:
    """What ``record`` says, neither masked nor cut; of one that cannot be put together, its text.

    Never raises, so that a mistake in a call of the log does not stop the work it tells about.
    """
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - a foreign __str__ or a wrong format string
        text = _text(lambda: str(record.msg), MESSAGE_CHARS_MAX)
        return f"{text} (arguments not shown: {type(error).__name__})"


class HostLogs:
    """The loggers of one host. Made by ``bind_host``; there is nothing to close."""

    def __init__(self, fields: Mapping[str, str], alive: Callable[[], bool]) -> None:
        self._fields = fields
        self._alive = alive

    def logger(self, name: str) -> logging.Logger:
        """A logger whose records carry the host's fields.

        Otherwise it is ``name``'s own: levels, filters and handlers set on
        ``logging.getLogger(name)`` or above it apply. A host that is dead says nothing.
        """
        return _BoundLogger(logging.getLogger(name), self._fields, self._alive)


def _always() -> bool:
    return True


UNBOUND = HostLogs({}, _always)
"""Loggers for what runs on no host: their records are as those of any library."""

_process: dict[str, str] = {}

PROCESS = HostLogs(_process, _always)
"""Loggers for what all hosts of a process share, such as its charts: their records say the host
that connected first."""


def name_process(host: str) -> None:
    """Let the records of ``PROCESS`` say ``host``, unless another one came first."""
    _process.setdefault("host", host)


def bind_host(
    host: str, namespace: str | None = None, alive: Callable[[], bool] = _always
) -> HostLogs:
    """Loggers that say ``host`` (and ``namespace``) in every record, while it is ``alive``."""
    fields = {"host": host}
    if namespace is not None:
        fields["namespace"] = namespace
    return HostLogs(fields, alive)


class _BoundLogger(logging.Logger):
    """Stands before a registered logger, stamps fields on each record, and limits how many pass.

    It is not registered itself, so it leaks nothing. The registered logger decides what is
    enabled, by its own method: a call that is not enabled passes through no function of ours.
    """

    def __init__(
        self, target: logging.Logger, fields: Mapping[str, str], alive: Callable[[], bool]
    ) -> None:
        super().__init__(target.name)
        self._alive = alive
        self.parent = target
        self._target = target
        self._fields = fields
        # The cache of levels of an unregistered logger is never cleared; the target's is.
        self.isEnabledFor = target.isEnabledFor
        self._second = self._passed = self._left_out = 0

    def getEffectiveLevel(self) -> int:  # noqa: N802 - logging's own name
        return self._target.getEffectiveLevel()

    def makeRecord(self, *args: Any, **kwargs: Any) -> logging.LogRecord:  # noqa: N802 - as above
        record = super().makeRecord(*args, **kwargs)
        for name, value in self._fields.items():
            # What the call itself gave as extra is nearer the truth.
            record.__dict__.setdefault(name, value)
        return record

    def handle(self, record: logging.LogRecord) -> None:
        if self._alive() and (record.levelno >= logging.WARNING or self._passes(record)):
            self._target.handle(record)

    def _passes(self, record: logging.LogRecord) -> bool:
        """Whether the limit of this second is not reached; two threads may let one more pass."""
        second = int(record.created)
        if second != self._second:
            left_out, self._second, self._passed, self._left_out = self._left_out, second, 0, 0
            if left_out:
                self.info(
                    "left out %s of this logger: at most %d a second are written below WARNING",
                    *(plural(left_out, "record"), RECORDS_PER_S_MAX),
                )
        self._passed += 1
        self._left_out += self._passed > RECORDS_PER_S_MAX
        return self._passed <= RECORDS_PER_S_MAX


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, host, and all extra fields.

    ``host`` is always there, ``null`` for records of others. Long values are cut, secrets in URLs
    are masked, and a record that cannot be formatted is written as what can be said of it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of ``record``, without its line end. Never raises."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _text(lambda: message_of(record), MESSAGE_CHARS_MAX),
            "host": None,
        }
        for name, value in list(record.__dict__.items()):
            if name in _STANDARD:
                continue
            if len(line) >= _FIELDS_MAX:
                line["fields_left_out"] = True
                break
            shown = f"{name}_" if name in _OURS else name
            line[shown] = "***" if _SECRET_FIELD.search(name) else _plain(value, _DEPTH_MAX)
        if record.exc_info:
            line["exception"] = _text(lambda: self._traceback(record), TRACEBACK_CHARS_MAX)
        elif record.exc_text:
            line["exception"] = masked(record.exc_text, TRACEBACK_CHARS_MAX)
        if record.stack_info:
            line["stack"] = masked(record.stack_info, TRACEBACK_CHARS_MAX)
        return _encoder.encode(line).decode()

    def _traceback(self, record: logging.LogRecord) -> str:
        info = record.exc_info
        if not isinstance(info, tuple) or info[0] is None:
            return ""
        text = self.formatException(info)
        # The end of a traceback says what happened; of a long one the middle goes.
        half = TRACEBACK_CHARS_MAX // 2 - 40
        if len(text) <= TRACEBACK_CHARS_MAX:
            return text
        return f"{masked(text[:half], half)}\n…\n{masked(_whole_line_end(text, half), half)}"


def _whole_line_end(text: str, count: int) -> str:
    """About the last ``count`` characters, from the start of a line.

    A secret cut in its middle could not be recognised.
    """
    tail = text[-count:]
    _, newline, rest = tail.partition("\n")
    return rest if newline else ""


def _text(make: Callable[[], str], limit: int) -> str:
    try:
        text = make()
        # Lone surrogates cannot be written as UTF-8; what they came from is a file name.
        return masked(text.encode("utf-8", "backslashreplace").decode(), limit)
    except Exception as error:  # noqa: BLE001 - logging must not break what it tells about
        return f"(unprintable: {type(error).__name__})"


def _plain(value: object, depth: int) -> Any:
    """``value`` as JSON can say it, bounded in depth, number and length."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int:
        # Readers in other languages lose digits beyond 64 bits.
        return value if -(2**63) <= value < 2**63 else _text(lambda: hex(value), VALUE_CHARS_MAX)
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        return _text(lambda: str(value), VALUE_CHARS_MAX)
    try:
        if depth and isinstance(value, Mapping):
            items = list(cast("Mapping[object, object]", value).items())[:_ITEMS_MAX]
            return {_text(lambda k=k: str(k), 256): _member(k, v, depth) for k, v in items}
        if depth and isinstance(value, (list, tuple, set, frozenset)):
            several = list(cast("list[object]", value))[:_ITEMS_MAX]
            return [_plain(item, depth - 1) for item in several]
    except Exception as error:  # noqa: BLE001 - a foreign container may raise anything
        return f"(unprintable: {type(error).__name__})"
    return _text(lambda: str(value), VALUE_CHARS_MAX)


def _member(key: object, value: object, depth: int) -> Any:
    if isinstance(key, str) and _SECRET_FIELD.search(key):
        return "***"
    return _plain(value, depth - 1)
