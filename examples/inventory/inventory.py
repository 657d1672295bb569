"""The rules of the stock: reserve, release, give back what expired. Every write is protected.

One lease per product keeps the instances apart. A lease alone does not stop a write that was on
its way when its owner was paused, so each transaction also proves the lease: by ``guard`` where the
leases are in the same database, by a fence column where they are not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from database import Database, Transaction
from settings import Settings

import outlive
from outlive import fencing

log = logging.getLogger("inventory")

FENCE = fencing.Fence(parameter="$1")
RAISE_FENCE = f"UPDATE product SET {FENCE.set} WHERE id = $2 AND {FENCE.where}"  # noqa: S608
TAKE = "UPDATE product SET quantity = quantity - $2 WHERE id = $1 AND quantity >= $2"
GIVE_BACK = "UPDATE product SET quantity = quantity + $2 WHERE id = $1"
RESERVE = """
INSERT INTO reservation (id, product_id, customer_id, quantity, expires_at)
VALUES ($1, $2, $3, $4, {now} + $5)
"""
RELEASE = """
UPDATE reservation SET state = 'released' WHERE id = $1 AND product_id = $2 AND state = 'held'
RETURNING quantity
"""
EXPIRE = """
UPDATE reservation SET state = 'expired'
WHERE product_id = $1 AND state = 'held' AND expires_at <= {now} RETURNING quantity
"""
# One run gives back what expired for so many products; the others wait for the next run.
RECONCILE_MAX = 1000
EXPIRED_PRODUCTS = f"""
SELECT DISTINCT product_id FROM reservation WHERE state = 'held' AND expires_at <= {{now}}
LIMIT {RECONCILE_MAX}
"""  # noqa: S608
REMEMBER = """
INSERT INTO answer (key, request, status, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
HELD = "SELECT coalesce(sum(quantity), 0) FROM reservation WHERE product_id = $1 AND state = 'held'"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is told."""

    status: int
    body: dict[str, Any]


class KeyReused(Exception):
    """A request for another product took the idempotency key first; nothing was written."""


class Inventory:
    """The stock, as one instance of the service works on it."""

    def __init__(self, host: outlive.Host, database: Database, settings: Settings) -> None:
        self._leases = host.leases
        self._database = database
        self._settings = settings

    async def add_products(self) -> None:
        """Put the products of the settings into the stock, unless they are there."""
        async with self._database.transaction() as tx:
            for entry in filter(None, self._settings.stock.split(",")):
                product, _, quantity = entry.partition("=")
                await tx.execute(
                    "INSERT INTO product (id, quantity) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                    product,
                    int(quantity),
                )

    async def look(self, product: str) -> Answer:
        """How much there is of ``product``."""
        async with self._database.transaction(write=False) as tx:
            available = await _available(tx, product)
            if available is None:
                return _unknown(product)
            ((held,),) = await tx.fetch(HELD, product)
        stock = {"availableQuantity": available, "reservedQuantity": int(held)}
        return Answer(200, {"productId": product, **stock})

    async def reserve(self, product: str, quantity: int, customer: str, key: str | None) -> Answer:
        """Set ``quantity`` aside for ``customer``; repeated under one ``key``, it happens once."""
        told = {"productId": product, "requestedQuantity": quantity, "acquiredLease": True}
        request = _digest("reserve", product, quantity, customer)

        async def change(tx: Transaction) -> Answer:
            if not await tx.execute(TAKE, product, quantity):
                left = await _available(tx, product)
                why = f"only {left} left" if left else "sold out"
                return Answer(409, {"success": False, **told, **_result(left, None, why)})
            number = str(uuid.uuid4())
            life = self._settings.reservation_life
            await tx.execute(RESERVE, number, product, customer, quantity, life)
            left = await _available(tx, product)
            return Answer(200, {"success": True, **told, **_result(left, number, "reserved")})

        return await self._change(product, self._settings.reserve_ttl, key, request, change)

    async def release(self, product: str, reservation: str, key: str | None) -> Answer:
        """Give the stock of a reservation back; a second time is a conflict."""
        told = {"productId": product, "acquiredLease": True}

        async def change(tx: Transaction) -> Answer:
            rows = await tx.fetch(RELEASE, reservation, product)
            if rows:
                ((quantity,),) = rows
                await tx.execute(GIVE_BACK, product, quantity)
                done = _result(await _available(tx, product), reservation, "released")
                return Answer(200, {"success": True, **told, "requestedQuantity": quantity, **done})
            known = await tx.fetch(
                "SELECT state FROM reservation WHERE id = $1 AND product_id = $2",
                reservation,
                product,
            )
            why = f"it was {known[0][0]} before" if known else "no such reservation"
            left = await _available(tx, product)
            failed = {"success": False, **told, **_result(left, reservation, why)}
            return Answer(409 if known else 404, failed)

        request = _digest("release", product, reservation)
        return await self._change(product, self._settings.release_ttl, key, request, change)

    async def reconcile(self) -> int:
        """Return the stock of expired reservations; how many there were."""
        async with self._database.transaction(write=False) as tx:
            products = [product for (product,) in await tx.fetch(EXPIRED_PRODUCTS)]
        count = 0
        for product in products:
            try:
                async with self._writing(product, self._settings.reserve_ttl) as tx:
                    expired = await tx.fetch(EXPIRE, product)
                    await tx.execute(GIVE_BACK, product, sum(quantity for (quantity,) in expired))
            except (outlive.AcquireTimeout, outlive.LeaseLost) as error:
                log.warning("left to the next reconciliation: %s", error)
            else:
                count += len(expired)
        log.info("reconciled: %d reservations had expired", count)
        return count

    async def _change(
        self, product: str, ttl_s: float, key: str | None, request: str, change: Any
    ) -> Answer:
        """One change under the product's lease, remembered under its idempotency key."""
        # Asked before the lease: a key is remembered for ever, and clients can invent names.
        if (await self.look(product)).status != HTTPStatus.OK:
            return _unknown(product)
        answer: Answer | None = None
        try:
            async with self._writing(product, ttl_s) as tx:
                known = await tx.fetch("SELECT request, status, body FROM answer WHERE key=$1", key)
                for before, status, body in known:
                    return Answer(status, json.loads(body)) if before == request else _reused()
                answer = await change(tx)
                remembered = (key, request, answer.status, json.dumps(answer.body))
                if key is not None and not await tx.execute(REMEMBER, *remembered):
                    raise KeyReused
                return answer
        except KeyReused:
            return _reused()
        except outlive.AcquireTimeout:
            return _busy(product, "others are at this product; try again")
        except outlive.LeaseLost as error:
            if answer is not None:
                # Cancelled while COMMIT was on its way: only the database knows.
                log.warning("it is not known whether %s was changed: %s", product, error)
                return _in_doubt(product)
            log.warning("nothing was written: %s", error)
            return _busy(product, "the lease was lost and nothing was written; try again")

    @asynccontextmanager
    async def _writing(self, product: str, ttl_s: float) -> AsyncGenerator[Transaction, None]:
        """A transaction that only the owner of the product's lease can commit.

        A lease that is lost after the commit takes nothing back.
        """
        key = f"inventory/{product}"
        committed = False
        try:
            async with self._leases.hold(key, timeout=self._settings.patience, ttl=ttl_s) as lease:
                log.info("acquired %s with token %d", key, lease.token)
                # Whatever is slow happens here: under the lease, before the transaction.
                await asyncio.sleep(self._settings.work)
                async with self._database.transaction() as tx:
                    if self._settings.is_guarded:
                        await lease.guard(tx.raw)
                    else:
                        fencing.check(lease, await tx.execute(RAISE_FENCE, lease.token, product))
                    yield tx
                committed = True
        except outlive.LeaseLost as error:
            if not committed:
                raise
            log.warning("lost after the write: %s", error)


async def _available(tx: Transaction, product: str) -> int | None:
    rows = await tx.fetch("SELECT quantity FROM product WHERE id = $1", product)
    return rows[0][0] if rows else None


def _result(available: int | None, reservation: str | None, message: str) -> dict[str, Any]:
    return {"availableQuantity": available, "reservationId": reservation, "message": message}


def _unknown(product: str) -> Answer:
    body = {"success": False, "productId": product, "message": "no such product"}
    return Answer(404, {**body, "acquiredLease": False})


def _busy(product: str, message: str) -> Answer:
    body = {"success": False, "productId": product, "message": message}
    return Answer(409, {**body, "acquiredLease": False})


def _in_doubt(product: str) -> Answer:
    message = "it may have been done; ask again, with the same Idempotency-Key it happens once"
    return Answer(503, {"success": False, "productId": product, "message": message})


def _reused() -> Answer:
    message = "this Idempotency-Key was used for another request"
    return Answer(409, {"success": False, "message": message, "acquiredLease": True})


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
