"""The options of a driver, from the URL's query or as arguments: numbers, durations, switches.

Pure. A message names the option and repeats its value, so that no secret is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outlive.errors import ConfigurationError
from outlive.model.options import duration

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def read_number(
    given: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    """A number from ``least`` to ``most``.

    Raises:
        ConfigurationError: The option is none.
    """
    return _within(float, "a number", given.get(name, default), name, least, most)


def read_seconds(
    given: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    """A duration, in seconds.

    Raises:
        ConfigurationError: The option is none from ``least`` to ``most``.
    """
    return _within(duration, "a number of seconds", given.get(name, default), name, least, most)


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


def _within(
    read: Callable[[Any], float], kind: str, value: Any, name: str, least: float, most: float
) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = read(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be {kind}, not {value!r}") from None
    if not least <= number <= most:
        raise ConfigurationError(f"{name} must be between {least:g} and {most:g}, not {value!r}")
    return number
