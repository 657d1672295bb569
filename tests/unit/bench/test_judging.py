"""What the records of workers are worth: duplicates, lost items, percentiles and the verdict."""

from __future__ import annotations

import pytest

from outlive.bench.judging import Record, Tally, judge, percentile, sum_up
from outlive.bench.showing import chart_of, rows_of


def record(worker: str, *items: int, attempts: int | None = None) -> Record:
    claims = tuple((item, 0.001 * (item + 1)) for item in items)
    return Record(worker=worker, attempts=attempts or len(items), claims=claims)


def tally(*runs: list[Record], sound: bool = True, items: int = 3) -> Tally:
    return judge(list(runs), store="sqlite", strategy="it", sound=sound, items=items)


def test_items_claimed_once_are_no_fault():
    found = tally([record("a", 0, 2), record("b", 1)], [record("a"), record("b", 0, 1, 2)])
    assert (found.workers, found.runs, found.wins) == (2, 2, 6)
    assert (found.duplicates, found.lost, found.fault) == (0, 0, None)


def test_the_same_item_in_two_runs_is_no_duplicate():
    assert tally([record("a", 0, 1, 2)], [record("a", 0, 1, 2)]).duplicates == 0


def test_each_claim_after_the_first_is_a_duplicate():
    found = tally([record("a", 0, 1, 2), record("b", 1), record("c", 1)])
    assert found.duplicates == 2
    assert found.fault == "duplicates: 2, lost items: 0"


def test_one_worker_that_claims_an_item_again_is_a_duplicate_too():
    assert tally([record("a", 0, 0, 1, 2)]).duplicates == 1


def test_an_item_that_nobody_claimed_is_lost():
    found = tally([record("a", 0), record("b", 2)])
    assert found.lost == 1
    assert found.fault == "duplicates: 0, lost items: 1"


def test_attempts_that_were_beaten_lower_the_success_rate():
    found = tally([record("a", 0, 1, 2, attempts=4), record("b", attempts=2)])
    assert found.success_rate == pytest.approx(0.5)


def test_a_control_that_does_no_harm_is_the_fault_of_the_contest():
    tame = tally([record("a", 0, 1, 2), record("b")], sound=False)
    assert "proves nothing" in str(tame.fault)
    assert not sum_up([tame], {}).ok
    wild = tally([record("a", 0, 1, 2), record("b", 0)], sound=False)
    assert wild.fault is None
    assert sum_up([wild], {}).ok


def test_a_control_that_works_alone_cannot_do_harm():
    assert tally([record("a", 0, 1, 2)], sound=False).fault is None


def test_the_verdict_names_who_is_at_fault_and_what_was_skipped():
    bad = tally([record("a", 0, 1), record("b", 1)])
    verdict = sum_up([bad], {"redis": "no --redis URL was given"})
    assert not verdict.ok
    assert tuple(line for line in verdict.lines if line.startswith(("FAULT", "skipped"))) == (
        "FAULT: sqlite/it with 2 workers: duplicates: 1, lost items: 1",
        "skipped: redis: no --redis URL was given",
    )
    assert verdict.lines[-1] == "verdict: NOT OK"


def test_a_slow_strategy_is_said_and_is_no_fault():
    slow = judge(
        [[Record(worker="a", attempts=1, claims=((0, 0.05),))]],
        store="redis",
        strategy="lock",
        sound=True,
        items=1,
    )
    verdict = sum_up([slow], {})
    assert verdict.ok
    assert any(line.startswith("SLOW: redis/lock") for line in verdict.lines)


def test_the_winner_is_named_with_the_reason():
    def of(strategy: str, *seconds: float, sound: bool = True, workers: int = 1) -> Tally:
        return judge(
            [
                [
                    Record(worker=str(worker), attempts=1, claims=((worker, each),))
                    for worker, each in enumerate(seconds * workers)
                ]
            ],
            store="sqlite",
            strategy=strategy,
            sound=sound,
            items=len(seconds * workers),
        )

    # With few workers another is quicker; and so are the control and one that lost an item.
    lossy = judge([[]], store="redis", strategy="lock", sound=True, items=1)
    tallies = [
        *(of("lua", 0.02, workers=2), of("outlive", 0.01, workers=2), of("lua", 0.001)),
        *(of("naive", 0.001, sound=False, workers=2), lossy),
    ]
    verdict = sum_up(tallies, {})
    assert verdict.winner == "sqlite/outlive"
    (line,) = [line for line in verdict.lines if line.startswith("winner")]
    assert line == (
        "winner: sqlite/outlive, because with 2 workers it claimed every item once and had the "
        "lowest p95: 10.0 ms, before sqlite/lua with 20.0 ms"
    )
    assert sum_up([lossy], {}).winner is None


def test_nothing_measured_is_not_ok():
    verdict = sum_up([], {"sqlite": "gone"})
    assert not verdict.ok
    assert verdict.lines[-1] == "verdict: nothing was measured"


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (95, 10), (99, 10), (1, 1), (10, 1)])
def test_a_percentile_is_one_of_the_values(percent, expected):
    assert percentile([10, 3, 7, 1, 9, 2, 8, 4, 6, 5], percent) == expected
    assert percentile([], percent) == 0.0


def test_table_and_bars_have_a_line_for_each():
    quick, slow = tally([record("a", 0, 1, 2)]), tally([record("a", 0, 1, 2), record("b", 0)])
    assert [row["duplicates"] for row in rows_of([quick, slow])] == ["0", "1"]
    chart = chart_of([quick, slow])
    assert [line for line in chart if "#" in line] == [
        "  sqlite/it  ######################################## 3.00 ms",
        "  sqlite/it  ######################################## 3.00 ms  1 claimed twice",
    ]
    assert chart_of([]) == []
