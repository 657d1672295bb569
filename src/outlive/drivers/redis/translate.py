"""What an error of Redis or of the network means to a caller.

Pure. Decides between "not applied" and "nobody knows", and must never call a write refused that
may have been carried out. Messages name the error's code, never an address with a password.
"""

from __future__ import annotations

import re
import ssl

from outlive.drivers.redis.wire import Lost
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
)

# The server refuses before a script has written: a script writes only after all its checks, and
# memory, disk and role are checked at its first write.
_REFUSED = {
    "LOADING": "the server is loading its data",
    "BUSY": "the script of another program blocks the server",
    "OOM": "the server memory is full: raise maxmemory or remove keys",
    "MISCONF": "the server cannot write to its disk",
    "NOREPLICAS": "too few replicas are connected",
    "MASTERDOWN": "the server is a replica that lost its primary",
    "READONLY": "the server is a read-only replica: use the URL of the primary",
    "TRYAGAIN": "the server is moving keys",
    "CLUSTERDOWN": "the cluster is down",
}

_FORBIDDEN = {
    "NOAUTH": "the server requires a password: write it into the URL as redis://:password@host",
    "WRONGPASS": "the user or the password was not accepted",
    "NOPERM": "the user lacks a right: the driver page has the ACL rule to set",
    "DENIED": "the server runs in protected mode and accepts local connections only",
}

_CLUSTER = frozenset({"MOVED", "ASK", "CROSSSLOT"})

# After these the address may lead elsewhere when it is resolved again.
STALE = frozenset({"READONLY", "MASTERDOWN"})


# Before 7.0, an error inside a script stands at the end of one about the script.
_INSIDE = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")


def code_of(error: BaseException) -> str:
    """The code of a reply that is an error: its first word, or that of the error inside."""
    text = str(error)
    inside = _INSIDE.search(text)
    return inside[1] if inside else text.partition(" ")[0].rstrip(":")


def translate(error: BaseException, *, write: bool) -> OutliveError:
    """The error to raise for ``error``, which came after a request was handed to a connection.

    ``write`` says whether the request may have changed something.
    """
    if isinstance(error, OutliveError):
        return error
    if isinstance(error, Lost):
        if error.sent and write:
            return OutcomeUnknown(
                f"the reply of Redis was lost ({error.why}); the write may have been applied"
            )
        return StoreUnavailable(f"the connection to Redis was lost ({error.why})")
    return _translate_reply(error)


def _translate_reply(error: BaseException) -> OutliveError:
    code = code_of(error)
    if code in _REFUSED:
        return StoreUnavailable(f"Redis refused the request: {_REFUSED[code]} ({code})")
    if code in _FORBIDDEN:
        return ConfigurationError(f"Redis denied the request: {_FORBIDDEN[code]} ({code})")
    if code in _CLUSTER:
        return cluster()
    if "Script killed by user" in str(error):
        # Only one that has not written yet can be killed.
        return StoreUnavailable("Redis refused the request: the script was killed (SCRIPT KILL)")
    if "max number of clients" in str(error):
        return StoreUnavailable("Redis refused the request: too many clients are connected")
    if "invalid password" in str(error) or "without any password configured" in str(error):
        return ConfigurationError("Redis rejected the password in the URL")
    return StoreError(f"Redis reported an error ({str(error)[:200]})")


def cluster() -> ConfigurationError:
    """The refusal of Redis Cluster."""
    return ConfigurationError(
        "this is Redis Cluster, which the driver does not support: connect to a single server or "
        "a primary with replicas"
    )


def translate_connect(error: BaseException, shown: str) -> OutliveError:
    """The error to raise when no connection to ``shown`` came about; nothing was written."""
    if isinstance(error, OutliveError):
        return error
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"cannot connect to {shown}: no answer in time")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"cannot connect to {shown}: TLS failed, its certificate is not trusted "
            f"({error.verify_message}); set tls_ca to its certificate authority"
        )
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(
            f"cannot connect to {shown}: TLS failed ({type(error).__name__}); check that the "
            "server uses TLS; without TLS the scheme is redis://"
        )
    if isinstance(error, Lost):
        advice = "; check that it is a Redis server, and whether it requires TLS (rediss://)"
        return StoreUnavailable(f"cannot connect to {shown}: {error.why}{advice}")
    if isinstance(error, OSError):
        return StoreUnavailable(f"cannot connect to {shown} ({type(error).__name__})")
    if isinstance(error, UnicodeError):
        return ConfigurationError(f"the host name in {shown} is not valid")
    translated = _translate_reply(error)
    return type(translated)(f"cannot use {shown}: {translated}")
