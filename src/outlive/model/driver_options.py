"""The options of a driver, from the URL's query or as arguments: numbers, durations, switches.

Pure. A message names the option and repeats its value, so that no secret is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from outlive.errors import ConfigurationError
from outlive.model.options import duration

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def read_number(
    given: Mapping[str, Any],
    name: str,
    default: float,
    least: float,
    most: float,
    *,
    read: Callable[[Any], float] = float,
) -> float:
    """A number from ``least`` to ``most``.

    Raises:
        ConfigurationError: The option is none.
    """
    value = given.get(name, default)
    try:
        number = read(None if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        kind = "a number" if read is float else "a number of seconds"
        raise ConfigurationError(f"{name} must be {kind}, not {value!r}") from None
    if not least <= number <= most:
        raise ConfigurationError(f"{name} must be between {least:g} and {most:g}, not {value!r}")
    return number


# A duration, in seconds.
read_seconds = partial(read_number, read=duration)


def read_switch(given: Mapping[str, Any], name: str) -> bool | None:
    """Whether it is on, or ``None`` if it is not given.

    Raises:
        ConfigurationError: The option is neither true nor false.
    """
    value = given.get(name)
    if value is None:
        return None
    found = _WORDS.get(str(value).lower())
    if found is None:
        raise ConfigurationError(f"{name} must be true or false, not {value!r}")
    return found
