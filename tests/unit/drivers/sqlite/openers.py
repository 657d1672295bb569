"""Transactions of users, of every kind that the driver accepts, on a store's own file.

Each has written a row into the user's table ``work`` when it ends.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from tests.unit.drivers.sqlite.support import open_store

Opener = Callable[[Path], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def plain(path: Path) -> AsyncGenerator[Any, None]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO work VALUES ('x')")
        yield connection
        connection.commit()


@asynccontextmanager
async def plain_without_legacy_transactions(path: Path) -> AsyncGenerator[Any, None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO work VALUES ('x')")
        yield connection
        connection.execute("COMMIT")


@asynccontextmanager
async def alchemy_connection(path: Path) -> AsyncGenerator[Any, None]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        yield connection
        connection.execute(sqlalchemy.text("INSERT INTO work VALUES ('x')"))
    engine.dispose()


@asynccontextmanager
async def alchemy_session(path: Path) -> AsyncGenerator[Any, None]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with orm.Session(engine) as session, session.begin():
        yield session
        session.execute(sqlalchemy.text("INSERT INTO work VALUES ('x')"))
    engine.dispose()


@asynccontextmanager
async def alchemy_async_connection(path: Path) -> AsyncGenerator[Any, None]:
    pytest.importorskip("aiosqlite")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    ext = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = ext.create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.begin() as connection:
        yield connection
        await connection.execute(sqlalchemy.text("INSERT INTO work VALUES ('x')"))
    await engine.dispose()


@asynccontextmanager
async def alchemy_async_session(path: Path) -> AsyncGenerator[Any, None]:
    pytest.importorskip("aiosqlite")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    ext = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = ext.create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with ext.AsyncSession(engine) as session, session.begin():
        yield session
        await session.execute(sqlalchemy.text("INSERT INTO work VALUES ('x')"))
    await engine.dispose()


@contextlib.contextmanager
def django_wrapper(path: Path) -> Iterator[Any]:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import connections
    from django.db.backends.sqlite3.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(USE_TZ=True, INSTALLED_APPS=[])
    django.setup()
    database = {"NAME": str(path), "ENGINE": "django.db.backends.sqlite3", "OPTIONS": {}}
    database |= {"AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    database |= {"TIME_ZONE": None, "ATOMIC_REQUESTS": False, "TEST": {}}
    # Django keeps its connections off event loops; async code hands them in from a thread, and
    # here the environment variable of its documentation stands for that.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        wrapper = connections["guarded"] = DatabaseWrapper(database, "guarded")
        try:
            yield wrapper
        finally:
            wrapper.close()


@asynccontextmanager
async def django(path: Path) -> AsyncGenerator[Any, None]:
    with django_wrapper(path) as wrapper:
        from django.db import transaction

        with transaction.atomic(using="guarded"):
            wrapper.cursor().execute("INSERT INTO work VALUES ('x')")
            yield wrapper


OPENERS: list[Opener] = [
    plain,
    plain_without_legacy_transactions,
    alchemy_connection,
    alchemy_session,
    alchemy_async_connection,
    alchemy_async_session,
    django,
]


@asynccontextmanager
async def user_transaction(path: Path) -> AsyncGenerator[sqlite3.Connection, None]:
    """The plainest one, in a file without tables of the user's."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


@asynccontextmanager
async def store_with_work(directory: Path) -> AsyncGenerator[SqliteDriver, None]:
    """A store whose file has a table of the user's as well."""
    opened = await open_store(directory, busy_timeout=0.3)
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        connection.execute("CREATE TABLE work (text TEXT)")
        connection.commit()
    try:
        yield opened
    finally:
        await opened.close()
