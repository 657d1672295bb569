"""What is kept of several errors at once: the first of them, and never more than a few."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from outlive import App
from outlive.flows.failures import failure_of
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("groups")


class Declined(Exception):
    """An error that comes out of its step as it was."""


@app.step(errors=[Declined])
async def pay(amount: int) -> int:
    return amount


def members(error):
    return msgspec.json.decode(bytes(failure_of(error).details))["members"]


def test_the_first_errors_in_a_group_are_kept_and_the_others_counted():
    kept = members(ExceptionGroup("several", [ValueError(str(n)) for n in range(300)]))
    assert kept["total"] == 300
    assert kept["first"] == [{"type": "ValueError", "message": str(n)} for n in range(5)]


def test_groups_in_a_group_are_looked_through_in_their_order():
    inner = ExceptionGroup("inner", [ValueError("b"), ExceptionGroup("deep", [KeyError("c")])])
    kept = members(ExceptionGroup("outer", [OSError("a"), inner, TypeError("d")]))
    assert [each["type"] for each in kept["first"]] == [
        "OSError",
        "ValueError",
        "KeyError",
        "TypeError",
    ]
    assert kept["total"] == 4


def test_a_group_that_holds_another_again_and_again_is_looked_through_once():
    group = ExceptionGroup("0", [ValueError("x")])
    for depth in range(3):
        group = ExceptionGroup(str(depth), [group, group])
    assert members(group) == {"total": 1, "first": [{"type": "ValueError", "message": "x"}]}


def test_whatever_errors_in_a_group_say_is_kept_short_storable_and_without_secrets():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    said = ["x" * 1_000_000, "postgres://me:hush@db/x", "a\udc80b"]
    errors = [*(ValueError(each) for each in said), Odd()]
    long, secret, surrogate, odd = members(ExceptionGroup("odd", errors))["first"]
    assert long["message"].endswith("… (1000000 characters)")
    assert "hush" not in secret["message"]
    assert surrogate["message"] == "a\\udc80b"
    assert odd["message"] == "(unprintable: RuntimeError)"
    assert len(bytes(failure_of(ExceptionGroup("odd", errors)).details)) < 16 * 1024


def test_only_of_a_group_members_are_kept():
    assert "members" not in msgspec.json.decode(bytes(failure_of(ValueError("x")).details))


def test_each_error_in_a_group_says_whose_failure_it_carries():
    async def branch(amount: int) -> None:
        try:
            await pay(amount)
        except Declined as error:
            if amount == 2:
                raise RuntimeError("no parcel") from error
            raise

    @App("a").flow
    async def flow() -> None:
        ends = await asyncio.gather(branch(1), branch(2), return_exceptions=True)
        raise ExceptionGroup("some", [*ends, OSError("of its own")])

    driven = Driven(flow)
    driven.end("pay#0", Declined("one"))
    driven.end("pay#1", Declined("two"))
    assert driven.status is InstanceStatus.FAILED
    first = driven.outcome["details"]["members"]["first"]
    assert [(each["message"], each.get("of")) for each in first] == [
        ("one", "step/pay#0"),
        ("no parcel", "step/pay#1"),
        ("of its own", None),
    ]


def test_so_does_the_error_that_a_task_group_wraps():
    @App("a").flow
    async def flow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay(1))
            group.create_task(pay(2))

    driven = Driven(flow)
    driven.end("pay#1", OSError("gone"))
    assert driven.outcome["details"]["members"] == {
        "total": 1,
        "first": [
            {
                "type": "outlive.errors.StepFailed",
                "message": "step pay#1 failed: OSError: gone",
                "of": "step/pay#1",
            }
        ],
    }
