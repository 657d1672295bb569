"""The HTTP face of the inventory: requests in, JSON out, and the job that reconciles."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import msgspec
from database import database_of
from inventory import Answer, Inventory
from settings import Settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import outlive

log = logging.getLogger("inventory")

# A request names a quantity and a customer; more is a mistake or an attack.
BODY_BYTES_MAX = 16 * 1024
PRODUCT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# PostgreSQL keeps no NUL in a text.
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\x00]*$")]


class ReserveRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client asks for."""

    quantity: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    customer_id: Text


class ReleaseRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client gives back."""

    reservation_id: Text


def problem(status: int, message: str) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"success": False, "message": message}, status)


async def reserve(request: Request) -> JSONResponse:
    """``POST /api/inventory/{product}/reserve``."""

    async def act(inventory: Inventory, body: ReserveRequest, key: str | None) -> Answer:
        product = request.path_params["product"]
        return await inventory.reserve(product, body.quantity, body.customer_id, key)

    return await _post(request, ReserveRequest, act)


async def release(request: Request) -> JSONResponse:
    """``POST /api/inventory/{product}/release``."""

    async def act(inventory: Inventory, body: ReleaseRequest, key: str | None) -> Answer:
        return await inventory.release(request.path_params["product"], body.reservation_id, key)

    return await _post(request, ReleaseRequest, act)


async def look(request: Request) -> JSONResponse:
    """``GET /api/inventory/{product}``."""
    product = request.path_params["product"]
    if PRODUCT.fullmatch(product) is None:
        return problem(404, "no such product")
    answer = await request.app.state.inventory.look(product)
    return JSONResponse(answer.body, answer.status)


async def _post(
    request: Request, kind: type, act: Callable[..., Awaitable[Answer]]
) -> JSONResponse:
    if PRODUCT.fullmatch(request.path_params["product"]) is None:
        return problem(404, "no such product")
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= 128:  # noqa: PLR2004
        return problem(400, "an Idempotency-Key is 1 to 128 characters")
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > BODY_BYTES_MAX:
            return problem(400, f"the body is larger than {BODY_BYTES_MAX} bytes")
    try:
        body = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return problem(400, str(error))
    try:
        answer = await act(request.app.state.inventory, body, key)
    except outlive.StoreError as error:
        log.warning("the store of the leases is away: %s", error)
        return problem(503, "try again later; with the same Idempotency-Key it happens once")
    return JSONResponse(answer.body, answer.status)


def log_event(event: outlive.LeaseEvent) -> None:
    """Every renewal, loss and release of this instance's leases, in the log."""
    level = logging.WARNING if isinstance(event, outlive.Lost) else logging.INFO
    log.log(level, "%s %s token %d", type(event).__name__.lower(), event.key, event.token)


def make_app(settings: Settings) -> Starlette:
    """The application of one instance."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        database = database_of(settings.database)
        await database.open()
        async with outlive.connect(settings.leases_url, name=settings.instance) as host:
            host.leases.on(outlive.LeaseEvent, log_event)
            app.state.inventory = inventory = Inventory(host, database, settings)
            await inventory.add_products()
            # Not every store grants as long a lease as we would like.
            longest = host.capabilities.ttl_max_s or settings.reconcile_ttl
            # One instance of the fleet runs each tick; the others take over when it dies.
            job = asyncio.ensure_future(
                host.leases.every(
                    settings.reconcile_every,
                    inventory.reconcile,
                    key="inventory/reconcile",
                    ttl=min(settings.reconcile_ttl, longest),
                )
            )
            yield
            job.cancel()
            with suppress(asyncio.CancelledError):
                await job
        await database.close()

    routes = [
        Route("/api/inventory/{product}", look, methods=["GET"]),
        Route("/api/inventory/{product}/reserve", reserve, methods=["POST"]),
        Route("/api/inventory/{product}/release", release, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
