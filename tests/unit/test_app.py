"""What an app refuses to define, and in which words."""

from __future__ import annotations

import pytest

from outlive import App, UsageError

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
            "name, retention",
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
    assert str(caught.value) == f"{said} Known options: {known}"


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (
            lambda app: app.flow(5),
            "app.flow must decorate an `async def` or be given options such as name=…, not 5",
        ),
        (
            lambda app: app.step("pay"),
            "app.step must decorate a function or be given options such as name=…, not 'pay'",
        ),
        (lambda app: app.flow(name=5)(flow), "the name of a flow must be a str, not int"),
        (lambda app: app.step(name=5)(flow), "the name of a step must be a str, not int"),
    ],
)
def test_what_a_decorator_is_given_in_place_of_a_function_or_a_name_is_told(define, said):
    with pytest.raises(UsageError) as caught:
        define(App("a"))
    assert str(caught.value) == said


async def flow() -> None:
    """Nothing to do."""


# Each kind of definition, as a decorator; none of their names counts here.
DECORATORS = {
    "flow": lambda app: app.flow,
    "step": lambda app: app.step,
    "handler": lambda app: app.handler("mails"),
    "cron": lambda app: app.cron("@daily", key="daily"),
    "every": lambda app: app.every(60, key="often"),
    "leader": lambda app: app.leader("chief"),
}
CALL = "call it from another function"
START = "call `await host.flows.start(nightly, …)` in a separate function"


def schedule(option):
    return f"call `await host.flows.schedule('nightly', nightly, {option}=…)`"


async def nightly(given: object) -> None:
    """Done at night."""


def nightly_at_once(given: object) -> None:
    """The same, in a thread."""


@pytest.mark.parametrize(
    ("above", "below", "fix"),
    [
        ("cron", "flow", schedule("cron")),
        ("every", "flow", schedule("every")),
        ("leader", "flow", START),
        ("handler", "flow", START),
        (
            "step",
            "flow",
            "call the flow directly in flow code, which starts a child flow; remove @app.step",
        ),
        ("flow", "flow", "remove one of the two decorators"),
        ("flow", "step", CALL),
        ("flow", "handler", "call `await host.flows.start(…)` in the handler to start a flow"),
        ("handler", "step", CALL),
        ("step", "handler", CALL),
        ("cron", "step", CALL),
        ("cron", "handler", CALL),
        ("step", "step", "pass the function itself, `app.step(…)(nightly.function)`"),
    ],
)
def test_a_decorator_above_one_that_it_does_not_go_with_is_told_what_to_do(above, below, fix):
    app = App("shop")
    made = DECORATORS[below](app)(nightly)
    with pytest.raises(UsageError) as caught:
        DECORATORS[above](app)(made)
    verb = "takes" if above in ("flow", "step") else "runs"
    assert str(caught.value) == (
        f"@app.{above} {verb} plain functions, but 'nightly' is a {below}: {fix}"
    )
    defined = (app.flows, app.steps, app.handlers, app.crons, app.periodics, app.leaders)
    assert sum(map(len, defined)) == 1


@pytest.mark.parametrize(
    ("below", "fix"),
    [("cron", schedule("cron")), ("every", schedule("every")), ("leader", START)],
)
def test_what_is_run_as_a_plain_function_is_no_flow(below, fix):
    app = App("shop")
    function = DECORATORS[below](app)(nightly)
    with pytest.raises(UsageError) as caught:
        app.flow(function)
    assert str(caught.value) == (
        f"@app.{below} below @app.flow runs 'nightly' as a plain function and starts no flow: "
        f"remove it, and {fix}"
    )
    assert not app.flows


@pytest.mark.parametrize(
    ("decorator", "said"),
    [
        ("cron", "`await host.flows.schedule('ff', nightly, cron=…)`"),
        ("every", "`await host.flows.schedule('ff', nightly, every=…)`"),
        ("leader", "`await host.flows.start(nightly, …)`"),
    ],
)
def test_code_that_is_suggested_calls_a_flow_as_its_function_is_called(decorator, said):
    app = App("shop")
    made = app.flow(name="ff")(nightly)
    with pytest.raises(UsageError) as above:
        DECORATORS[decorator](app)(made)
    assert "'ff' is a flow" in str(above.value)
    assert said in str(above.value)
    app = App("shop")
    function = DECORATORS[decorator](app)(nightly)
    with pytest.raises(UsageError) as below:
        app.flow(name="ff")(function)
    assert "runs 'nightly' as a plain function" in str(below.value)
    assert said in str(below.value)


def test_code_that_is_suggested_calls_a_step_as_its_function_is_called():
    app = App("shop")
    made = app.step(name="ss")(nightly)
    with pytest.raises(UsageError, match=r"'ss' is a step: .* `app.step\(…\)\(nightly.function\)`"):
        app.step(made)


def test_a_flow_that_is_not_async_is_to_be_written_under_the_name_of_its_function():
    with pytest.raises(UsageError, match=r"flow 'ff': write it as `async def nightly_at_once\("):
        App("shop").flow(name="ff")(nightly_at_once)
    with pytest.raises(UsageError, match=r"flow 'ff': write it as `async def ff\("):
        App("shop").flow(name="ff")(lambda: None)


def test_so_it_is_with_a_method_each_look_at_which_is_another_object():
    class Shop:
        async def close(self) -> None: ...

    app, shop = App("shop"), Shop()
    app.cron("@daily")(shop.close)
    with pytest.raises(UsageError, match="runs 'close' as a plain function"):
        app.flow(shop.close)


@pytest.mark.parametrize(
    ("above", "below", "function"),
    [
        *[(above, below, nightly) for above in ("step", "handler") for below in ("cron", "every")],
        *[("every", below, nightly) for below in ("step", "handler", "cron")],
        *[("leader", below, nightly) for below in ("step", "handler")],
        *[("cron", below, nightly_at_once) for below in ("step", "handler")],
    ],
)
def test_decorators_that_each_do_what_they_say_go_together(above, below, function):
    app = App("shop")
    DECORATORS[above](app)(DECORATORS[below](app)(function))


@pytest.mark.parametrize("below", ["step", "handler"])
def test_what_a_leader_would_not_await_is_refused(below):
    app = App("shop")
    with pytest.raises(UsageError, match=r"@app\.leader runs plain functions"):
        app.leader("chief")(DECORATORS[below](app)(nightly_at_once))


def test_one_function_for_two_queues_is_given_to_each():
    app = App("shop")
    first = app.handler("mails")(nightly)
    with pytest.raises(UsageError, match=r"`app\.handler\(…\)\(nightly\.function\)`"):
        app.handler("letters")(first)
    assert app.handler("letters")(first.function).is_async


def test_an_app_includes_what_others_define():
    mails, shop = App("mails"), App("shop")

    @mails.handler("mails")
    async def mail(to: str) -> None:
        del to

    @mails.flow
    async def welcome(who: str) -> None:
        del who

    @mails.cron("@daily")
    async def report() -> None:
        pass

    shop.include(mails)
    assert shop.handlers.keys() == {"mails", *(set(mails.handlers) - {"mails"})}
    assert (shop.flows["welcome"], shop.crons.keys()) == (welcome, {"report"})
    with pytest.raises(UsageError, match="is defined in <App 'shop'> and in <App 'mails'>"):
        shop.include(mails)
    wrapped = App("wrapped")

    @wrapped.middleware
    async def around(current, call):
        return await call()

    with pytest.raises(UsageError, match="has middlewares, which would go around every handler"):
        shop.include(wrapped)
