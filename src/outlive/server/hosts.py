"""Which names a server answers to, and which browsers it refuses.

A page somewhere on the web can make a browser send requests to an address of its choice, and, with
a name that it lets point to this machine, read the answers. Owns the two checks against that: the
Host header must be one of ours, and a request that a foreign page caused is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from outlive.errors import ConfigurationError
from outlive.server.limits import HEAD_BYTES_MAX
from outlive.server.problems import Problem, problem_response

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host_name(name: str) -> str:
    """Return ``name`` in the form in which it is compared.

    Raises:
        ConfigurationError: It is no host name: it has a scheme, a port, a path or a wildcard.
    """
    shown = name.strip().lower()
    plain = shown.removeprefix("[").removesuffix("]") if shown.startswith("[") else shown
    if (
        not plain
        or any(character in plain for character in "/*@? ")
        or (":" in plain and not shown.startswith("["))
    ):
        raise ConfigurationError(
            f"{name!r} is not a host name: leave out scheme, port and wildcard"
        )
    return shown


class HostCheck:
    """Passes on the requests that were meant for this server."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset((*LOOPBACK, *(check_host_name(name) for name in allowed)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it before anybody looks at it."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if _head_bytes(scope) > HEAD_BYTES_MAX:
            problem = Problem(
                "head-too-large",
                f"The head of a request must have at most {HEAD_BYTES_MAX} bytes.",
                Connection="close",
            )
        elif len(hosts) != 1 or not hosts[0]:
            problem = Problem("invalid-request", "A request must have exactly one Host header.")
        elif _host_of(hosts[0]) not in self._allowed:
            problem = Problem(
                "misdirected",
                "The Host header does not name this server. To allow a name, start the server with "
                "--allowed-host NAME.",
            )
        elif self._is_foreign(headers):
            problem = Problem("forbidden", "Requests from pages of other sites are not allowed.")
        else:
            await self._app(scope, receive, send)
            return
        await problem_response(problem)(scope, receive, send)

    def _is_foreign(self, headers: Headers) -> bool:
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return True
        origin = headers.get("origin")
        return origin is not None and _authority_of(origin) != headers.get("host", "")


def _head_bytes(scope: Scope) -> int:
    """The size of the target and the headers, with a colon, a space and a line end for each."""
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return target + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _authority_of(origin: str) -> str:
    """Host and port in an Origin header; nothing if it names none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = header.lower().rpartition(":")
    if colon and port.isdecimal():
        return name
    return header.lower()
