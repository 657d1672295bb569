"""The inventory service: its answers, its clock-work, and what happens when instances die."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.conftest import wait_until
from tests.examples.inventory_client import Instance, Reply, held, insist, query

pytestmark = pytest.mark.process

STOCK = {"PROD-001": 25, "PROD-002": 40}
# More than there is of the one, less than there is of the other.
DEMAND = {"PROD-001": 32, "PROD-002": 32}


@pytest.fixture
def database(tmp_path):
    return f"sqlite:///{tmp_path}/inventory.db"


@pytest.fixture
def shop(programs, database):
    instance = Instance(programs, "shop-1", database=database, stock="PROD-001=10,EMPTY=0")
    instance.wait_ready()
    return instance


def test_a_reservation_answers_as_promised(shop, database):
    reply = shop.reserve("PROD-001", 4)
    (reservation,) = held(database)
    assert (reply.status, reply.body) == (
        200,
        {
            "success": True,
            "productId": "PROD-001",
            "requestedQuantity": 4,
            "availableQuantity": 6,
            "reservationId": reservation[0],
            "message": "reserved",
            "acquiredLease": True,
        },
    )
    stock = shop.ask("GET", "/api/inventory/PROD-001").body
    assert stock == {"productId": "PROD-001", "availableQuantity": 6, "reservedQuantity": 4}
    more = shop.reserve("PROD-001", 7)
    assert (more.status, more.body["message"]) == (409, "only 6 left")
    assert (more.body["success"], more.body["acquiredLease"]) == (False, True)
    assert shop.reserve("EMPTY", 1).body["message"] == "sold out"


def test_a_release_gives_the_stock_back_once(shop):
    reservation = shop.reserve("PROD-001", 4).body["reservationId"]
    first = shop.release("PROD-001", reservation)
    assert (first.status, first.body["availableQuantity"]) == (200, 10)
    again = shop.release("PROD-001", reservation)
    assert (again.status, again.body["message"]) == (409, "it was released before")
    assert shop.release("PROD-001", "no-such-id").status == 404
    assert shop.release("EMPTY", reservation).status == 404
    assert shop.available("PROD-001") == 10


def test_the_same_key_is_answered_the_same(shop):
    first = shop.reserve("PROD-001", 4, key="order-1")
    assert shop.reserve("PROD-001", 4, key="order-1") == first
    assert shop.available("PROD-001") == 6
    other = shop.reserve("PROD-001", 5, key="order-1")
    assert (other.status, "another request" in other.body["message"]) == (409, True)
    refused = shop.reserve("PROD-001", 9, key="order-2")
    shop.release("PROD-001", first.body["reservationId"], key="order-3")
    # What was decided stays decided; a new try is a new key.
    assert shop.reserve("PROD-001", 9, key="order-2") == refused
    assert shop.reserve("PROD-001", 9, key="order-4").status == 200


WRONG_REQUESTS = [
    ("/api/inventory/none/reserve", {"quantity": 1, "customerId": "c"}, 404),
    ("/api/inventory/%00/reserve", {"quantity": 1, "customerId": "c"}, 404),
    ("/api/inventory/PROD-001/reserve", {"quantity": 0, "customerId": "c"}, 400),
    ("/api/inventory/PROD-001/reserve", {"quantity": -1, "customerId": "c"}, 400),
    ("/api/inventory/PROD-001/reserve", {"quantity": 1.5, "customerId": "c"}, 400),
    ("/api/inventory/PROD-001/reserve", {"quantity": 1}, 400),
    ("/api/inventory/PROD-001/reserve", {"quantity": 1, "customerId": ""}, 400),
    ("/api/inventory/PROD-001/reserve", {"quantity": 1, "customerId": "c", "x": 1}, 400),
    ("/api/inventory/PROD-001/reserve", b"{", 400),
    ("/api/inventory/PROD-001/reserve", b" " * 20_000, 400),
    ("/api/inventory/PROD-001/release", {}, 400),
]


def test_wrong_requests_change_nothing(shop):
    for path, body, status in WRONG_REQUESTS:
        reply = shop.ask("POST", path, body)
        assert (reply.status, reply.body["success"]) == (status, False), (path, body)
        assert shop.available("PROD-001") == 10, (path, body)


def test_unknown_products_leave_no_lease_behind(shop, database):
    assert shop.reserve("invented", 1).status == 404
    keys = query(database, "SELECT key FROM outlive_lease")
    assert ("inventory/invented",) not in keys


def test_an_expired_reservation_is_returned_by_one_instance(programs, database):
    brief = {"database": database, "reservation_life": "0.5", "reconcile_every": "0.5"}
    shops = [
        Instance(programs, f"shop-{number}", stock="PROD-001=10", **brief) for number in (1, 2)
    ]
    for shop in shops:
        shop.wait_ready()
    reservation = shops[0].reserve("PROD-001", 4).body["reservationId"]
    wait_until(lambda: shops[1].available("PROD-001") == 10)
    late = shops[1].release("PROD-001", reservation)
    assert (late.status, late.body["message"]) == (409, "it was expired before")
    runners = query(database, "SELECT owner FROM outlive_lease WHERE key LIKE 'every/%'")
    assert len(runners) == 1


@pytest.mark.parametrize(
    "kind",
    ["guarded", "fenced", pytest.param("postgres", marks=pytest.mark.service)],
)
def test_three_instances_never_oversell_when_one_is_killed(programs, database, kind, request):
    if kind == "postgres":
        database = request.getfixturevalue("postgres_url")
    settings = {
        "database": database,
        "leases": f"sqlite:///{programs.folder}/leases.db" if kind == "fenced" else "",
        "stock": ",".join(f"{product}={count}" for product, count in STOCK.items()),
        "reserve_ttl": "2",
        "patience": "10",
        "work": "0.02",
    }
    shops = [Instance(programs, f"shop-{number}", **settings) for number in (1, 2, 3)]
    for shop in shops:
        shop.wait_ready()
    victim = shops[0].program

    def kill_in_the_middle() -> None:
        victim.hear("released inventory/")
        # It owns a product again, and its work of 20 ms has only begun.
        victim.hear("acquired inventory/")
        victim.process.kill()

    killing = threading.Thread(target=kill_in_the_middle)
    killing.start()
    orders = [(product, number) for number in range(32) for product in DEMAND]

    def order(product: str, number: int, start: int) -> tuple[str, Reply]:
        return product, insist(shops, start, product, f"{product}-{number}")

    with ThreadPoolExecutor(8) as clients:
        # Each order twice, as an impatient customer sends it, to two instances.
        doubled = [
            [clients.submit(order, product, number, number + again) for again in (0, 1)]
            for product, number in orders
        ]
        replies = [[future.result() for future in pair] for pair in doubled]
    killing.join()
    assert victim.process.wait(10) == -9
    assert all(first == second for first, second in replies)
    check_books(database, [first for first, _ in replies])


@pytest.mark.parametrize("kind", ["guarded", "fenced"])
def test_an_instance_that_was_paused_writes_nothing(programs, database, kind):
    leases = f"sqlite:///{programs.folder}/leases.db" if kind == "fenced" else ""
    common = {"database": database, "leases": leases, "stock": "PROD-001=1", "reserve_ttl": "1"}
    # Ten seconds of work leave all the time that is needed to stop it in the middle.
    paused = Instance(programs, "shop-1", work="10", **common)
    other = Instance(programs, "shop-2", patience="30", **common)
    for shop in (paused, other):
        shop.wait_ready()
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(paused.reserve, "PROD-001", 1)
        paused.program.hear("acquired inventory/PROD-001")
        paused.program.process.send_signal(signal.SIGSTOP)
        # Waits in line until the store itself gives the lease away.
        sold = other.reserve("PROD-001", 1)
        paused.program.process.send_signal(signal.SIGCONT)
        late = waiting.result(60)
    assert sold.status == 200
    assert (late.status, late.body["acquiredLease"]) == (409, False)
    assert [number for number, _, _ in held(database)] == [sold.body["reservationId"]]


def check_books(database: str, replies: list[tuple[str, Reply]]) -> None:
    """Every success is one reservation, nothing else holds stock, and the sums are right."""
    sold_to = [
        (product, reply.body["reservationId"]) for product, reply in replies if reply.status == 200
    ]
    won = set(sold_to)
    assert len(won) == len(sold_to)
    kept = held(database)
    assert {(product, number) for number, product, _ in kept} == won
    left = dict(query(database, "SELECT id, quantity FROM product"))
    for product, count in STOCK.items():
        sold = sum(quantity for _, name, quantity in kept if name == product)
        assert (sold, left[product]) == (min(count, DEMAND[product]), count - sold)
        assert left[product] >= 0
