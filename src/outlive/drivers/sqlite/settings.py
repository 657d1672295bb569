"""The options of the SQLite driver, read once and checked.

Pure. A bad value is refused before any file is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outlive.errors import ConfigurationError
from outlive.model.driver_options import read_seconds, read_switch

OPTIONS = frozenset({"allow_network_fs", "busy_timeout", "synchronous", "transact_limit"})

# Longer than any sane write transaction, shorter than a person's patience with a hung program.
_BUSY_TIMEOUT_S = 30.0
_LEAST_S, _MOST_S = 0.001, 3600.0

# While a transactional step runs, nobody writes to the file: a few times what a sane one takes, and
# less than others are prepared to wait.
_TRANSACT_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the options say.

    Attributes:
        busy_timeout_s: How long a write waits for the lock before it is given up.
        allow_network_fs: Whether a network file system is accepted, at the user's risk.
        synchronous: ``FULL`` keeps every commit through a power loss; ``NORMAL`` may lose the
            last ones, and with them the newest tokens.
        transact_limit_s: How long a transactional step may hold the writer.
    """

    busy_timeout_s: float = _BUSY_TIMEOUT_S
    allow_network_fs: bool = False
    synchronous: str = "FULL"
    transact_limit_s: float = _TRANSACT_LIMIT_S


def read_settings(url_options: Mapping[str, str], arguments: Mapping[str, Any]) -> Settings:
    """The settings; arguments to connect win over the URL.

    Raises:
        ConfigurationError: An option is unknown or its value makes no sense.
    """
    given: dict[str, Any] = {**url_options, **arguments}
    unknown = sorted(set(given) - OPTIONS)
    if unknown:
        raise ConfigurationError(
            f"unknown option {unknown[0]!r} for SQLite; known options: {', '.join(sorted(OPTIONS))}"
        )
    return Settings(
        busy_timeout_s=read_seconds(given, "busy_timeout", _BUSY_TIMEOUT_S, _LEAST_S, _MOST_S),
        allow_network_fs=read_switch(given, "allow_network_fs") is True,
        synchronous=_synchronous(given.get("synchronous", "full")),
        transact_limit_s=read_seconds(
            given, "transact_limit", _TRANSACT_LIMIT_S, _LEAST_S, _MOST_S
        ),
    )


def _synchronous(value: Any) -> str:
    text = value.upper() if isinstance(value, str) else ""
    if text not in {"FULL", "NORMAL"}:
        raise ConfigurationError(f"synchronous must be full or normal, not {value!r}")
    return text
