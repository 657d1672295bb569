"""The families of errors, and those that any feature and any store may raise."""

from __future__ import annotations

from typing import Any


class OutliveError(Exception):
    """Root of all errors raised by Outlive. Every one can be copied and sent to a process."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with its message alone, which these do not accept.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[OutliveError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    # OSError, the parent of TimeoutError, sets its arguments only in __init__.
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(OutliveError):
    """The program is wrong: fix the call. Nothing was sent to the store."""


class ConfigurationError(UsageError):
    """A setting, URL or installation is wrong: fix the configuration. Nothing was written."""


class InvalidName(UsageError):
    """A key, namespace or host name breaks the rules for names. Nothing was written."""


class UnsupportedByDriver(UsageError):
    """This backend cannot keep the promise asked for; its capabilities say so."""


class NotFound(OutliveError):
    """The thing named does not exist."""


class Conflict(OutliveError):
    """Somebody else was first: read again, then decide."""


class TokenNotFound(NotFound):
    """No bearer token of the HTTP API has this id in this namespace."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no token {id!r} in this namespace; see `outlive token ls`")
        self.id = id


class StoreError(OutliveError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store was not reached, or refused the work. Nothing was applied: retry later."""


class OutcomeUnknown(StoreError):
    """The reply was lost: the write may or may not have been applied. Read, then decide."""


class SchemaMismatch(StoreError):
    """The store was written by another release; the message names the command to run."""

    def __init__(self, message: str, *, found: int, expected: int) -> None:
        super().__init__(message)
        self.found, self.expected = found, expected
