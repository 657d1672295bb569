"""What is kept of a failure: a small JSON document that people can read and filters can match.

Must never show a secret, and never grow without limit: texts are masked and cut.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from outlive.errors import OutliveError, UsageError
from outlive.serialization.payloads import encode

# The newest 25 failures of each job are kept, so that one of them must stay small.
_MESSAGE_CHARS_MAX = 2 * 1024
_TRACEBACK_CHARS_MAX = 8 * 1024
_FRAMES_MAX = 20
_ARGS_BYTES_MAX = 8 * 1024

# A URL is at most this long, so a secret that begins before a cut ends within this many more.
_SECRET_REACH = 4096

# ``scheme://user:password@``. Greedy up to the last @ of the word: an unquoted password may hold
# an @ or a slash, and to mask too much is the smaller mistake.
_URL_SECRET = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*):\S*@")
_PAIR_SECRET = re.compile(
    r"\b((?:ssl)?password|passwd|pwd|secret|api_key)(\s*[=:]\s*)(?!\s)[^\s&;,]+", re.IGNORECASE
)

# Where the frames that no user can change come from.
_OUTLIVE = f"{Path(__file__).parents[1]}{os.sep}"

Failed = BaseException | str | Mapping[str, Any]
"""What went wrong: an exception, a sentence, or ``{"type": …, "message": …}``."""


def name_of(kind: type[BaseException]) -> str:
    """The name under which a policy knows a class of errors."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def masked(text: str, limit: int) -> str:
    """``text`` without secrets, at most about ``limit`` characters long; its end is cut off."""
    # Masked before it is cut: a cut through a URL would hide the @ that shows what a secret is.
    total = len(text)
    if total > limit:
        text = text[: limit + _SECRET_REACH]
    if "@" in text and "://" in text:
        text = _URL_SECRET.sub(r"\1:***@", text)
    if "=" in text or ":" in text:
        text = _PAIR_SECRET.sub(r"\1\2***", text)
    return f"{text[:limit]}… ({total} characters)" if total > limit else text


def printable(error: BaseException, most: int) -> str:
    """What ``error`` says of itself, masked and cut; a foreign ``__str__`` that fails is named."""
    try:
        return masked(str(error), most)
    except Exception as failed:  # noqa: BLE001 - whatever it raises, the first error is told
        return f"(unprintable: {type(failed).__name__})"


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


def trace_of(error: BaseException) -> list[str]:
    """The traceback of ``error`` in the parts that Python prints, without the frames of Outlive.

    Of a traceback in which only Outlive ran, the last frame stays. An error of Outlive that was
    raised so has no traceback: its message says what is wrong with a call or a value.
    """
    told = traceback.TracebackException.from_exception(error, limit=-_FRAMES_MAX)
    left, foreign = [told], False
    while left:
        one = left.pop()
        own = [frame for frame in one.stack if not frame.filename.startswith(_OUTLIVE)]
        one.stack = traceback.StackSummary.from_list(own or one.stack[-1:])
        foreign = foreign or bool(own)
        left += [each for each in (one.__cause__, one.__context__) if each is not None]
        left += one.exceptions or ()
    return list(told.format()) if foreign or not isinstance(error, OutliveError) else []


def _where(error: BaseException) -> str:
    try:
        lines = trace_of(error)
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
