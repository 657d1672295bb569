"""A client of the inventory service that retries as clients should, and instances to talk to."""

from __future__ import annotations

import http.client
import itertools
import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.examples.conftest import Program, Programs
from tests.services import free_port

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: dict[str, Any]


class Instance:
    """One running service."""

    def __init__(self, programs: Programs, name: str, **settings: str) -> None:
        self.name = name
        self.port = free_port()
        environ = {f"INVENTORY_{key.upper()}": value for key, value in settings.items()}
        self.program: Program = programs.start(
            "inventory", INVENTORY_INSTANCE=name, INVENTORY_PORT=str(self.port), **environ
        )

    def wait_ready(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.ask("GET", "/api/inventory/none")
            except OSError:
                assert self.program.process.poll() is None, "\n".join(self.program.said)
                assert time.monotonic() < until, "it never answered"
                time.sleep(0.05)
            else:
                return

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> Reply:
        """One request; raises ``OSError`` or ``HTTPException`` when no reply comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with closing(connection):
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {} if key is None else {"Idempotency-Key": key}
            connection.request(method, path, text if body is not None else None, headers)
            reply = connection.getresponse()
            return Reply(reply.status, json.loads(reply.read()))

    def reserve(self, product: str, quantity: int, key: str | None = None) -> Reply:
        body = {"quantity": quantity, "customerId": "c-1"}
        return self.ask("POST", f"/api/inventory/{product}/reserve", body, key)

    def release(self, product: str, reservation: str, key: str | None = None) -> Reply:
        body = {"reservationId": reservation}
        return self.ask("POST", f"/api/inventory/{product}/release", body, key)

    def available(self, product: str) -> int:
        return self.ask("GET", f"/api/inventory/{product}").body["availableQuantity"]


def insist(instances: list[Instance], start: int, product: str, key: str) -> Reply:
    """Reserve one piece, asking one instance after the other until one has decided."""
    until = time.monotonic() + PATIENCE_S
    for number in itertools.count(start):
        assert time.monotonic() < until, "nobody ever decided"
        try:
            reply = instances[number % len(instances)].reserve(product, 1, key)
        except (OSError, http.client.HTTPException):
            # Killed, or killed while it answered: whether it was written, the key will tell.
            continue
        if reply.status == 200 or reply.body.get("acquiredLease"):
            return reply
    raise AssertionError("unreachable")


def held(url: str) -> list[tuple[str, str, int]]:
    """Id, product and quantity of every reservation that holds stock."""
    return query(url, "SELECT id, product_id, quantity FROM reservation WHERE state = 'held'")


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Ask the database itself."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(statement).fetchall()
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(statement).fetchall()
