"""Fixtures of tests with real processes.

Owns the ``store`` that processes share (a file, then a database; ``empty_store`` is one without a
schema) and the ``cast``, which starts programs and ends all of them with the test.
"""

from __future__ import annotations

import pytest

from tests.process.actors import Actor
from tests.process.nursery import Nursery
from tests.process.stores import PostgresStore, RedisStore, SqliteStore, create_schema


class Cast:
    """The processes of one test."""

    def __init__(self, nursery, folder) -> None:
        self.actors: list[Actor] = []
        self._nursery = nursery
        self._folder = folder

    def start(self, program: str, *arguments: object, env=None) -> Actor:
        actor = Actor(self._nursery, self._folder, program, *arguments, env=env)
        self.actors.append(actor)
        return actor

    def owners(self, url: str, *names: str, env=None) -> list[Actor]:
        """Remote-controlled hosts, one of each name, all connected."""
        actors = [self.start("owner", url, name, env=env) for name in names]
        for actor in actors:
            actor.wait("ready")
        return actors


@pytest.fixture(scope="session")
def nursery():
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def cast(nursery, tmp_path):
    found = Cast(nursery, tmp_path)
    yield found
    for actor in found.actors:
        actor.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def empty_store(request, tmp_path):
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "store.db")
    return PostgresStore(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(empty_store):
    create_schema(empty_store.url)
    return empty_store


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.service),
        pytest.param("redis", marks=pytest.mark.service),
    ]
)
def shared_store(request):
    """Every store that processes can share and that keeps time to a second."""
    return request.getfixturevalue(f"{request.param}_store")


@pytest.fixture
def sqlite_store(tmp_path):
    found = SqliteStore(tmp_path / "store.db")
    create_schema(found.url)
    return found


@pytest.fixture
def redis_store(redis_url):
    return RedisStore(redis_url)


@pytest.fixture
def postgres_store(postgres_url):
    create_schema(postgres_url)
    return PostgresStore(postgres_url)
