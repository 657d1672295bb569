"""Jobs in Redis: the port, each method that changes something one script in one round trip.

Owns what is refused before anything is sent, and what the answers mean. Nothing is decided here:
the scripts decide, by the server's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.job_reading import JobReader
from outlive.drivers.redis.job_records import claimed_of, optional, text_of, words_of
from outlive.drivers.redis.link import Link
from outlive.drivers.redis.scripts import Script, load_job_scripts
from outlive.errors import (
    Fenced,
    LeaseExpired,
    StoreUnavailable,
    UnsupportedByDriver,
    UsageError,
)
from outlive.model.job import (
    ALL_PARTS,
    CLAIM_MAX,
    ENQUEUE_MAX,
    Changed,
    Claimed,
    ClaimRequest,
    Completion,
    Enqueued,
    Entry,
    Extension,
    Failure,
    JobState,
    NewJob,
    QueuePart,
    QueueSettings,
    Reclaimed,
    Return,
    Settled,
    Tended,
)
from outlive.names import HostId, JobId

# How many jobs one part of a sweep looks at: a script holds up everybody else, and this many take
# some milliseconds.
_SWEEP_MAX = 500

# A server buffers what is sent to it before it runs it, and closes a connection that sends a
# gigabyte at once. A character may be four bytes.
_BATCH_CHARACTERS_MAX = 256 * 1024 * 1024

# A store that loses its epoch record again while it is being told is being flushed in a loop.
_ADOPT_TRIES_MAX = 3


class RedisJobStore(JobReader):
    """The ``JobStore`` of one namespace in one database, for one host."""

    def __init__(self, link: Link, epoch: Epoch, keys: str, host: HostId) -> None:
        super().__init__(link, keys)
        self._epoch = epoch
        self._host = host
        self._hosts = f"{keys}hosts"
        self._scripts = load_job_scripts()

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs; see the port.

        They are one script: the server does nothing else for about 20 us for each job.
        """
        if not jobs:
            return []
        _check_size(jobs)
        for job in jobs:
            if job.ordering_key is not None:
                raise UnsupportedByDriver(
                    f"the Redis driver does not support ordering keys, and job {job.id!r} has "
                    "one: leave it out, or use SQLite or Postgres"
                )
        if sum(len(job.payload) + len(job.headers) for job in jobs) > _BATCH_CHARACTERS_MAX:
            raise UsageError(
                f"a batch of jobs has more than {_BATCH_CHARACTERS_MAX} characters: use several "
                "calls"
            )
        answer = await self._change(self._scripts.enqueue, *words_of(jobs))
        entries = [Enqueued(job.id, Entry.CREATED) for job in jobs]
        for position, entry, standing in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
            entries[position] = Enqueued(JobId(standing), Entry(entry))
        return entries

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Refuse: Redis has no transaction that the caller could have open; see the port."""
        del jobs, tx
        raise UnsupportedByDriver(
            "Redis has no transactions to enqueue in; leave tx out, or use SQLite or Postgres"
        )

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim what is ready or due; see the port.

        After a restart of the server nothing is claimed for the largest ttl of a session.
        """
        words: list[Any] = [
            *(request.session, self._host, request.worker, request.request),
            min(request.limit, CLAIM_MAX),
            optional(request.job),
            "1" if request.again else "",
            request.wait_us,
            "1" if request.suspects else "",
        ]
        for want in request.wants:
            losses = "" if want.max_losses is None else want.max_losses
            words += (want.queue, want.limit, losses)
        for _ in range(_ADOPT_TRIES_MAX):
            outcome, *answer = await self._link.run(
                self._scripts.claim,
                3,
                self._queues,
                self._hosts,
                self._epoch.key,
                self._keys,
                *words,
            )
            if outcome == "ok":
                due_us, *found = answer
                jobs, damaged = claimed_of(found)
                # Nobody could run them, and the next claim would meet them again.
                await self.fail(damaged)
                return Claimed(jobs, None if due_us is None else due_us / 1e6)
            if outcome == "expired":
                raise LeaseExpired(f"host/{request.session}")
            if outcome == "fenced":
                raise Fenced(f"host/{request.session}")
            await self._link.adopt_again()
        raise StoreUnavailable(
            "the records in Redis disappeared during every attempt: look for a program that "
            "flushes this database"
        )

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done; see the port."""
        return await self._settle(
            self._scripts.complete,
            completions,
            lambda done: (done.id, done.token, optional(done.result)),
        )

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed; see the port."""
        return await self._settle(
            self._scripts.fail,
            failures,
            lambda failed: (
                failed.id,
                failed.token,
                failed.error,
                "" if failed.retry_us is None else failed.retry_us,
            ),
        )

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun; see the port."""
        return await self._settle(
            self._scripts.release,
            returns,
            lambda returned: (returned.id, returned.token, returned.delay_us),
        )

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand; see the port."""
        return await self._settle(
            self._scripts.extend,
            extensions,
            lambda extended: (extended.id, extended.token, optional(extended.progress)),
        )

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take the claims of sessions that are gone; see the port.

        A large number is taken in parts, each one atomic step.
        """
        taken: list[Reclaimed] = []
        while len(taken) < limit:
            most = min(limit - len(taken), _SWEEP_MAX)
            found = await self._link.run(
                self._scripts.reclaim, 2, self._queues, self._hosts, self._keys, most
            )
            taken += (
                Reclaimed(JobId(job), queue, JobState(state))
                for job, queue, state in zip(found[::3], found[1::3], found[2::3], strict=True)
            )
            if len(found) < 3 * most:
                break
        return taken

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled; see the port."""
        return await self._change_each(self._scripts.cancel, ids, text_of(reason))

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now; see the port."""
        return await self._change_each(self._scripts.retry, ids)

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended; see the port."""
        return await self._change_each(self._scripts.purge, ids)

    async def tend(self, *, limit: int) -> Tended:
        """End what expired and remove what was kept long enough; see the port.

        A large number is looked at in parts, each one atomic step.
        """
        expired = pruned = 0
        while expired < limit or pruned < limit:
            most = [min(limit - count, _SWEEP_MAX) for count in (expired, pruned)]
            found = await self._change(self._scripts.tend, *most)
            expired += found[0]
            pruned += found[1]
            if not any(found) or all(got < of for got, of in zip(found, most, strict=True)):
                break
        return Tended(expired, pruned)

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """Let a mode hold for a queue; see the port."""
        if settings.limited:
            raise UnsupportedByDriver(
                "the Redis driver does not support fleet-wide limits of a queue, such as those "
                f"of queue {settings.name!r}: limit each worker, or use SQLite or Postgres"
            )
        if QueuePart.MODE in parts:
            await self._change(self._scripts.put_queue, settings.name, settings.mode)

    async def _change(self, script: Script, *words: Any) -> Any:
        return await self._link.run(script, 1, self._queues, self._keys, *words)

    async def _settle(
        self, script: Script, batch: Sequence[Any], words_of_each: Callable[[Any], tuple[Any, ...]]
    ) -> Sequence[Settled]:
        if not batch:
            return []
        _check_size(batch)
        words = [word for each in batch for word in words_of_each(each)]
        return [Settled(word) for word in await self._change(script, *words)]

    async def _change_each(
        self, script: Script, ids: Sequence[JobId], *words: str
    ) -> Sequence[Changed]:
        if not ids:
            return []
        _check_size(ids)
        return [Changed(word) for word in await self._change(script, *words, *ids)]


def _check_size(batch: Sequence[Any]) -> None:
    if len(batch) > ENQUEUE_MAX:
        raise UsageError(f"a batch has {len(batch)} members; at most {ENQUEUE_MAX} are allowed")
