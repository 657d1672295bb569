"""The arithmetic of rounds: which one stands for a run, and in which order they are taken."""

from __future__ import annotations

import pytest

from benchmarks.leases.contention import judge
from benchmarks.leases.postgres_backend import count_log
from benchmarks.rounds import Sample, alternate, percentile, typical


def test_typical_round_has_the_median_ratio():
    samples = [Sample(1.0, 10.0), Sample(50.0, 100.0), Sample(9.0, 10.0)]
    assert typical(samples) == Sample(50.0, 100.0)


def test_of_an_even_number_the_lower_middle_stands():
    samples = [Sample(4.0, 1.0), Sample(2.0, 1.0), Sample(3.0, 1.0), Sample(1.0, 1.0)]
    assert typical(samples).ratio == 2.0


def test_one_wild_round_does_not_move_the_ratio():
    steady = [Sample(6.0, 10.0)] * 4
    assert typical([*steady, Sample(1000.0, 1.0)]).ratio == 0.6


def test_no_rounds_are_no_result():
    with pytest.raises(ValueError, match="no rounds"):
        typical([])


def test_percentile_is_a_value_that_was_measured():
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99) == 99.0
    assert percentile([3.0], 99) == 3.0
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


async def test_rounds_take_turns_in_who_goes_first():
    order: list[str] = []

    async def ours() -> float:
        order.append("ours")
        return 6.0

    async def floor() -> float:
        order.append("floor")
        return 10.0

    async def peer() -> float:
        order.append("peer")
        return 7.0

    outcome = await alternate(ours, floor, rounds=3, peers={"other": peer})
    warm_up, rounds = order[:2], order[2:]
    assert sorted(warm_up) == ["floor", "ours"]
    assert rounds == ["ours", "floor", "peer", "floor", "ours", "peer", "ours", "floor", "peer"]
    assert outcome.typical == Sample(6.0, 10.0)
    assert outcome.peers == {"other": 7.0}


def test_share_is_that_of_the_least_served():
    result = judge([10, 30], [0.001, 0.2], 2.0)
    assert result.share == 0.5
    assert result.wait_ms == 200.0
    assert result.rate == 20.0


def test_who_was_never_served_has_no_share():
    assert judge([0, 30], [0.0, 0.1], 1.0).share == 0.0
    with pytest.raises(ValueError, match="nobody"):
        judge([0, 0], [0.0, 0.0], 1.0)


def test_statements_of_a_log_are_counted_by_either_protocol():
    log = (
        "2026-01-01 UTC [7] LOG:  statement: BEGIN\n"
        "2026-01-01 UTC [7] LOG:  execute __asyncpg_stmt_1__: UPDATE a\n\tSET b = 1\n"
        "2026-01-01 UTC [9] LOG:  execute __asyncpg_stmt_1__: SELECT 2\n"
        "2026-01-01 UTC [7] DETAIL:  parameters: $1 = 'LOG'\n"
        "2026-01-01 UTC [7] LOG:  statement: COMMIT\n"
        "2026-01-01 UTC [8] LOG:  execute __asyncpg_stmt_2__: \n\tSELECT 1\n"
        "2026-01-01 UTC [9] LOG:  checkpoint starting: time\n"
    )
    count = count_log(log)
    assert count.statements == 3
    assert count.brackets == 2
    assert count.transactions == 3


async def test_a_round_in_which_the_machine_paused_is_taken_again():
    rates = iter([1.0, 0.0, 0.0, 8.0])

    async def ours() -> float:
        return next(rates)

    async def floor() -> float:
        return 4.0

    assert (await alternate(ours, floor, rounds=1)).typical == Sample(8.0, 4.0)


async def test_a_floor_that_does_nothing_is_a_mistake():
    async def ours() -> float:
        return 1.0

    async def floor() -> float:
        return 0.0

    with pytest.raises(RuntimeError, match="nothing was done"):
        await alternate(ours, floor, rounds=1)
