"""The baseline: how runs of the areas become one, and how a later run is shown beside it."""

from __future__ import annotations

import copy
import json

import pytest

from benchmarks import __main__ as command
from benchmarks import baseline
from benchmarks.report import Report, Row


def run_of(area="work", *rows, failed=(), left_out=(), **changes):
    report = Report(rows=list(rows), failures=list(failed), absent=list(left_out))
    report.servers["PostgreSQL"] = "15.18"
    return baseline.document_of(area, report, quick=False, only=None) | changes


def row(name="sqlite/x", ours=600.0, **changes):
    return Row(**{"name": name, "unit": "ops/s", "ours": ours, **changes})


def beside(before, now):
    """The lines of the table, and the verdict."""
    lines, good = baseline.compared(baseline.merged([before]), [now])
    return [line.split() for line in lines], good


def test_a_run_says_where_and_with_what_it_was_made():
    document = run_of()
    assert list(document) == [
        *("area", "quick", "only", "machine", "versions", "rows", "failed", "left_out")
    ]
    assert list(document["machine"]) == ["cores", "cpu", "python", "os"]
    assert {"outlive", "sqlite", "PostgreSQL", "asyncpg"} <= document["versions"].keys()


def test_versions_of_peers_are_those_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(baseline, "cache", lambda: tmp_path)
    info = tmp_path / "dbos" / "dbos-2.1.dist-info" / "METADATA"
    info.parent.mkdir(parents=True)
    info.write_text("Metadata-Version: 2.1\nName: dbos\nVersion: 2.1\n")
    package = tmp_path / "node_modules" / "xstate" / "package.json"
    package.parent.mkdir(parents=True)
    package.write_text('{"version": "5.33.3"}')
    versions = run_of()["versions"]
    assert (versions["dbos"], versions["xstate"]) == ("2.1", "5.33.3")
    assert "procrastinate" not in versions


def test_runs_of_areas_become_one_baseline():
    found = baseline.merged([run_of("work", row()), run_of("flows", row("sqlite/y"))])
    assert list(found) == ["machine", "versions", "areas"]
    assert [each["name"] for each in found["areas"]["flows"]["rows"]] == ["sqlite/y"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (run_of("work"), "twice"),
        (run_of("flows", quick=True), "--quick"),
        (run_of("flows", only="sqlite/"), "--only"),
        (run_of("flows", machine={"cores": 1}), "another machine"),
        (run_of("flows", versions={"outlive": "9"}), "outlive 9"),
    ],
)
def test_what_makes_no_baseline_is_refused(other, why):
    with pytest.raises(ValueError, match=why):
        baseline.merged([run_of("work"), other])


def test_ratios_are_compared_where_there_is_a_floor():
    before, now = row(ours=600.0, floor=1000.0), row(ours=290.0, floor=500.0)
    lines, good = beside(run_of("work", before), run_of("work", now))
    assert lines[-1] == ["work", "sqlite/x", "0.6", "x", "0.58", "x", "0.967"]
    assert good


@pytest.mark.parametrize(
    ("before", "now", "at_most", "worse"),
    [
        (100.0, 91.0, False, False),
        (100.0, 89.0, False, True),
        (100.0, 200.0, False, False),
        (100.0, 109.0, True, False),
        (100.0, 111.0, True, True),
        (100.0, 10.0, True, False),
        (0.0, 0.0, True, False),
        (0.0, 1.0, True, True),
        (-0.5, -0.6, True, False),
        (-0.5, 0.1, True, True),
    ],
)
def test_more_than_a_tenth_is_worse(before, now, at_most, worse):
    rows = (row(ours=ours, at_most=at_most) for ours in (before, now))
    lines, good = beside(*(run_of("work", each) for each in rows))
    assert ("WORSE" in lines[-1]) is worse
    assert good is not worse


def test_missing_new_and_dead_rows_are_named():
    before = run_of("work", row("sqlite/a"), row("sqlite/b", floor=1000.0))
    now = run_of(
        *("work", row("sqlite/b"), row("sqlite/c")),
        failed=["sqlite/a: RuntimeError('no')"],
        left_out=["DBOS: it is not installed"],
    )
    lines, good = beside(before, now)
    marks = {line[1]: line[-1] for line in lines if line[:1] == ["work"]}
    # Without the floor it was compared with, the number says another thing.
    assert marks == {"sqlite/a": "MISSING", "sqlite/b": "MISSING", "sqlite/c": "new"}
    assert lines[-2] == ["dead:", "work", "sqlite/a:", "RuntimeError('no')"]
    assert lines[-1][:3] == ["left", "out:", "work"]
    assert not good


def test_what_was_not_asked_for_is_not_missing():
    before = run_of("work", row("sqlite/a"), row("sqlite/b"))
    lines, good = beside(before, run_of("work", row("sqlite/b"), only="sqlite/b"))
    assert good
    assert not any("sqlite/a" in line for line in lines)


def test_another_machine_and_other_versions_are_said_first():
    now = copy.deepcopy(run_of("work", row()))
    now["machine"]["cores"] = 999
    now["versions"]["sqlite"] = "4.0"
    lines, good = baseline.compared(baseline.merged([run_of("work", row())]), [now])
    assert lines[0].startswith("cores is 999, in the baseline ")
    assert lines[1].startswith("sqlite is 4.0, in the baseline ")
    assert good


def test_command_makes_a_baseline_and_compares(tmp_path, capsys):
    paths = {name: tmp_path / f"{name}.json" for name in ("before", "now", "baseline")}
    paths["before"].write_text(json.dumps(run_of("work", row())))
    paths["now"].write_text(json.dumps(run_of("work", row(ours=300.0))))
    made, runs = str(paths["baseline"]), [str(paths["before"])]
    assert command.main(["baseline", *runs, "--to", made]) == 0
    assert command.main(["compare", *runs, "--baseline", made]) == 0
    assert command.main(["compare", str(paths["now"]), "--baseline", made]) == 1
    assert "WORSE" in capsys.readouterr().out


def test_command_names_what_is_dead_in_a_baseline(tmp_path, capsys):
    path, made = tmp_path / "run.json", tmp_path / "baseline.json"
    path.write_text(json.dumps(run_of("work", failed=["sqlite/a: it broke"])))
    assert command.main(["baseline", str(path), "--to", str(made)]) == 1
    assert "dead: sqlite/a: it broke" in capsys.readouterr().out
    assert made.exists()


def test_command_refuses_what_makes_no_baseline(tmp_path, capsys):
    path, made = tmp_path / "run.json", tmp_path / "baseline.json"
    path.write_text(json.dumps(run_of("work", quick=True)))
    with pytest.raises(SystemExit) as ended:
        command.main(["baseline", str(path), "--to", str(made)])
    assert ended.value.code == 2
    assert not made.exists()
