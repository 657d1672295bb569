"""The examples of flows do what their first lines say, and stay small."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from contextlib import closing
from typing import Any

import pytest

from tests.examples.conftest import EXAMPLES, PATIENCE_S

pytestmark = pytest.mark.process

LINES_MAX = 100
LOOK_S = 0.05
FLOWS = sorted(path.name for path in (EXAMPLES / "flows").glob("*.py"))


@pytest.fixture(params=["memory://", "sqlite:///example.db"])
def said(request, programs):
    """What an example says, run to its end on one store."""

    def run(name: str) -> list[str]:
        program = programs.start(f"flows/{name}", request.param)
        assert program.finish() == 0, "\n".join(program.said)
        return program.said

    return run


def test_a_failed_order_is_undone_in_reverse(said):
    printed = [
        "o-1: reserved",
        "o-1: charged 500 under o-1/charge#0",
        "o-1: shipped",
        "parcel-o-1",
        "o-2: reserved",
        "o-2: charged 70 under o-2/charge#0",
        "receipt-o-2: refunded",
        "shelf-o-2: put back",
        "o-2 failed: step ship#0 failed: ValueError: no carrier goes to Atlantis",
    ]
    lines = said("order_saga.py")
    assert [line for line in lines if line in printed] == printed
    # The log of the host has what failed, and where.
    why = "ValueError: no carrier goes to Atlantis"
    assert f"step ship#0 of flow o-2 failed permanently at attempt 1: {why}" in lines


def test_an_approval_is_given_or_its_deadline_passes(said):
    heard = said("approval.py")
    assert sorted(heard[:2]) == ["may we buy a ship for 9000000?", "may we buy pens for 12?"]
    assert heard[2:] == ["a ship: approved by Ann", "pens: nobody decided in time"]


def test_a_thousand_items_are_counted(said):
    assert said("fan_out.py") == ["2997 words on 1000 pages"]


def test_a_monitor_keeps_the_history_of_one_round(said):
    assert said("monitor.py") == ["alarm: 83 degrees", "too hot in round 3", "3 rows of history"]


def test_a_pipeline_renders_in_a_queue(said):
    assert said("pipeline.py") == ["8 frames, from storm/0.png to storm/7.png"]


def test_an_order_is_a_chart_and_its_life_a_flow(said):
    assert said("order_chart.py")[-1] == "o-1: paid receipt-50 o-2: expired None"


def test_the_other_host_goes_on_where_a_killed_one_stood(programs):
    first = programs.start("flows/two_hosts.py", "sqlite:///shop.db", "a")
    first.hear("long: step 1 on a")
    second = programs.start("flows/two_hosts.py", "sqlite:///shop.db", "b")
    second.hear("on b")
    first.process.kill()
    first.finish()
    assert second.finish() == 0, "\n".join(second.said)
    # Quick flows may end beside the long one, and speak behind it.
    assert "30 steps" in second.said
    done = [_long(line) for line in first.said if line.startswith("long:")]
    then = [_long(line) for line in second.said if line.startswith("long:")]
    assert done == list(range(len(done)))
    # A step whose end was said, but not recorded, is run again; no other is.
    assert then in (list(range(len(done), 30)), list(range(len(done) - 1, 30)))


def _long(line: str) -> int:
    found = re.match(r"long: step (\d+) on", line)
    assert found is not None
    return int(found[1])


def test_an_order_and_its_flow_are_there_together(programs):
    web = programs.start_module(
        *("uvicorn", "--app-dir", str(EXAMPLES / "flows"), "--port", "0", "web:api")
    )
    port = int(web.hear("running on").partition("127.0.0.1:")[2].split()[0])
    assert ask(port, "POST", "/orders/o-1") == (200, {"order": "o-1"})
    assert ask(port, "POST", "/orders/o-1")[0] == 409
    assert ask(port, "GET", "/orders/o-2")[0] == 404
    while (found := ask(port, "GET", "/orders/o-1")[1])["status"] in ("pending", "running"):
        time.sleep(LOOK_S)
    assert found == {"status": "completed", "outcome": "o-1 confirmed"}
    web.process.send_signal(signal.SIGTERM)
    assert web.finish() in (0, -signal.SIGTERM), "\n".join(web.said)
    assert "Traceback" not in "\n".join(web.said)


def ask(port: int, method: str, path: str) -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


@pytest.mark.parametrize("name", [name for name in FLOWS if name != "web.py"])
def test_an_example_without_its_arguments_says_how_it_is_used(programs, name):
    program = programs.start(f"flows/{name}")
    assert program.finish() == 1
    (line,) = program.said
    assert line.startswith(f"usage: python examples/flows/{name} URL")


@pytest.mark.parametrize("name", FLOWS)
def test_examples_of_flows_stay_small(name):
    text = (EXAMPLES / "flows" / name).read_text()
    assert len(text.splitlines()) < LINES_MAX
    assert f"examples/flows/{name}" in text or f"{name.removesuffix('.py')}:api" in text
