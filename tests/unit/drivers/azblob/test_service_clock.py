"""The estimate of the service's time, made of whole seconds that arrive late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from outlive.clock import instant
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.errors import StoreError
from outlive.testing import ManualClock

pytestmark = pytest.mark.whitebox

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def date(when: datetime) -> str:
    return format_datetime(when.replace(microsecond=0), usegmt=True)


def test_it_follows_the_service_and_never_runs_ahead():
    local = ManualClock()
    service = ServiceClock(local)
    for step in range(1, 200):
        truth = NOON + timedelta(seconds=0.37 * step)
        local.advance(0.37)
        service.observe(date(truth))
        assert instant(service.now_us()) <= truth
    assert truth - instant(service.now_us()) < timedelta(seconds=0.05)


def test_it_goes_on_between_replies():
    local = ManualClock()
    service = ServiceClock(local)
    service.observe(date(NOON))
    before = service.now_us()
    local.advance(2.5)
    assert service.now_us() - before == 2_500_000


def test_a_late_reply_does_not_set_it_back():
    local = ManualClock()
    service = ServiceClock(local)
    service.observe(date(NOON))
    local.advance(1.5)
    before = service.now_us()
    service.observe(date(NOON))
    assert service.now_us() == before


def test_a_service_that_was_set_back_is_followed():
    local = ManualClock()
    service = ServiceClock(local)
    service.observe(date(NOON))
    service.observe(date(NOON - timedelta(hours=1)))
    assert instant(service.now_us()) == NOON - timedelta(hours=1)


def test_without_a_reply_there_is_no_time():
    with pytest.raises(StoreError, match="Date header"):
        ServiceClock(ManualClock()).now_us()


@pytest.mark.parametrize("nonsense", [None, "", "yesterday", "2026-05-01T12:00:00"])
def test_what_is_no_date_is_passed_over(nonsense):
    service = ServiceClock(ManualClock())
    service.observe(date(NOON))
    service.observe(nonsense)
    assert instant(service.now_us()) == NOON
