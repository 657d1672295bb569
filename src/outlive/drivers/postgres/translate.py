"""What an error of asyncpg means to a caller: the one place where the two vocabularies meet.

Pure. Decides between "not applied" and "nobody knows", and must never call a write refused that
may have been committed. Messages name the error's class and SQLSTATE, never a DSN.
"""

from __future__ import annotations

import ssl

from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UsageError,
)

# The server gave up by itself and said so before the transaction could commit: full disk, no
# memory, too many connections (53), cancelled by a time limit (57014, 55P03), starting or shutting
# down (57P03), read-only after a failover (25006), a deadlock or a serialization failure.
_REFUSED = frozenset({"57014", "57P03", "55P03", "25006", "40001", "40P01", "25P02", "0A000"})

# The backend was told to die. An immediate shutdown (57P02) strikes at any instruction, so also
# between the flush of the commit and the reply; 57P01 nearly so.
_KILLED = frozenset({"57P01", "57P02", "57P04", "57P05"})

# Worth repeating at once: the transaction was a victim (of a deadlock, of a concurrent write, of
# a concurrent first insert), nothing of it was applied, and a fresh snapshot sees why.
VICTIM = frozenset({"40P01", "40001", "23505"})

# A value that asyncpg cannot encode (22000), that the database's encoding cannot hold, or that is
# too large for its column (22003).
_UNSTORABLE = frozenset({"22000", "22003", "22021", "22P05"})

# A pooler between us and the server switched the server under a prepared statement.
POOLED = frozenset({"26000", "42P05"})


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of an error that the server (or asyncpg in its name) raised."""
    code = getattr(error, "sqlstate", None)
    return code if isinstance(code, str) else None


def translate(error: BaseException, *, write: bool) -> OutliveError:
    """The error to raise for ``error``, which came after a statement was handed to asyncpg.

    ``write`` says whether the statement may have changed something.
    """
    if isinstance(error, OutliveError):
        return error
    code = sqlstate(error)
    name = type(error).__name__
    if code is None:
        if name == "InterfaceError":
            # asyncpg refuses by itself, before anything is written to the socket.
            return StoreUnavailable("the connection to PostgreSQL was closed")
        return _lost("no reply in time" if isinstance(error, TimeoutError) else name, write=write)
    if code.startswith("08") or code in _KILLED:
        return _lost(f"{name}, {code}", write=write)
    if code.startswith("53") or code in _REFUSED:
        return StoreUnavailable(f"PostgreSQL refused the request ({name}, {code})")
    if code in _UNSTORABLE:
        return UsageError(f"a value cannot be stored: {error}")
    if code in {"42P01", "42703", "3F000"}:
        return SchemaMismatch(
            "the tables of Outlive are missing or changed in this database; `outlive migrate` "
            "creates them",
            found=0,
            expected=1,
        )
    if code == "42501":
        # The server names the object, and nothing else.
        return ConfigurationError(
            f"PostgreSQL denied the request ({error}): grant it to the user; the page of the "
            'driver lists the rights under "Roles"'
        )
    if code.startswith("28"):
        return ConfigurationError(
            f"PostgreSQL denied the request ({name}, {code}): check the rights of the user"
        )
    return StoreError(f"PostgreSQL reported {name} ({code})")


def translate_connect(error: BaseException, shown: str) -> OutliveError:
    """The error to raise when no connection to ``shown`` came about; nothing was sent."""
    if isinstance(error, OutliveError):
        return error
    code = sqlstate(error)
    name = type(error).__name__
    if code is not None and (code.startswith("28") or code == "3D000"):
        what = {
            "28P01": "the password was not accepted",
            "28000": "the user was not accepted",
            "3D000": "the database does not exist",
        }.get(code, "the server did not accept the user")
        return ConfigurationError(f"cannot connect to {shown}: {what} ({code})")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"cannot connect to {shown}: no answer in time")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"cannot connect to {shown}: the certificate of the server was not accepted "
            f"({error.verify_message})"
        )
    if "rejected SSL upgrade" in str(error):
        return ConfigurationError(
            f"cannot connect to {shown}: the server does not offer TLS, which sslmode requires"
        )
    if isinstance(error, OSError) or code is not None:
        reason = name if code is None else f"{name}, {code}"
        return StoreUnavailable(f"cannot connect to {shown} ({reason})")
    if name == "ClientConfigurationError":
        # asyncpg's own words name the parameter, and never quote the DSN.
        return ConfigurationError(f"cannot connect to {shown}: {error}")
    if name == "InterfaceError" or isinstance(error, ValueError):
        # The text may quote the DSN, so it is not repeated.
        return ConfigurationError(f"the URL of {shown} or one of its parameters is not valid")
    return StoreUnavailable(f"cannot connect to {shown} ({name})")


def _lost(what: str, *, write: bool) -> StoreError:
    if write:
        return OutcomeUnknown(
            f"the reply of PostgreSQL was lost ({what}); the write may have been applied"
        )
    return StoreUnavailable(f"the connection to PostgreSQL was lost ({what})")
