"""A crash at every commit point of each example flow: the result is that of the quiet run."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from outlive.testing import crash_at_every_commit
from tests.examples.conftest import EXAMPLES


def load(name: str) -> ModuleType:
    """An example as a module; its types are looked up by their module's name."""
    known = f"example_flows_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, EXAMPLES / "flows" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        spec.loader.exec_module(module)
    return sys.modules[known]


@pytest.mark.parametrize(
    ("country", "status", "word"),
    [("Norway", "completed", "parcel-o-1"), ("Atlantis", "failed", "no carrier")],
)
def test_an_order(country, status, word):
    shop = load("order_saga")
    report = crash_at_every_commit(shop.app, shop.checkout, shop.Order("o-1", 5, country))
    assert (report.status, report.writes >= 4) == (status, True)
    assert word in (report.outcome or "")


def test_an_order_that_is_a_chart():
    shop = load("order_chart")

    async def pay(handle):
        for amount in (5000, 50):
            event = {"type": "PAY", "amount": amount}
            await handle.signal("event", event, id=f"payment-{amount}")

    report = crash_at_every_commit(shop.app, shop.sell, drive=pay)
    assert report.outcome == '"paid receipt-50"'


def test_an_approval_in_time():
    office = load("approval")

    async def approve(handle):
        await handle.signal("decided", office.Approval(by="Ann", granted=True), id="decision")

    purchase = office.Purchase("a ship", 9)
    report = crash_at_every_commit(office.app, office.buy, purchase, 3600, drive=approve)
    assert report.outcome == '"a ship: approved by Ann"'


def test_an_approval_that_never_comes():
    office = load("approval")
    report = crash_at_every_commit(office.app, office.buy, office.Purchase("pens", 1), 3600)
    assert report.outcome == '"pens: nobody decided in time"'


def test_a_small_fan_out():
    census = load("fan_out")
    report = crash_at_every_commit(census.app, census.census, 40)
    assert report.outcome == str(sum(page % 7 for page in range(40)))
    assert report.crashes == 2 * report.writes


def test_the_fan_out_of_a_thousand():
    census = load("fan_out")
    report = crash_at_every_commit(census.app, census.census, 1000, sample=25, seed=7)
    assert report.outcome == str(sum(page % 7 for page in range(1000)))
    assert (report.crashes, report.writes > 25) == (25, True)


def test_a_monitor():
    watch = load("monitor")
    report = crash_at_every_commit(watch.app, watch.monitor, 80)
    assert report.outcome == "3"


def test_a_pipeline():
    film = load("pipeline")
    report = crash_at_every_commit(film.app, film.produce, "storm", 4)
    assert report.outcome == '"4 frames, from storm/0.png to storm/3.png"'


def test_quick_and_long_flows():
    shop = load("two_hosts")
    assert crash_at_every_commit(shop.app, shop.quick, "q").outcome == '"q-1"'
    assert crash_at_every_commit(shop.app, shop.long, "l", 12).outcome == "12"


def test_an_order_of_the_web():
    web = load("web")
    assert crash_at_every_commit(web.app, web.handle_order, "o-1").outcome == '"o-1 confirmed"'
