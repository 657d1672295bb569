"""What an operator does to a flow that was driven to its end, and steps that break until then."""

from __future__ import annotations

from types import SimpleNamespace

from outlive import App, Retry
from outlive.flows.events import (
    Retried,
    StepEnded,
)
from outlive.flows.retrying import retry_of
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import SECOND, Driven

app = App("retries")
broken = [False]


@app.step
def charge(amount: int = 1) -> int:
    return amount


@app.step
def refund(amount: int = 1) -> int:
    return -amount


@app.step
def ship(to: str = "home") -> str:
    if broken[0]:
        raise ValueError("no truck")
    return to


@app.step(once=True)
def wire(amount: int = 1) -> int:
    return amount


@app.step(queue="gpu")
def remote(number: int) -> int:
    return number


@app.step(retry=Retry(max_attempts=2, first=1))
def flaky() -> int:
    return 1


@app.flow
async def kid() -> int:
    return 1


def flow(function):
    return App("a").flow(name="f")(function)


def run_of(function, **how) -> Driven:
    """The flow, with everything broken that can be, until an operator mends and retries it."""
    broken[0] = True
    return Driven(flow(function), (), **how)


def ran(driven: Driven) -> list[str]:
    """Run all steps, and tell which."""
    before = len(driven.history())
    driven.work()
    return [event.step for event in driven.history()[before:] if isinstance(event, StepEnded)]


def retry(driven: Driven, *, rerun_unknown: bool = False) -> Retried:
    """As an operator does, with the code mended; the next host takes it up."""
    ended = driven.decisions[-1]
    record = SimpleNamespace(
        id="f",
        status=ended.ended or InstanceStatus.TERMINATED,
        outcome=ended.outcome,
        base=driven.base,
        version=driven.rows[-1].version,
        began_at_us=driven.began_us,
    )
    event = retry_of(record, driven.rows, rerun_unknown=rerun_unknown)  # type: ignore[arg-type]
    driven.now_us += SECOND
    driven.write(event)
    broken[0] = False
    driven.crash()
    return event


def replays(driven: Driven) -> bool:
    """Whether a host that knows only the history comes to the same end."""
    again = Driven(driven.flow, driven.args, rows=list(driven.rows), base=driven.base)
    return again.run.ended and not again.decisions[-1].durable
