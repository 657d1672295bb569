"""The alert rules are valid, fire when they should, and name metrics and commands that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from outlive.cli.main import cli
from outlive.telemetry.events import METRICS, READ, Kind

RULES = Path(__file__).parents[2] / "deploy" / "prometheus-alerts.yml"

# Each alert with series that let it fire, minute by minute.
FIRES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: up{{job="outlive",instance="a"}}
        values: 1+0x5 0+0x60
      - series: outlive_lease_losses_total{{instance="a",reason="expired"}}
        values: 0+6x60
      - series: outlive_lease_takeovers_total{{instance="a"}}
        values: 0+6x60
      - series: outlive_jobs_reclaimed_total{{instance="a",queue="mails"}}
        values: 0+6x60
      - series: outlive_lease_renew_failures_total{{instance="a"}}
        values: 0+12x60
      - series: outlive_lease_conflicts_total{{instance="a"}}
        values: 0+99x60
      - series: outlive_lease_acquire_seconds_count{{instance="a",outcome="held"}}
        values: 0+100x60
      - series: outlive_queue_oldest_ready_seconds{{instance="a",queue="mails"}}
        values: 0+60x60
      - series: outlive_jobs_ended_total{{instance="a",queue="mails",outcome="dead"}}
        values: 0+1x60
      - series: outlive_flows_stuck{{instance="a"}}
        values: 2+0x60
      - series: outlive_flows_ended_total{{instance="a",flow="checkout",outcome="failed"}}
        values: 0+1x60
      - series: outlive_flow_timer_lag_seconds_bucket{{instance="a",le="30.0"}}
        values: 0+1x60
      - series: outlive_flow_timer_lag_seconds_bucket{{instance="a",le="60.0"}}
        values: 0+10x60
      - series: outlive_flow_timer_lag_seconds_bucket{{instance="a",le="+Inf"}}
        values: 0+10x60
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{{alertstate="firing"}})
        eval_time: 55m
        exp_samples:
{samples}
  - interval: 1m
    input_series:
      - series: up{{job="outlive",instance="a"}}
        values: 1+0x60
      - series: outlive_lease_losses_total{{instance="a",reason="broken"}}
        values: 0+6x60
      - series: outlive_queue_oldest_ready_seconds{{instance="a",queue="mails"}}
        values: 20+0x60
      - series: outlive_jobs_ended_total{{instance="a",queue="mails",outcome="completed"}}
        values: 0+100x60
      - series: outlive_flows_stuck{{instance="a"}}
        values: 0+0x60
    promql_expr_test:
      - expr: count(ALERTS)
        eval_time: 55m
        exp_samples: []
"""


def alerts() -> list[str]:
    found = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(found) >= 8
    return found


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.service
def test_each_alert_is_valid_and_fires(promtool: Path, tmp_path: Path) -> None:
    run(promtool, "check", "rules", RULES)
    samples = "\n".join(
        f"          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in sorted(alerts())
    )
    cases = tmp_path / "fires.yml"
    cases.write_text(FIRES.format(rules=RULES, samples=samples))
    run(promtool, "test", "rules", cases)


def test_the_rules_name_metrics_and_commands_that_exist() -> None:
    text = RULES.read_text()
    ends = {Kind.COUNTER: "_total", Kind.HISTOGRAM: "_seconds"}
    known = {f"outlive_{each.name}{ends.get(each.kind, '')}" for each in (*METRICS, *READ)}
    named = set(re.findall(r"\boutlive_\w+", text))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} <= known
    context = click.Context(cli)
    for group, verb in re.findall(r"`outlive (\w+) ?(\w*)", text):
        command = cli.get_command(context, group)
        assert command is not None, group
        assert not verb or isinstance(command, click.Group), (group, verb)
        assert not isinstance(command, click.Group) or command.get_command(context, verb), verb
