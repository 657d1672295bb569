"""What an app refuses to define, and in which words."""

from __future__ import annotations

import pytest

from holdfast import App, UsageError

STEP = "name, retry, retry_for, timeout, heartbeat, queue, once, transactional, concurrency, errors"
HANDLER = (
    "concurrency, timeout, retry, max_losses, queue_concurrency, rate, concurrency_key, "
    "key_concurrency"
)


@pytest.mark.parametrize(
    ("define", "said", "known"),
    [
        (
            lambda app: app.step(retries=3),
            "@app.step has no option 'retries'; did you mean 'retry'?",
            STEP,
        ),
        (
            lambda app: app.flow(title="x"),
            "@app.flow has no option 'title'.",
            "name, retention, checked",
        ),
        (
            lambda app: app.handler("q", time_out=3),
            "@app.handler has no option 'time_out'; did you mean 'timeout'?",
            f"queue, {HANDLER}",
        ),
        (
            lambda app: app.cron("@daily", overlaps=False),
            "@app.cron has no option 'overlaps'; did you mean 'overlap'?",
            f"expression, tz, key, catch_up, catch_up_limit, overlap, {HANDLER}",
        ),
    ],
)
def test_an_option_that_is_not_known_is_named_with_those_that_are(define, said, known):
    with pytest.raises(UsageError) as caught:
        define(App("a"))
    assert str(caught.value) == f"{said} It takes {known}"


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda app: app.flow(5), "app.flow takes an `async def`, or name=…, not 5"),
        (lambda app: app.step("pay"), "app.step takes a function, or name=…, not 'pay'"),
        (lambda app: app.flow(name=5)(flow), "the name of a flow is a str, not int"),
        (lambda app: app.step(name=5)(flow), "the name of a step is a str, not int"),
    ],
)
def test_what_a_decorator_is_given_in_place_of_a_function_or_a_name_is_told(define, said):
    with pytest.raises(UsageError) as caught:
        define(App("a"))
    assert str(caught.value) == said


async def flow() -> None:
    """Nothing to do."""


def test_a_flow_is_no_function_of_a_schedule():
    app = App("shop")

    @app.flow
    async def nightly() -> None: ...

    with pytest.raises(UsageError, match=r"hf\.flows\.schedule\('nightly', nightly, cron=…\)"):
        app.cron("@daily")(nightly)
    assert not app.crons
