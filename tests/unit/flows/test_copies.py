"""Copies of a part of a flow: of its whole, of a part of a commit, and of what failed."""

from __future__ import annotations

import pytest

import outlive
from outlive.flows.events import Forked
from outlive.flows.rewinding import fork_history
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import Token
from tests.unit.flows.driving import Driven
from tests.unit.flows.retried import (
    broken,
    charge,
    flow,
    ran,
    remote,
    retry,
    run_of,
    ship,
)

pytestmark = pytest.mark.whitebox


@pytest.fixture(autouse=True)
def broken_at_first():
    broken[0] = True


def copy_of(
    driven: Driven, function, *, at: int, more: int = 0, edited: bool = False, to: str = "g"
) -> Driven:
    mark = Forked(at=driven.now_us, id=driven.id, version=at, base=driven.base, edited=edited)
    texts = fork_history(driven.rows, mark, more=more)
    rows = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(texts)]
    return Driven(flow(function), driven.args, id=to, rows=rows)


@pytest.mark.parametrize("base", [0, 5])
def test_a_copy_of_the_whole_history_ends_by_itself(base):
    async def code() -> int:
        charged = await charge()
        if broken[0]:
            raise ZeroDivisionError
        return charged

    driven = run_of(code, base=base)
    driven.work()
    assert copy_of(driven, code, at=base + 1).status is InstanceStatus.FAILED
    retry(driven)
    fork = copy_of(driven, code, at=base + 3)
    assert fork.outcome == 1
    assert fork.steps == {}
    fork.crash()
    assert fork.run.ended
    with pytest.raises(outlive.UsageError, match=rf"{base}.*, and {base + 1} to {base + 3}"):
        copy_of(driven, code, at=base + 4)


def test_a_copy_up_to_within_a_commit_begins_what_it_decides_once():
    async def code() -> int:
        charged = await charge()
        return charged + await remote(1)

    driven = run_of(code)
    driven.work()
    assert driven.told() == ["StepEnded", "StepSent"]
    fork = copy_of(driven, code, at=0, more=1)
    assert fork.steps == {}
    assert [job.id for job in fork.decisions[-1].jobs] == ["g/remote#0"]
    fork.crash()
    assert fork.decisions[-1].jobs == ()


def test_a_copy_that_failed_in_what_was_copied_is_retried():
    async def code() -> list[str]:
        drawn = outlive.uuid()
        await charge()
        return [str(drawn), await ship()]

    driven = run_of(code)
    driven.work()
    fork = copy_of(driven, code, at=2)
    assert fork.status is InstanceStatus.FAILED
    retry(fork)
    assert ran(fork) == ["ship#0"]
    assert fork.status is InstanceStatus.COMPLETED
    retry(driven)
    driven.work()
    assert fork.outcome == driven.outcome


@pytest.mark.parametrize("base", [0, 5])
def test_a_copy_of_a_part_of_a_copied_part_is_one_of_the_first_flow(base):
    async def code() -> list[str]:
        drawn = [str(outlive.uuid())]
        await charge()
        # Whatever it draws is compared with what is recorded when it is replayed.
        await ship(outlive.flow_id() + drawn[0])
        return [*drawn, str(outlive.uuid())]

    broken[0] = False
    driven = Driven(flow(code), (), base=base)
    driven.work()
    first = copy_of(driven, code, at=base + 2, edited=False)
    assert first.outcome == driven.outcome
    for cut in (0, 1, 2):
        second = copy_of(first, code, at=cut, edited=False, to="h")
        (mark,) = [event for event in second.history() if isinstance(event, Forked)]
        assert (mark.id, mark.base, mark.version) == ("f", base, base + cut)
        assert mark.edited is False
        second.work()
        assert second.outcome == driven.outcome
    # What it goes on with behind the mark is its own.
    second = copy_of(first, code, at=3, edited=True, to="h")
    assert [event.id for event in second.history() if isinstance(event, Forked)] == ["f", "g"]


def test_a_copy_of_an_edited_copy_is_edited():
    async def code() -> int:
        return await charge()

    driven = run_of(code)
    driven.work()
    for first, second in ((True, False), (False, True)):
        fork = copy_of(copy_of(driven, code, at=1, edited=first), code, at=1, edited=second)
        (mark,) = [event for event in fork.history() if isinstance(event, Forked)]
        assert mark.edited is True
