"""The inventory's rules where a lease is lost around the commit, and where bytes are hostile."""

from __future__ import annotations

import importlib
import sys
import time
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

import outlive
from tests.cli.conftest import wait_until
from tests.examples.conftest import EXAMPLES
from tests.examples.inventory_client import Instance, held
from tests.services.azurite import ACCOUNT

MODULES = ("inventory", "database", "settings")
TTL_S = 0.5


@pytest.fixture
def example(monkeypatch):
    """The modules of the example, which are named as those of any program may be."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "inventory"))
    yield {name: importlib.import_module(name) for name in reversed(MODULES)}
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
async def shop(example, tmp_path):
    url = f"sqlite:///{tmp_path}/inventory.db"
    settings = example["settings"].Settings(database=url, stock="PROD-001=10", reserve_ttl=TTL_S)
    database = example["database"].SqliteDatabase(url)
    await database.open()
    # Whoever is stopped renews nothing; this process is not, so it is told not to.
    async with outlive.connect(url, leases=outlive.LeaseOptions(auto_renew=False)) as host:
        inventory = example["inventory"].Inventory(host, database, settings)
        await inventory.add_products()
        yield inventory, database, url
    await database.close()


def pause_at_commit(monkeypatch: pytest.MonkeyPatch, database: Any, *, lost: bool) -> None:
    """Stop the process for longer than the ttl after COMMIT; ``lost`` loses its reply as well."""
    plain = database.transaction

    @asynccontextmanager
    async def transaction(*, write: bool = True):
        async with plain(write=write) as tx:
            yield tx
        if write:
            time.sleep(2 * TTL_S)  # noqa: ASYNC251 - a stopped process runs nothing else
            if lost:
                raise outlive.LeaseExpired("inventory/PROD-001")

    monkeypatch.setattr(database, "transaction", transaction)


async def test_what_was_committed_is_answered_though_the_lease_ran_out_after(shop, monkeypatch):
    inventory, database, url = shop
    pause_at_commit(monkeypatch, database, lost=False)
    answer = await inventory.reserve("PROD-001", 4, "c-1", None)
    assert (answer.status, answer.body["reservationId"]) == (200, held(url)[0][0])


async def test_a_loss_during_the_commit_is_not_called_nothing_written(shop, monkeypatch):
    inventory, database, url = shop
    pause_at_commit(monkeypatch, database, lost=True)
    answer = await inventory.reserve("PROD-001", 4, "c-1", "order-1")
    assert len(held(url)) == 1
    assert (answer.status, "same Idempotency-Key" in answer.body["message"]) == (503, True)
    monkeypatch.undo()
    again = await inventory.reserve("PROD-001", 4, "c-1", "order-1")
    assert (again.status, again.body["reservationId"]) == (200, held(url)[0][0])


BODIES = [
    b'{"quantity": 1, "customerId": "\xff"}',
    b'{"quantity": 1, "customerId": "\\u0000"}',
    b'{"quantity": 1, "customerId": "\\ud800"}',
    b'{"quantity": 1e400, "customerId": "c"}',
    b'{"quantity": NaN, "customerId": "c"}',
    b'{"quantity": 99999999999999999999999, "customerId": "c"}',
]


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def test_hostile_bytes_are_the_clients_mistake(programs, tmp_path, request, kind):
    url = f"sqlite:///{tmp_path}/inventory.db"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_url")
    shop = Instance(programs, "shop-1", database=url, stock="PROD-001=10")
    shop.wait_ready()
    said = [shop.ask("POST", "/api/inventory/PROD-001/reserve", body).status for body in BODIES]
    assert said == [400] * len(BODIES)
    assert shop.ask("GET", "/api/inventory/%00").status == 404
    assert shop.ask("GET", "/api/inventory/PROD-001'%20OR%201=1").status == 404
    assert shop.available("PROD-001") == 10


@pytest.mark.process
@pytest.mark.service
def test_reconciliation_runs_where_leases_last_a_minute_at_most(programs, tmp_path, azurite_server):
    access = urlencode({"connection_string": azurite_server.connection_string})
    shop = Instance(
        programs,
        "shop-1",
        database=f"sqlite:///{tmp_path}/inventory.db",
        leases=f"azblob://{ACCOUNT}/inventory?{access}",
        stock="PROD-001=10",
        reservation_life="0.2",
        reconcile_every="0.5",
    )
    shop.wait_ready()
    assert shop.reserve("PROD-001", 4).status == 200
    wait_until(lambda: shop.available("PROD-001") == 10)
