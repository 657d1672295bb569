"""The client: each route of the HTTP API as a method, its refusals as errors.

Owns what an answer means. Requests that may be repeated are, when the server is away or an answer
was lost, with growing pauses, until their time is up; ids chosen here make every repeat harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, urlencode

from outlive.client.flows import Flows
from outlive.client.http import Answer, Http
from outlive.errors import (
    ClaimLost,
    ConfigurationError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    UsageError,
)
from outlive.model.options import Duration, seconds
from outlive.names import check_queue
from outlive.runtime.runtime import Runtime

_log = logging.getLogger("outlive.client")

# One request, beside the time that it may wait for work.
_TIMEOUT_S = 15.0

# First and longest pause between attempts; each varies, so that a fleet does not return at once.
_PAUSE_S = (0.1, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item that this worker claimed. ``deadline`` is by the client's own clock."""

    id: str
    queue: str
    token: int
    payload: Any
    attempt: int
    headers: Mapping[str, Any]
    deadline: float
    claim_id: str = field(repr=False)


class Client:
    """Speaks to one server, or to a fleet behind one address. ``repr`` shows no token.

    Args:
        url: ``http://host:8420``; ``https://`` where a proxy ends TLS.
        token: A bearer token of ``outlive token create``; none for a server that is open to its
            own machine.
        worker_id: The name of this worker, for people.
        ttl: How long claims outlive the last heartbeat, in seconds.
        patience: How long a request that may be repeated is repeated while the server does not
            answer; by default, as long as a server takes to be restarted. The first repeat is
            logged as a warning.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        worker_id: str = "worker",
        ttl: float = 30.0,
        patience: Duration = 30.0,
        runtime: Runtime | None = None,
    ) -> None:
        self._http = Http(url, token)
        self._runtime = runtime or Runtime()
        self.worker_id = worker_id
        self.ttl = ttl
        self._patience_s = seconds(patience, "patience")
        # With a nonce of its own, every server of a fleet knows this worker's session.
        self._session = self._runtime.new_id()

    @property
    def runtime(self) -> Runtime:
        """Where its time comes from."""
        return self._runtime

    @property
    def flows(self) -> Flows:
        """The flows of the token's namespace."""
        return Flows(self._asked, self._runtime)

    @property
    def sent(self) -> int:
        """How many requests a server may have heard, answered or not."""
        return self._http.sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections. Claims end by their ttl: release them before. Repeatable."""
        await self._http.close()

    async def enqueue(self, queue: str, payload: Any, **options: Any) -> str:
        """Add an item, and return its id; ``options`` are those of the route.

        Raises:
            Conflict: A live item has the unique key, or the queue drains.
            UsageError: They cannot be sent as JSON, or the server refuses them.
            StoreUnavailable, OutcomeUnknown: The server stayed away; the same ``id`` may be sent
                again.
        """
        item = self._named({"payload": payload, **options})
        answer = await self._repeat("POST", _items_of(queue), item)
        return _expect(answer, 200, 201)["id"]

    async def enqueue_many(
        self, queue: str, items: Sequence[Mapping[str, Any]]
    ) -> list[tuple[str, str]]:
        """Add many items, all or none; each is a mapping with ``payload`` and options.

        Returns the id and the outcome of each. Raises as ``enqueue``.
        """
        named = [self._named(item) for item in items]
        answer = await self._repeat("POST", _items_of(queue), named)
        return [(found["id"], found["outcome"]) for found in _expect(answer, 200)["items"]]

    async def next(
        self,
        queues: str | Sequence[str],
        *,
        wait: float = 0.0,
        item: str | None = None,
        request_id: str | None = None,
    ) -> Item | None:
        """Claim one item, or ``None`` if there was none within ``wait`` seconds.

        ``queues`` is the name of one, or several.

        A lost answer is asked for again and gives the same item; ``request_id`` lets a later
        call do that too.

        Raises:
            ClaimLost: The session of this worker had ended, and everything it had claimed is
                lost. The next call begins a new one.
            UsageError, StoreUnavailable, OutcomeUnknown: As ``enqueue``.
        """
        begun = self._runtime.clock.monotonic()
        document: dict[str, Any] = {
            "worker_id": self.worker_id,
            "session": self._session,
            "queues": queues_of(queues),
            "wait": wait,
            "ttl": self.ttl,
            "request_id": request_id or self._runtime.new_id(),
        }
        if item is not None:
            document["item"] = item
        answer = await self._repeat("POST", "/worker/next", document, wait=wait)
        if answer.status == 409:  # noqa: PLR2004
            self._session = self._runtime.new_id()
            raise ClaimLost("*", "expired", "the session of this worker has expired")
        if answer.status == 204:  # noqa: PLR2004
            return None
        found = _expect(answer, 200)
        return Item(
            id=found["id"],
            queue=found["queue"],
            token=found["token"],
            payload=found["payload"],
            attempt=found["attempt"],
            headers=found["headers"],
            # From before the request: whatever time the answer took is lost, never gained.
            deadline=begun + found["expires_in"],
            claim_id=found["claim_id"],
        )

    async def complete(self, item: Item, result: Any = None) -> None:
        """End the item as done.

        Raises:
            ClaimLost: It is no longer this worker's; nothing was changed.
            StoreUnavailable, OutcomeUnknown: The server stayed away until the claim had ended.
        """
        await self._settle("complete", item, {"result": result})

    async def fail(
        self,
        item: Item,
        error: str,
        *,
        error_type: str | None = None,
        retry_in: float | None = None,
        dead: bool = False,
    ) -> None:
        """The item was tried and failed; raises as ``complete``.

        ``error_type`` names the class of the error, by which a retry policy decides.
        """
        more = {"error": error, "error_type": error_type, "retry_in": retry_in, "dead": dead}
        await self._settle("fail", item, more)

    async def release(self, item: Item, *, delay: float = 0.0) -> None:
        """Give the item back untried; raises as ``complete``."""
        await self._settle("release", item, {"delay": delay})

    async def heartbeat(
        self,
        items: Sequence[Item],
        progress: Mapping[str, Any] | None = None,
        *,
        complete: bool = False,
    ) -> tuple[float, dict[str, str]]:
        """Keep the claims: the new deadline, and ``ok``, ``cancel`` or ``lost`` by item id.

        Sent once: the next one is due soon. ``progress`` maps ids to what people may see. With
        ``complete``, ``items`` are all that this worker has: what it was given a ttl ago, in a
        reply that never came, goes back to its queue.

        Raises:
            StoreUnavailable, OutcomeUnknown: The server did not answer.
        """
        begun = self._runtime.clock.monotonic()
        document: dict[str, Any] = {
            "worker_id": self.worker_id,
            "session": self._session,
            "ttl": self.ttl,
            "complete": complete,
            "claims": [
                {"claim_id": item.claim_id, "progress": (progress or {}).get(item.id)}
                for item in items
            ],
        }
        timeout = min(_TIMEOUT_S, self.ttl / 3)
        answer = await self._http.request("POST", "/worker/heartbeat", document, timeout=timeout)
        found = _expect(answer, 200)
        states = zip(items, found["claims"], strict=True)
        return begun + found["expires_in"], {item.id: beat["state"] for item, beat in states}

    def _named(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """The item with an id, chosen here: a repeat after a lost answer adds nothing."""
        if item.get("id") is not None:
            return dict(item)
        return {**item, "id": self._runtime.new_id() + self._runtime.new_id()}

    async def _settle(self, verb: str, item: Item, more: dict[str, Any]) -> None:
        document = {"claim_id": item.claim_id, **more}
        answer = await self._repeat("POST", f"/worker/{verb}", document)
        if answer.status in (404, 409):
            raise ClaimLost(item.id, "fenced")
        _expect(answer, 200)

    async def _asked(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        once: bool = False,
    ) -> Answer:
        """The answer to a request about flows; parameters that are ``None`` are left out."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        path = f"{path}?{urlencode(given, doseq=True)}" if given else path
        patience_s = 0.0 if once else self._patience_s
        answer = await self._repeat(method, path, document, wait=wait, patience_s=patience_s)
        if answer.status >= 400:  # noqa: PLR2004 - the family of refusals
            raise _refusal(answer)
        return answer

    async def _repeat(
        self,
        method: str,
        path: str,
        document: Any,
        *,
        wait: float = 0.0,
        patience_s: float | None = None,
    ) -> Answer:
        """Send a request that may be repeated until it is answered, for ``patience_s``."""
        clock, pause_s = self._runtime.clock, _PAUSE_S[0]
        patience_s = self._patience_s if patience_s is None else patience_s
        until = clock.monotonic() + wait + patience_s
        while True:
            try:
                answer = await self._http.request(method, path, document, timeout=wait + _TIMEOUT_S)
                if answer.status not in (429, 502, 503, 504):
                    return answer
                failure = _refusal(answer)
            except (StoreUnavailable, OutcomeUnknown) as error:
                failure = error
            if clock.monotonic() + pause_s > until:
                raise failure
            if pause_s == _PAUSE_S[0]:
                _log.warning(
                    "%s %s: no answer, repeating for up to %g s: %s",
                    *(method, path.partition("?")[0], patience_s, failure),
                )
            await clock.sleep(pause_s * self._runtime.random.uniform(0.5, 1.0))
            pause_s = min(_PAUSE_S[1], pause_s * 2)


