"""What a client is told when something is refused: problem documents (RFC 9457).

Owns the codes. A problem says what to do, in words of ours: never those of a store, which may name
statements, paths or addresses.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlive.errors import (
    ConfigurationError,
    Conflict,
    LeaseLost,
    MailboxFull,
    NotFound,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    UnsupportedByDriver,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"


class ProblemDocument(msgspec.Struct, kw_only=True, rename={"kind": "type"}):
    """Why a request was refused. ``code`` is stable; programs decide by it and by the status."""

    kind: str
    title: str
    status: int
    detail: str
    code: str


TITLES = {
    "invalid-request": (400, "The request is not valid"),
    "unauthenticated": (401, "No valid bearer token"),
    "forbidden": (403, "Not allowed"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "request-timeout": (408, "The body did not arrive in time"),
    "claim-stale": (409, "The claim was lost"),
    "session-ended": (409, "The worker's session has ended"),
    "duplicate": (409, "A live item has this unique key"),
    "queue-draining": (409, "The queue is draining"),
    "conflict": (409, "Conflict with the current state"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "Only JSON is supported"),
    "misdirected": (421, "Unknown host name"),
    "unsupported": (422, "Not supported by the store"),
    "too-many-requests": (429, "Too many requests"),
    "head-too-large": (431, "The head of the request is too large"),
    "internal": (500, "Internal server error"),
    "server-stopping": (503, "The server is stopping"),
    "store-unavailable": (503, "The store does not answer"),
    "outcome-unknown": (503, "The outcome is unknown"),
}
"""Status and title of every code."""


class Problem(Exception):
    """A refusal on its way to the client. Control flow of the server; never leaves it."""

    def __init__(self, code: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def status(self) -> int:
        """The HTTP status."""
        return TITLES[self.code][0]

    def document(self) -> bytes:
        """The body of the answer."""
        status, title = TITLES[self.code]
        return msgspec.json.encode(
            ProblemDocument(
                kind=f"urn:outlive:problem:{self.code}",
                title=title,
                status=status,
                detail=self.detail,
                code=self.code,
            )
        )


def session_ended() -> Problem:
    """The refusal of a worker whose session is over."""
    return Problem(
        "session-ended",
        "No heartbeat arrived in time, and other workers can claim the items of this session. Stop "
        "work on them, choose a new session, and repeat the request.",
    )


def problem_of(error: OutliveError) -> Problem:
    """The refusal that says what ``error`` means for a client."""
    if isinstance(error, OutcomeUnknown):
        return Problem(
            "outcome-unknown",
            "The store's reply was lost: the request may or may not have been applied. Repeat it "
            "with the same ids; it is never applied twice.",
            Retry_After="1",
        )
    if isinstance(error, StoreError):
        return Problem(
            "store-unavailable",
            "Nothing was changed. Repeat the request in a moment.",
            Retry_After="1",
        )
    if isinstance(error, NotFound | Conflict):
        # Our own sentence about an id that the client sent.
        said = str(error)
        code = "not-found" if isinstance(error, NotFound) else "conflict"
        return Problem(code, f"{said[:1].upper()}{said[1:]}.")
    if isinstance(error, UnsupportedByDriver):
        return Problem("unsupported", "The store of this server does not support this request.")
    if isinstance(error, MailboxFull):
        return Problem(
            "too-many-requests",
            "The flow has too many unread signals; nothing was sent. Retry later.",
            Retry_After="5",
        )
    if isinstance(error, LeaseLost):
        return session_ended()
    if isinstance(error, UsageError) and not isinstance(error, ConfigurationError):
        return Problem("invalid-request", str(error))
    # A wrong setting of the server is nobody's business but its operator's, who reads the log.
    return Problem("internal", "Internal error; the log of the server has the details.")


def problem_response(problem: Problem) -> Response:
    """The response that says it."""
    return Response(problem.document(), problem.status, problem.headers, MEDIA_TYPE)
