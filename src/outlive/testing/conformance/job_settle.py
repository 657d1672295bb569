"""Cases of settling: what a claimant may do with its claim, and what it leaves behind."""

from __future__ import annotations

from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    ClaimedJob,
    Completion,
    Failure,
    JobState,
    Return,
    Settled,
)
from outlive.names import JobId, Token
from outlive.testing.conformance.job_worker import (
    ERROR,
    PAST_S,
    SOON_S,
    Worker,
    stale,
    worker,
    workers,
)
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


async def settle_in_every_way(one: Worker, claimed: ClaimedJob) -> list[Settled]:
    """Try everything a claimant can do, with the claim as it is given."""
    return [
        await one.extend(claimed, '"stale"'),
        await one.release(claimed),
        await one.fail(claimed, retry=0),
        await one.fail(claimed),
        await one.complete(claimed, '"stale"'),
    ]


class CompleteCases:
    """A job is done once, under its newest claim."""

    @scenario
    async def test_a_completed_job_is_done(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        assert await a.complete(await a.claim_one(), '{"sent":1}') is Settled.OK
        found = await a.record("j")
        assert (found.state, found.result, found.error) == (JobState.DONE, '{"sent":1}', None)
        assert found.ended_at is not None
        assert found.ended_at >= found.enqueued_at
        assert (found.session, found.claimed_by) == (a.id, "a")
        assert await a.ids() == []

    @scenario
    async def test_a_job_may_be_done_without_a_result(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.complete(await a.claim_one())
        assert (await a.record("j")).result is None

    @scenario
    async def test_each_of_a_batch_is_answered(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x", "y", "ready", "z")
        x, y, back, z = await a.claim(4)
        await a.release(back)
        outcomes = await a.jobs.complete(
            [
                Completion(z.id, z.token, '"z"'),
                Completion(JobId("never-was"), Token(1)),
                Completion(x.id, x.token, '"x"'),
                Completion(y.id, stale(y).token),
                Completion(back.id, back.token),
            ]
        )
        ok, lost = Settled.OK, Settled.LOST
        assert list(outcomes) == [ok, lost, ok, lost, lost]
        assert [(await a.record(id_)).result for id_ in ("x", "z")] == ['"x"', '"z"']
        assert await a.state("y") is JobState.CLAIMED
        assert await a.state("ready") is JobState.READY

    @scenario
    async def test_a_stale_token_changes_nothing(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        old = await a.claim_one()
        await a.release(old)
        new = await b.claim_one()
        before = await b.record("j")
        assert set(await settle_in_every_way(a, old)) == {Settled.LOST}
        assert await b.record("j") == before
        assert await b.complete(new) is Settled.OK

    @scenario
    async def test_a_token_nobody_has_yet_changes_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        before = await a.record("j")
        for by in (-1, -1000, 1):
            assert set(await settle_in_every_way(a, stale(claimed, by))) == {Settled.LOST}
        assert await a.record("j") == before

    @scenario
    async def test_a_done_job_cannot_be_settled_otherwise(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        await a.complete(claimed, "1")
        before = await a.record("j")
        assert await a.release(claimed) is Settled.LOST
        assert await a.fail(claimed, retry=0) is Settled.LOST
        assert await a.extend(claimed) is Settled.LOST
        assert await a.record("j") == before


class FailCases:
    """A failure is kept and counted; the one who ran the job says whether it is tried again."""

    @scenario
    async def test_a_failed_job_waits_for_its_retry(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        assert await a.fail(await a.claim_one(), retry=LONG_S) is Settled.OK
        found = await a.record("j")
        assert (found.state, found.attempts, found.losses) == (JobState.RETRYING, 1, 0)
        assert (found.error, found.ended_at) == (ERROR, None)
        assert await a.ids() == []

    @scenario
    async def test_a_retry_is_claimed_when_due(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.fail(await a.claim_one(), retry=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        again = await a.claim_one()
        assert (again.attempts, again.losses) == (1, 0)

    @scenario
    async def test_a_retry_at_once_is_claimed_at_once(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.fail(await a.claim_one(), retry=0)
        assert await a.state("j") is JobState.READY
        assert (await a.claim_one()).attempts == 1

    @scenario
    async def test_a_retry_at_once_goes_behind_those_that_are_ready(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x", "y")
        await a.fail(await a.claim_one(), retry=0)
        await a.put("z")
        assert await a.ids() == ["y", "x", "z"]

    @scenario
    async def test_a_job_that_is_not_retried_is_dead(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        assert await a.fail(await a.claim_one()) is Settled.OK
        found = await a.record("j")
        assert (found.state, found.attempts, found.error) == (JobState.DEAD, 1, ERROR)
        assert found.ended_at is not None
        assert await a.ids() == []

    @scenario
    async def test_failures_are_kept_newest_first(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        first = await a.claim_one(worker="one")
        await a.fail(first, retry=0, error='"first"')
        second = await b.claim_one(worker="two")
        await b.fail(second, error='"second"')
        newest, oldest = await a.jobs.attempts(JobId("j"))
        assert (newest.token, newest.outcome, newest.worker) == (second.token, "failed", "two")
        assert (oldest.token, oldest.outcome, oldest.worker) == (first.token, "failed", "one")
        assert (newest.error, oldest.error) == ('"second"', '"first"')
        assert oldest.claimed_at is not None
        assert oldest.claimed_at <= oldest.ended_at <= newest.ended_at

    @scenario
    async def test_only_the_newest_failures_are_kept(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        count = ATTEMPTS_KEPT_MAX + 3
        for number in range(count):
            await a.fail(await a.claim_one(), retry=0, error=str(number))
        kept = [attempt.error for attempt in await a.jobs.attempts(JobId("j"))]
        assert kept == [str(count - 1 - number) for number in range(ATTEMPTS_KEPT_MAX)]
        assert (await a.record("j")).attempts == count

    @scenario
    async def test_each_failure_of_a_batch_is_answered(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("dead", "again", "stale")
        dead, again, late = await a.claim(3)
        outcomes = await a.jobs.fail(
            [
                Failure(dead.id, dead.token, '"d"'),
                Failure(late.id, stale(late).token, '"s"', 0),
                Failure(again.id, again.token, '"a"', round(LONG_S * 1e6)),
            ]
        )
        assert list(outcomes) == [Settled.OK, Settled.LOST, Settled.OK]
        states = [await a.state(id_) for id_ in ("dead", "again", "stale")]
        assert states == [JobState.DEAD, JobState.RETRYING, JobState.CLAIMED]


class ReleaseCases:
    """A job given back is as if it had never been claimed, but for its token."""

    @scenario
    async def test_a_released_job_counts_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        assert await a.release(await a.claim_one()) is Settled.OK
        found = await a.record("j")
        assert (found.state, found.attempts, found.losses) == (JobState.READY, 0, 0)
        assert (found.error, found.ended_at) == (None, None)
        assert await a.outcomes("j") == []

    @scenario
    async def test_a_released_job_keeps_its_place(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("first", "second", "third")
        first, second = await a.claim(2)
        outcomes = await a.jobs.release(
            [Return(second.id, second.token), Return(first.id, first.token)]
        )
        assert list(outcomes) == [Settled.OK, Settled.OK]
        assert await a.ids() == ["first", "second", "third"]

    @scenario
    async def test_a_job_may_be_released_for_later(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("long", "short")
        long, short = await a.claim(2)
        await a.release(long, LONG_S)
        await a.release(short, SOON_S)
        assert await a.state("long") is JobState.SCHEDULED
        await lab.advance(SOON_S + PAST_S)
        (found,) = await a.claim(5)
        assert (found.id, found.attempts, found.losses) == ("short", 0, 0)


class ExtendCases:
    """A claimant learns whether its claim stands, and tells how far it is."""

    @scenario
    async def test_a_standing_claim_is_ok(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        assert await a.extend(claimed) is Settled.OK
        found = await a.record("j")
        assert (found.state, found.token, found.progress) == (
            JobState.CLAIMED,
            claimed.token,
            None,
        )

    @scenario
    async def test_progress_is_kept_until_told_anew(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        await a.extend(claimed, "0.5")
        await a.extend(claimed)
        assert (await a.record("j")).progress == "0.5"
        await a.extend(claimed, '{"at":2}')
        assert (await a.record("j")).progress == '{"at":2}'

    @scenario
    async def test_a_job_that_nobody_claimed_cannot_be_settled(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", "other")
        other = await a.claim_by_id("other")
        for token in (0, other[0].token):
            forged = ClaimedJob(
                id=JobId("j"),
                queue="q",
                token=Token(token),
                payload="1",
                attempts=0,
                losses=0,
                max_attempts=1,
                retry="{}",
                priority=0,
                headers="{}",
                enqueued_at_us=0,
            )
            assert set(await settle_in_every_way(a, forged)) == {Settled.LOST}
        assert await a.state("j") is JobState.READY
