"""What people read of flows that failed by several errors at once."""

from __future__ import annotations

import pytest

import outlive
from tests.cli.flow_apps import Shop

ERRORS = """
import asyncio

import outlive

app = outlive.App("errors")


@app.step(errors=[OSError])
async def fetch(number: int) -> None:
    raise OSError(f"no {number}")


@app.step
async def fail() -> None:
    raise ValueError("negative")


async def all_of(numbers: list[int]) -> None:
    done = await asyncio.gather(*map(fetch, numbers), return_exceptions=True)
    raise ExceptionGroup("several", done)


@app.flow
async def fetcher(numbers: int) -> None:
    await all_of(range(numbers))


@app.flow
async def wrapper(numbers: int) -> None:
    try:
        await all_of(range(numbers))
    except ExceptionGroup as group:
        raise RuntimeError("nothing came") from group


@app.flow
async def grouper() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
"""


@pytest.fixture
def errors(shell):
    assert shell("migrate").code == 0
    made = Shop(shell.folder, shell.url)
    made.write(ERRORS)
    return made


def run_to_the_end(shell, errors, name, arguments):
    """Let a flow run until it has failed."""
    shell("flow", "start", name, arguments, "--id", name)

    async def until(host):
        with pytest.raises(outlive.FlowFailed):
            await host.flows.get(name).result()

    errors.run(until)


def outcome_of(shell, flow):
    """The lines of a table about how a flow ended."""
    told = shell("flow", "show", flow).stdout.splitlines()
    begin = next(place for place, line in enumerate(told) if line.startswith("outcome"))
    end = next(place for place, line in enumerate(told) if line.startswith("custom"))
    return [line.removeprefix("outcome").strip() for line in told[begin:end]]


def test_a_flow_that_failed_by_many_errors_shows_the_first_and_counts_the_others(shell, errors):
    run_to_the_end(shell, errors, "fetcher", '{"numbers": 300}')
    lines = [
        "ExceptionGroup: several (300 sub-exceptions)",
        *(f"with OSError: no {number} (step fetch#{number})" for number in range(5)),
        "and 295 more",
    ]
    assert outcome_of(shell, "fetcher") == lines
    watched = shell("flow", "watch", "fetcher").stdout.splitlines()
    assert [line.strip() for line in watched[-6:]] == lines[1:]
    assert "with" not in shell("flow", "history", "fetcher").stdout.splitlines()[-1]


def test_a_cause_that_is_a_group_shows_the_errors_in_it(shell, errors):
    run_to_the_end(shell, errors, "wrapper", '{"numbers": 1}')
    assert outcome_of(shell, "wrapper") == [
        "RuntimeError: nothing came",
        "caused by ExceptionGroup: several (1 sub-exception)",
        "with OSError: no 0 (step fetch#0)",
    ]


def test_an_error_that_names_its_step_names_it_once(shell, errors):
    run_to_the_end(shell, errors, "grouper", "{}")
    _, line = outcome_of(shell, "grouper")
    assert line.startswith("with outlive.errors.StepFailed: step fail#0 failed: ValueError: ")
    assert line.count("fail#0") == 1
