"""What is kept of a failure: a small JSON document that people can read and filters can match.

Must never show a secret, and never grow without limit: texts are masked and cut.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import msgspec

from outlive.errors import UsageError
from outlive.model.retry import name_of
from outlive.runtime.logs import masked, printable
from outlive.work.payload import encode

# The newest 25 failures of each job are kept, so that one of them must stay small.
_MESSAGE_CHARS_MAX = 2 * 1024
_TRACEBACK_CHARS_MAX = 8 * 1024
_FRAMES_MAX = 20
_ARGS_BYTES_MAX = 8 * 1024

Failed = BaseException | str | Mapping[str, Any]
"""What went wrong: an exception, a sentence, or ``{"type": …, "message": …}``."""


def describe(error: Failed, *, rebuilt: tuple[type[Exception], ...] = ()) -> str:
    """The JSON document of one failure: ``type``, ``message`` and, of an exception, where.

    Of one of the classes of ``rebuilt`` also the arguments, if they are JSON and not too long.
    """
    args = encoded_args(error) if isinstance(error, rebuilt) else None
    if isinstance(error, BaseException):
        document: dict[str, Any] = {
            "type": name_of(type(error)),
            "message": printable(error, _MESSAGE_CHARS_MAX),
            "traceback": _where(error),
        }
    elif isinstance(error, str):
        document = {"message": masked(error, _MESSAGE_CHARS_MAX)}
    else:
        document = {
            str(name)[:64]: masked(str(error[name]), _TRACEBACK_CHARS_MAX)
            for name in ("type", "message", "traceback")
            if error.get(name) is not None
        }
    return _storable(document, args)


def encoded_args(error: Exception) -> msgspec.Raw | None:
    """The arguments that rebuild ``error``, if they can be kept."""
    try:
        return msgspec.Raw(encode(error.args, "its arguments", limit=_ARGS_BYTES_MAX))
    except UsageError:
        # It is told by its name and its message, like any other.
        return None


def kind_of(error: Failed) -> BaseException | str | None:
    """What a retry policy goes by: the error itself, the name of its class, or nothing."""
    if isinstance(error, BaseException):
        return error
    named = error.get("type") if isinstance(error, Mapping) else None
    return named if isinstance(named, str) else None


def _where(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error, limit=-_FRAMES_MAX)
    except Exception as failed:  # noqa: BLE001 - a foreign __str__ again
        return f"(unprintable: {type(failed).__name__})"
    kept: list[str] = []
    left = _TRACEBACK_CHARS_MAX
    # The end says what happened. Whole lines only: a secret cut in two could not be recognised.
    for line in reversed(lines):
        text = masked(line, _MESSAGE_CHARS_MAX)
        left -= len(text)
        if left < 0:
            break
        kept.append(text)
    return "".join(reversed(kept))


def _storable(document: dict[str, Any], args: msgspec.Raw | None) -> str:
    # Lone surrogates, of a file name for instance, cannot be stored as UTF-8.
    clean: dict[str, Any] = {
        name: text.encode("utf-8", "backslashreplace").decode() for name, text in document.items()
    }
    if args is not None:
        clean["args"] = args
    return msgspec.json.encode(clean).decode()
