"""Enqueueing and claiming by hand: what is stored, what is given out, what settling does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import outlive
from outlive import (
    App,
    ClaimLost,
    DuplicateJob,
    JobExists,
    JobFailed,
    JobNotFound,
    JobState,
    QueueClosed,
    Retry,
    UsageError,
)
from outlive.errors import StoreUnavailable


@dataclass
class Mail:
    to: str
    copies: int = 1


app = App("shop")


@app.handler("mails", retry=Retry(max_attempts=3), max_losses=4)
async def send(mail: Mail) -> Mail:
    return mail


@pytest.fixture
async def host():
    async with outlive.connect("memory://", name="a") as host:
        yield host


async def test_a_job_goes_from_enqueue_to_its_result(host):
    job = await host.work.enqueue("mails", {"to": "ann"}, headers={"x": "1"})
    assert (await job.status()).state is JobState.READY
    (claim,) = await host.work.claim("mails")
    assert (claim.id, claim.queue, claim.payload) == (job.id, "mails", {"to": "ann"})
    assert (claim.token, claim.attempt, claim.losses) == (1, 1, 0)
    assert claim.headers == {"x": "1"}
    assert claim.is_held
    await claim.extend(progress=0.5)
    assert (await job.status()).progress == 0.5
    await claim.complete([1, 2])
    assert await job.result(timeout=1) == [1, 2]
    assert (await host.work.get(job.id)).claimed_by == "a"


async def test_a_handler_types_the_payload_and_the_result(host):
    job = await host.work.enqueue(send, Mail("ann"))
    (claim,) = await host.work.claim(send)
    assert claim.payload == Mail("ann")
    await claim.complete(Mail("bob", 2))
    assert await job.result() == Mail("bob", 2)
    assert await host.work.job(job.id, send).result() == Mail("bob", 2)
    assert await host.work.job(job.id).result() == {"to": "bob", "copies": 2}


async def test_a_handler_gives_its_job_the_limits_it_has(host):
    info = await (await host.work.enqueue(send, Mail("ann"))).status()
    assert (info.max_attempts, info.max_losses, info.retry) == (3, 4, {})


async def test_a_job_may_be_lost_ten_times_by_default(host):
    assert (await (await host.work.enqueue("q", 1)).status()).max_losses == 10


async def test_what_a_job_says_of_its_retries_travels_with_it(host):
    job = await host.work.enqueue(send, Mail("ann"), max_attempts=7)
    info = await job.status()
    assert (info.max_attempts, info.retry) == (7, {"max_attempts": 7})
    other = await host.work.enqueue("q", 1, retry=Retry(first=3, never=(KeyError,)), max_attempts=9)
    info = await other.status()
    assert info.max_attempts == info.retry["max_attempts"] == 9
    assert (info.retry["first"], info.retry["never"]) == (3.0, ["KeyError"])


async def test_a_payload_that_does_not_fit_its_handler_is_refused_at_once(host):
    with pytest.raises(UsageError, match="must be of type Mail"):
        await host.work.enqueue(send, {"from": "ann"})
    await host.work.enqueue(send, {"to": "ann"})
    (claim,) = await host.work.claim(send)
    assert claim.payload == Mail("ann")


async def test_many_are_enqueued_in_order(host):
    jobs = await host.work.enqueue_many("q", range(2500))
    assert len({job.id for job in jobs}) == 2500
    claims = await host.work.claim("q", limit=1000)
    assert [claim.payload for claim in claims] == list(range(1000))
    assert await host.work.enqueue_many("q", []) == []
    with pytest.raises(UsageError, match="not int"):
        await host.work.enqueue_many("q", 5)


async def test_the_same_id_is_added_once(host):
    first = await host.work.enqueue("q", 1, id="order-1")
    second = await host.work.enqueue("q", 2, id="order-1")
    again = await host.work.enqueue("q", 1, id="order-1")
    assert first.id == second.id == "order-1"
    assert [(job.entry, job.payload_differs) for job in (first, second, again)] == [
        ("created", False),
        ("existing", True),
        ("existing", False),
    ]
    assert await host.work.count(queue="q") == 1


async def test_a_unique_key_keeps_out_replaces_or_returns(host):
    first = await host.work.enqueue("q", 1, unique_key="k")
    with pytest.raises(DuplicateJob) as caught:
        await host.work.enqueue("q", 2, unique_key="k")
    assert (caught.value.existing, caught.value.unique_key) == (first.id, "k")
    same = await host.work.enqueue("q", 3, unique_key="k", on_duplicate="return")
    assert (same.id, same.entry) == (first.id, "existing")
    new = await host.work.enqueue("q", 4, unique_key="k", on_duplicate="replace")
    assert new.entry == "replaced"
    assert (await first.status()).state is JobState.CANCELLED
    many = await host.work.enqueue_many("q", [5, 6], unique_key="k")
    assert [(job.id, job.entry) for job in many] == [(new.id, "rejected")] * 2


async def test_an_id_of_another_queue_is_refused_and_a_repeat_is_not(host):
    first = await host.work.enqueue("q", 1, id="order-1")
    assert (await host.work.enqueue("q", 2, id="order-1")).entry == "existing"
    with pytest.raises(JobExists) as caught:
        await host.work.enqueue("other", 2, id="order-1")
    assert (caught.value.id, caught.value.queue) == ("order-1", "other")
    info = await first.status()
    assert (info.queue, info.payload) == ("q", 1)


async def test_priority_then_order(host):
    for number, priority in enumerate((0, 5, 0, 5)):
        await host.work.enqueue("q", number, priority=priority)
    claims = await host.work.claim("q", limit=4)
    assert [claim.payload for claim in claims] == [1, 3, 0, 2]


async def test_delays_and_instants(host):
    delayed = await host.work.enqueue("q", 1, delay=timedelta(hours=1))
    later = await host.work.enqueue("q", 2, at=datetime.now(UTC) + timedelta(days=1))
    past = await host.work.enqueue("q", 3, at=datetime(2020, 1, 1, tzinfo=UTC))
    assert (await delayed.status()).state is JobState.SCHEDULED
    assert (await later.status()).state is JobState.SCHEDULED
    assert [claim.id for claim in await host.work.claim("q", limit=9)] == [past.id]
    (claim,) = await host.work.claim(job=delayed.id) or [None]
    assert claim is None


async def test_a_claim_names_a_job(host):
    await host.work.enqueue("q", 1)
    second = await host.work.enqueue("q", 2)
    assert await host.work.claim("another", job=second.id) == []
    (claim,) = await host.work.claim(job=second.id)
    assert claim.payload == 2


async def test_a_claim_waits_for_a_job_and_is_woken_by_it():
    async with (
        outlive.connect("memory://waiting", name="a") as a,
        outlive.connect("memory://waiting", name="b") as b,
    ):
        waiting = asyncio.create_task(a.work.claim(["x", "y"], wait=60))
        await asyncio.sleep(0.05)
        await b.work.enqueue("y", 1)
        (claim,) = await asyncio.wait_for(waiting, 2)
        assert claim.queue == "y"
        assert await a.work.claim("x", wait=0.05) == []


async def test_claims_are_fair_between_queues(host):
    for queue in ("x", "y", "z"):
        await host.work.enqueue_many(queue, range(10))
    claims = [(await host.work.claim(["x", "y", "z"]))[0].queue for _ in range(9)]
    assert {queue: claims.count(queue) for queue in "xyz"} == {"x": 3, "y": 3, "z": 3}


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_cancelled_claim_leaves_nothing_claimed(host, monkeypatch, failures):
    await host.work.enqueue("q", 1)
    store, plain = host.work.store, host.work.store.claim
    asked, answer = asyncio.Event(), asyncio.Event()
    release, fails = store.release, iter(range(failures))

    async def failing(returns):
        if next(fails, None) is not None:
            raise StoreUnavailable("away")
        return await release(returns)

    monkeypatch.setattr(store, "release", failing)

    async def slow(request):
        claimed = await plain(request)
        asked.set()
        await answer.wait()
        return claimed

    monkeypatch.setattr(store, "claim", slow)
    waiting = asyncio.create_task(host.work.claim("q"))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    answer.set()
    await host.work.claimer.close()
    assert await host.work.count(state="ready") == 1


async def test_a_failure_is_retried_and_then_dead(host):
    job = await host.work.enqueue("q", 1, retry=Retry(max_attempts=2, first=0))
    (claim,) = await host.work.claim("q")
    await claim.fail(ValueError("no such address"))
    assert (await job.status()).attempts == 1
    (claim,) = await host.work.claim("q")
    assert claim.attempt == 2
    await claim.fail("again")
    info = await job.status()
    assert (info.state, info.error) == (JobState.DEAD, {"message": "again"})
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert (caught.value.state, caught.value.id) == ("dead", job.id)
    first, second = reversed(await host.work.attempts(job.id))
    assert '"ValueError"' in first.error
    assert second.token > first.token
    assert await host.work.retry(job.id) == 1
    assert (await job.status()).attempts == 0


async def test_a_failure_may_say_when_or_never(host):
    one, two = [await host.work.enqueue("q", n) for n in (1, 2)]
    first, second = await host.work.claim("q", limit=2)
    await first.fail({"type": "Busy", "message": "later"}, retry_in=3600)
    await second.fail("hopeless", final=True)
    assert (await one.status()).state is JobState.RETRYING
    assert (await two.status()).state is JobState.DEAD


async def test_a_pause_that_is_asked_for_gives_no_more_attempts(host):
    job = await host.work.enqueue("q", 1, max_attempts=2)
    for _ in range(2):
        (claim,) = await host.work.claim("q")
        await claim.fail("no", retry_in=0)
    info = await job.status()
    assert (info.state, info.attempts) == (JobState.DEAD, 2)


async def test_a_released_job_is_as_if_never_claimed(host):
    job = await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    await claim.release()
    (claim,) = await host.work.claim("q")
    assert (claim.attempt, claim.losses) == (1, 0)
    await claim.release(delay=60)
    assert (await job.status()).state is JobState.SCHEDULED


async def test_a_settled_claim_is_lost(host):
    await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    await claim.complete()
    for act in (claim.complete, claim.release, claim.extend):
        with pytest.raises(ClaimLost) as caught:
            await act()
        assert caught.value.reason == "settled"
    with pytest.raises(ClaimLost):
        _ = claim.token


async def test_a_claim_taken_by_others_is_lost(host):
    job = await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    await host.work.store.release([outlive.model.job.Return(claim.id, claim.token)])
    await host.work.claim("q")
    with pytest.raises(ClaimLost) as caught:
        await claim.complete("late")
    assert (caught.value.reason, caught.value.id) == ("fenced", job.id)
    assert (await job.status()).state is JobState.CLAIMED


async def test_cancelling_reaches_the_claimant(host):
    waiting, running = [await host.work.enqueue("q", n) for n in (1, 2)]
    (claim,) = await host.work.claim(job=running.id)
    assert await waiting.cancel()
    assert (await waiting.status()).state is JobState.CANCELLED
    assert await running.cancel(reason="not needed")
    assert not claim.cancelled
    await claim.extend()
    assert claim.cancelled
    await claim.release()
    assert (await running.status()).state is JobState.CANCELLED
    assert await running.cancel()
    with pytest.raises(JobFailed):
        await running.result()


async def test_a_job_that_is_done_cannot_be_cancelled(host):
    job = await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    await claim.complete()
    assert not await job.cancel()
    assert await host.work.cancel(job.id) == 0


async def test_jobs_that_are_not_there(host):
    job = host.work.job("nobody")
    for act in (job.status, job.result, job.cancel):
        with pytest.raises(JobNotFound):
            await act()
    for act in (host.work.get, host.work.cancel, host.work.retry, host.work.purge):
        with pytest.raises(JobNotFound):
            await act("nobody")


async def test_a_result_is_waited_for_no_longer_than_asked(host):
    job = await host.work.enqueue("q", 1)
    with pytest.raises(
        TimeoutError, match=r"ready, and no worker has claimed it; check that a host runs"
    ):
        await job.result(timeout=0.01)


async def test_by_filter_in_pages(host):
    await host.work.enqueue_many("q", range(2300))
    await host.work.enqueue("other", 1)
    assert await host.work.cancel(queue="q") == 2300
    assert await host.work.count(queue="q", state="cancelled") == 2300
    assert await host.work.retry(queue="q", state=["cancelled", "ready"]) == 2300
    assert await host.work.purge(queue="q") == 0
    await host.work.cancel(queue="q")
    assert await host.work.purge(queue="q") == 2300
    assert [info.queue for info in await host.work.list()] == ["other"]


async def test_pages_go_on_after_a_cursor(host):
    await host.work.enqueue_many("q", range(5), ordering_key="k")
    first = await host.work.list(queue="q", limit=3)
    second = await host.work.list(queue="q", limit=3, after=first[-1].cursor)
    assert [info.payload for info in (*first, *second)] == [0, 1, 2, 3, 4]
    assert [info.blocked for info in first] == [False, True, True]
    assert await host.work.count(ordering_key="k") == 5


async def test_queues_are_paused_drained_and_resumed(host):
    await host.work.enqueue("q", 1)
    await host.work.limit("q", concurrency=2, rate=10, per=60)
    await host.work.pause("q")
    assert await host.work.claim("q") == []
    (queue,) = await host.work.queues()
    assert (queue.mode, queue.concurrency, queue.rate, queue.per_s) == ("paused", 2, 10, 60.0)
    await host.work.drain("q")
    with pytest.raises(QueueClosed):
        await host.work.enqueue("q", 2)
    assert len(await host.work.claim("q")) == 1
    await host.work.resume("q")
    await host.work.enqueue_many("q", [3, 4, 5])
    assert len(await host.work.claim("q", limit=9)) == 1
    await host.work.limit("q")
    assert len(await host.work.claim("q", limit=9)) == 2


async def test_what_is_not_settled_is_given_back_at_close():
    async with outlive.connect("memory://closing", name="b") as b:
        async with outlive.connect("memory://closing", name="a") as a:
            await a.work.enqueue("q", 1)
            (claim,) = await a.work.claim("q")
        assert not claim.is_held or (await b.work.get(claim.id)).state is JobState.READY
        (again,) = await b.work.claim("q")
        assert (again.token, again.losses) == (claim.job.token + 1, 0)
        with pytest.raises(UsageError, match="closed"):
            await a.work.claim("q")


@pytest.mark.parametrize("how", ["at", "fail", "release"])
async def test_a_job_that_soon_comes_due_is_not_left_to_the_poll(how):
    async with outlive.connect("memory://", name="h") as host:
        if how == "at":
            waiting = asyncio.create_task(host.work.claim("q", wait=10))
            await asyncio.sleep(0.05)
            soon = datetime.now(UTC) + timedelta(seconds=0.2)
            await host.work.enqueue("q", 1, at=soon)
        else:
            await host.work.enqueue("q", 1)
            (claim,) = await host.work.claim("q")
            waiting = asyncio.create_task(host.work.claim("q", wait=10))
            await asyncio.sleep(0.05)
            if how == "fail":
                await claim.fail("not yet", retry_in=0.2)
            else:
                await claim.release(delay=0.2)
        # The poll would be five seconds after the beginning.
        assert len(await asyncio.wait_for(waiting, 3)) == 1


async def test_errors_of_jobs_are_short_sentences(host):
    job = await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    await claim.fail(ValueError("no such order"), final=True)
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert str(caught.value) == f"job {job.id!r} is dead: ValueError: no such order"
    with pytest.raises(ClaimLost, match="was already settled"):
        await claim.complete()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prioritty": 1}, "unknown job option prioritty: did you mean 'priority'?"),
        ({"subject": "yo"}, r"a handler takes one payload, .*enqueue\(handler, {'subject': …}\)"),
        ({"id": "a\nb"}, "^id 'a"),
        ({"unique_key": "a\nb"}, "^unique_key 'a"),
        ({"ordering_key": "a\nb"}, "^ordering_key 'a"),
    ],
)
async def test_a_wrong_option_of_a_job_is_named_with_the_way_out(host, options, said):
    with pytest.raises(UsageError, match=said):
        await host.work.enqueue("q", "ann", **options)


def test_a_parameter_that_can_never_be_given_is_refused_where_it_is_defined():
    app = outlive.App("a")
    with pytest.raises(UsageError, match="takes one payload, so its parameter 'subject' can never"):

        @app.handler("mails")
        async def send(to: str, subject: str = "hi") -> None: ...


async def test_a_job_that_expired_says_so(host):
    expired = await host.work.enqueue("q", 1, expires=0.01)
    await asyncio.sleep(0.02)
    await host.driver.jobs.tend(limit=10)
    with pytest.raises(JobFailed, match=r"expired: not claimed within 0\.01 s"):
        await expired.result(timeout=5)
