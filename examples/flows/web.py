"""A web application that starts flows in its own transaction.

pip install fastapi uvicorn 'sqlalchemy[asyncio]' aiosqlite
uvicorn --app-dir examples/flows web:api

The order and its flow exist together, or neither does: both are rows of one transaction. The
session awaits its database, so that other requests go on meanwhile. OUTLIVE_URL names the SQLite
file; default sqlite:///shop.db.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import outlive
from outlive import FlowNotFound

app = outlive.App("shop")
URL = os.environ.get("OUTLIVE_URL", "sqlite:///shop.db")
engine = create_async_engine(URL.replace("sqlite://", "sqlite+aiosqlite://", 1))
Session = async_sessionmaker(engine)


class Base(DeclarativeBase):
    """The tables of this application, beside those of Outlive."""


class Order(Base):
    """What a customer wants."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


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
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with outlive.connect(URL, app=app, name="web-1") as host, host.running():
        api.state.host = host
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.post("/orders/{order}")
async def create(order: str) -> dict[str, str]:
    """Keep the order and start its flow, in one transaction."""
    try:
        async with Session.begin() as session:
            session.add(Order(id=order))
            await session.flush()  # an order that exists is found before its flow is started
            await api.state.host.flows.start(handle_order, order, id=order, tx=session)
    except IntegrityError:
        raise HTTPException(409, f"there is an order {order} already") from None
    return {"order": order}


@api.get("/orders/{order}")
async def look(order: str) -> dict[str, str | None]:
    """How far it is."""
    try:
        status = await api.state.host.flows.get(order, handle_order).status()
    except FlowNotFound:
        raise HTTPException(404, f"there is no order {order}") from None
    return {"status": status.status, "outcome": status.outcome}
