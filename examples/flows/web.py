"""A web application that starts flows in its own transaction.

pip install fastapi uvicorn
uvicorn --app-dir examples/flows web:api

The order and its flow are there together, or neither is: both are rows of one SQLite transaction.
OUTLIVE_URL names the file; default sqlite:///shop.db.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

import outlive
from outlive import FlowNotFound

app = outlive.App("shop")
URL = os.environ.get("OUTLIVE_URL", "sqlite:///shop.db")


@app.step
async def confirm(order: str) -> str:
    """Stand for the mail to the customer."""
    return f"{order} confirmed"


@app.flow
async def handle_order(order: str) -> str:
    """What becomes of an order."""
    return await confirm(order)


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Serve flows beside the requests."""
    async with outlive.connect(URL, app=app, name="web-1") as host, host.running():
        api.state.host = host
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/orders/{order}")
async def create(order: str) -> dict[str, str]:
    """Keep the order and start its flow, in one transaction."""
    db = sqlite3.connect(URL.removeprefix("sqlite:///"), isolation_level=None)
    try:
        db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute("INSERT INTO orders VALUES (?)", (order,))
            await api.state.host.flows.start(handle_order, order, id=order, tx=db)
            db.execute("COMMIT")
        except sqlite3.IntegrityError:
            db.execute("ROLLBACK")
            raise HTTPException(409, f"there is an order {order} already") from None
    finally:
        db.close()
    return {"order": order}


@api.get("/orders/{order}")
async def look(order: str) -> dict[str, str | None]:
    """How far it is."""
    try:
        status = await api.state.host.flows.get(order, handle_order).status()
    except FlowNotFound:
        raise HTTPException(404, f"there is no order {order}") from None
    return {"status": status.status, "outcome": status.outcome}
