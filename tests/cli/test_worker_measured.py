"""What a worker tells of itself: metrics and probes over HTTP, spans where OpenTelemetry goes."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request
from subprocess import Popen

import pytest

from tests.cli.conftest import wait_until
from tests.cli.flow_apps import Shop

APP = """
import outlive

app = outlive.App("shop")


@app.step
def charge() -> int:
    return 1


@app.flow
async def checkout() -> int:
    return await charge()


@app.handler("mails")
async def mail(to: str) -> None:
    pass
"""

# Of OpenTelemetry: whatever it is told is printed.
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
"""


def address_of(worker: Popen[str]) -> str:
    """The address that it says it listens on."""
    assert worker.stderr is not None
    for line in worker.stderr:
        found = re.search(r"metrics on (http://127\.0\.0\.1:\d+)/metrics", line)
        if found is not None:
            return found[1]
    raise AssertionError("the worker did not listen")


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"{address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_worker_serves_its_metrics_and_probes(outlive, shell):
    shop = Shop(outlive.folder, outlive.url)
    shop.write(APP)
    shell("migrate")
    for verb, name in (("enqueue", "mails"), ("enqueue", "unserved")):
        shell("work", verb, name, '"ann"')
    shell("flow", "start", "checkout", "--id", "o-1")
    worker = outlive.start("worker", shop.name, "--listen", "127.0.0.1:0")
    address = address_of(worker)
    assert shell("flow", "watch", "o-1").code == 0
    wait_until(lambda: "mails" not in shell("work", "ls", "--state", "ready").stdout)
    assert ask(address, "/healthz") == (200, "ok\n")
    assert ask(address, "/healthz", "HEAD") == (200, "")
    assert ask(address, "/readyz") == (200, "ok\n")
    assert ask(address, "/")[0] == 404
    assert ask(address, "/metrics", "POST")[0] == 405
    status, text = ask(address, "/metrics")
    assert status == 200
    for line in (
        'outlive_jobs_ended_total{outcome="completed",queue="mails"} 1.0',
        'outlive_queue_jobs{queue="unserved",state="ready"} 1.0',
        'outlive_flows_ended_total{flow="checkout",outcome="completed"} 1.0',
        'outlive_flows_stored{status="completed"} 1.0',
        'outlive_step_run_seconds_count{outcome="completed",step="charge"} 1.0',
        "outlive_flows_stuck 0.0",
    ):
        assert line in text
    (oldest,) = re.findall(r'outlive_queue_oldest_ready_seconds\{queue="unserved"\} (\S+)', text)
    assert float(oldest) > 0
    worker.send_signal(signal.SIGTERM)
    assert outlive.finish(worker).code == 0


def test_metrics_are_served_while_the_store_does_not_answer(outlive, shell):
    shop = Shop(outlive.folder, outlive.url)
    shop.write(APP)
    shell("migrate")
    worker = outlive.start("worker", shop.name, "--listen", "127.0.0.1:0")
    address = address_of(worker)
    # A file in its place: reads fail as soon as they look at it.
    for path in outlive.folder.glob("leases.db*"):
        if path.is_file():
            path.unlink()
    status, text = ask(address, "/metrics")
    assert (status, "outlive_leases_held" in text) == (200, True)
    worker.send_signal(signal.SIGTERM)
    assert "could not count what is stored" in outlive.finish(worker).stderr


def test_a_worker_traces_what_runs_where_opentelemetry_is_set_up(outlive, shell):
    shop = Shop(outlive.folder, outlive.url)
    shop.write(f"{APP}{TRACED}")
    shell("migrate")
    shell("work", "enqueue", "mails", '"ann"', "--id", "m-1", "--retention", "60")
    worker = outlive.start("worker", shop.name, OTEL_SERVICE_NAME="shop")
    wait_until(lambda: shell("work", "show", "m-1", "--json").document["state"] == "done")
    worker.send_signal(signal.SIGTERM)
    done = outlive.finish(worker)
    assert done.code == 0
    assert '"name": "outlive.job.run"' in done.stdout


@pytest.mark.parametrize("address", ["9100", "here:", ":70000", ":http"])
def test_an_address_that_is_none_is_refused_with_an_example(shell, monkeypatch, address):
    module = f"listens_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(APP)
    monkeypatch.syspath_prepend(shell.folder)
    shell("migrate")
    done = shell("worker", f"{module}:app", "--listen", address)
    assert done.code == 2
    assert "--listen must be :PORT or HOST:PORT, such as :9100" in done.stderr
