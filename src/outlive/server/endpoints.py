"""What a route is: its address, who may use it, what it takes and gives, and what runs.

Owns the one description from which requests are validated, answers written, and the OpenAPI
document made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from outlive.model.bearer import Scope
from outlive.server.access import Principal

JSON = "application/json"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, authenticated and validated. ``body`` is of the endpoint's own type.

    ``authorise`` looks at the bearer again and raises the refusal; for a request that waits, while
    its token may be revoked or expire.
    """

    request: Request
    principal: Principal
    authorise: Callable[[], Awaitable[Principal]]
    body: Any
    path: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of one of the kinds that the endpoint declares."""

    status: int
    answer: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def response(self) -> Response:
        """The response, ready to be sent."""
        if isinstance(self.answer, Response):
            return self.answer
        if self.answer is None:
            return Response(status_code=self.status, headers=self.headers)
        body = msgspec.json.encode(self.answer)
        return Response(body, self.status, self.headers, media_type=JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    Attributes:
        scope: What the bearer must have; ``None`` is for everybody, and gets no principal.
        names: The types of parts of the path that may be more than a ``Name``.
        query: The type of the query string, if it takes one.
        body: The type of the JSON body, if it takes one.
        body_optional: Whether that may be left out, which means an empty object.
        answers: Status to what it means and the type of its body; ``str`` is plain text.
        problems: Codes of the refusals that are this endpoint's own.
    """

    method: str
    path: str
    name: str
    summary: str
    run: Callable[[Call], Awaitable[Reply]]
    scope: Scope | None
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: Any = None
    body: Any = None
    body_optional: bool = False
    answers: dict[int, tuple[str, Any]] = field(default_factory=dict[int, tuple[str, Any]])
    problems: tuple[str, ...] = ()