def queues_of(queues: str | Sequence[str]) -> list[str]:
    """The names of queues; one may be given by itself.

    Raises:
        UsageError: There is none, or one cannot be the name of a queue.
    """
    names = [queues] if isinstance(queues, str) else list(queues)
    if not names:
        raise UsageError("name at least one queue")
    return [check_queue(name) for name in names]


def _items_of(queue: str) -> str:
    return f"/queues/{quote(check_queue(queue), safe='')}/items"


def _expect(answer: Answer, *statuses: int) -> Any:
    if answer.status not in statuses:
        raise _refusal(answer)
    if answer.document is None:
        raise OutcomeUnknown("the URL does not lead to an Outlive server")
    return answer.document


def _refusal(answer: Answer) -> Exception:
    """The error that a refusal means."""
    said: Any = answer.document
    document = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    detail = str(document.get("detail", f"the server answered {answer.status}"))
    if document.get("code") == "outcome-unknown":
        return OutcomeUnknown(detail)
    match answer.status:
        case 401 | 403 | 421:
            return ConfigurationError(detail)
        case 404:
            return NotFound(detail)
        case 409:
            return Conflict(detail)
        case 429 | 502 | 503 | 504:
            return StoreUnavailable(detail)
        case status if status < 500:  # noqa: PLR2004
            return UsageError(detail)
        case _:
            return OutcomeUnknown(detail)
