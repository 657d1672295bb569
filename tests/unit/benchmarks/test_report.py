"""The report of a benchmark: verdicts, the table, the JSON that scripts read, the exit status."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.report import Report, Row, shown, write_json

KEYS = ["name", "unit", "ours", "floor", "peers", "bar", "at_most", "ok"]


def row(**changes):
    return Row(**{"name": "sqlite/x", "unit": "ops/s", "ours": 600.0, **changes})


def test_bar_judges_the_ratio_where_there_is_a_floor():
    assert row(floor=1000.0, bar=0.6).ok is True
    assert row(floor=1001.0, bar=0.6).ok is False


def test_bar_judges_the_value_where_there_is_no_floor():
    assert row(ours=2.0, bar=2.0, at_most=True).ok is True
    assert row(ours=2.01, bar=2.0, at_most=True).ok is False
    assert row(ours=0.4, bar=0.5).ok is False


def test_without_a_bar_there_is_no_verdict():
    assert row(floor=1.0).ok is None
    assert row().ratio is None


def test_verdict_is_not_rounded():
    barely = row(ours=0.59999, floor=1.0, bar=0.6)
    assert shown(barely.ratio) == "0.6"
    assert barely.ok is False


@pytest.mark.parametrize(
    "changes",
    [
        {"ours": math.nan},
        {"floor": math.inf},
        {"floor": 0.0},
        {"peers": {"other": math.nan}},
    ],
)
def test_row_refuses_what_was_not_measured(changes):
    with pytest.raises(ValueError, match="sqlite/x"):
        row(**changes)


def test_json_has_the_promised_keys_and_nothing_else(tmp_path):
    report = Report(
        rows=[
            row(floor=1000.0, bar=0.6, peers={"other": 7.0}),
            row(name="sqlite/y", bar=250.0, at_most=True),
            row(name="sqlite/z"),
        ],
        failures=["sqlite/a: it broke"],
        absent=["PostgreSQL: no server"],
    )
    path = tmp_path / "rows.json"
    write_json(path, report.as_json())
    document = json.loads(path.read_text())
    assert list(document) == ["rows", "failed", "left_out"]
    assert document["failed"] == ["sqlite/a: it broke"]
    assert document["left_out"] == ["PostgreSQL: no server"]
    assert [list(entry) for entry in document["rows"]] == [KEYS, KEYS, KEYS]
    assert document["rows"][0] == {
        "name": "sqlite/x",
        "unit": "ops/s",
        "ours": 600.0,
        "floor": 1000.0,
        "peers": {"other": 7.0},
        "bar": 0.6,
        "at_most": False,
        "ok": True,
    }
    assert [entry["ok"] for entry in document["rows"]] == [True, False, None]
    assert document["rows"][2]["floor"] is None


def test_status_is_one_when_a_bar_is_missed_or_a_measurement_broke():
    assert Report(rows=[row(), row(floor=1.0, bar=1.0)]).status == 0
    assert Report(rows=[row(floor=1000.0, bar=0.7)]).status == 1
    assert Report(failures=["sqlite/x: it broke"]).status == 1
    assert Report(absent=["PostgreSQL: not here"]).status == 0


def test_table_marks_what_was_missed_and_shows_peers():
    text = Report(rows=[row(floor=1000.0, bar=0.7, peers={"other": 7.0})]).as_text()
    (line,) = [line for line in text.splitlines() if line.startswith("sqlite/x")]
    assert line.split() == ["sqlite/x", "600", "ops/s", "1,000", "0.6", ">=", "0.7", "MISSED"]
    assert "beside it: other: 7 ops/s" in text
    assert "1 bar(s) missed" in text


def test_what_was_left_out_stands_in_the_last_line():
    report = Report(rows=[row()], failures=["a: broke"], absent=["PostgreSQL: no server"])
    assert report.as_text().splitlines()[-1] == "left out: PostgreSQL: no server"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.66, "0.66"), (12.345, "12.3"), (12345.6, "12,346")],
)
def test_numbers_are_shown_with_three_digits_that_matter(value, text):
    assert shown(value) == text
