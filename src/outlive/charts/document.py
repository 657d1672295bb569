"""Reading a chart's document: a dict, JSON text or a file, within limits, and never code.

Owns the limits. What comes out is a plain dict; what it means is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from outlive.errors import ConfigurationError, UsageError

# The largest charts known to us are a few hundred kilobytes; ten times that is a mistake.
DOCUMENT_BYTES_MAX = 4 * 1024 * 1024

# Each state adds two levels. Nobody can read a chart nested deeper than this, and every walk over
# the tree is recursive.
DEPTH_MAX = 100

# JSON of the largest size holds fewer, unless it consists of commas and digits.
VALUES_MAX = 1_000_000

Source = Mapping[str, Any] | str | bytes | Path


def read(source: Source) -> dict[str, Any]:
    """The document in ``source``: itself, JSON text (it begins with a brace), or a path.

    Raises:
        ConfigurationError: The file cannot be read.
        UsageError: It is no JSON object, or too large or too deep.
    """
    if isinstance(source, Mapping):
        document: object = source
    else:
        document = _parse(source)
    if not isinstance(document, Mapping):
        raise UsageError(f"a chart must be a JSON object, not {type(document).__name__}")
    _check_size(cast("object", document))
    return dict(cast("Mapping[str, Any]", document))


def _parse(source: str | bytes | Path) -> object:
    text = source
    if isinstance(source, Path) or (isinstance(source, str) and not _is_json(source)):
        text = _read_file(Path(source))
    assert isinstance(text, (str, bytes))
    if len(text) > DOCUMENT_BYTES_MAX:
        raise UsageError(
            f"the chart is {len(text)} bytes; at most {DOCUMENT_BYTES_MAX} are allowed"
        )
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the chart is not valid JSON: {error}") from error


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"')


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(DOCUMENT_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        # A name with a zero in it is a wrong value, not a wrong file.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"the chart {str(path)[:200]!r} cannot be read: {reason}"
        ) from error


def _check_size(document: object) -> None:
    """Refuse what is too deep or too large.

    A dict may hold the same part in many places, each of which counts: every walk over the document
    would visit all of them.
    """
    left = VALUES_MAX
    waiting: list[tuple[object, int]] = [(document, 1)]
    while waiting:
        value, depth = waiting.pop()
        left -= 1
        if left < 0:
            raise UsageError(f"the chart has more than {VALUES_MAX} values")
        inside: Iterable[object] = ()
        if isinstance(value, Mapping):
            inside = cast("Mapping[object, object]", value).values()
        elif isinstance(value, (list, tuple)):
            inside = cast("list[object]", value)
        if depth > DEPTH_MAX:
            raise UsageError(f"the chart is nested deeper than {DEPTH_MAX} levels")
        waiting.extend((item, depth + 1) for item in inside)
