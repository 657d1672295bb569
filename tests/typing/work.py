"""What a type checker must say about work: payloads and results keep the types of their handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import outlive
from outlive import blocking
from outlive.names import JobId, Token

app = outlive.App("typed")


@dataclass
class Mail:
    to: str


@app.handler("mails", concurrency=5, timeout=timedelta(seconds=3), retry=outlive.Retry(first=2))
async def send(mail: Mail) -> int:
    current = outlive.current()
    assert_type(current, outlive.Current)
    assert_type(current.token, Token)
    assert_type(current.job, JobId)
    assert_type(current.cancelled, bool)
    current.progress({"done": 1})
    return len(mail.to)


@app.handler("files", rate=(10, 60), concurrency_key=lambda path: path)
def store(path: str) -> None: ...


async def enqueueing(host: outlive.Host) -> None:
    assert_type(send, outlive.Handler[Mail, int])
    assert_type(store, outlive.Handler[str, None])
    job = await host.work.enqueue(send, Mail("ann"), priority=5, delay=timedelta(hours=1))
    assert_type(job, outlive.Job[int])
    assert_type(await job.result(timeout=5), int)
    assert_type(await job.status(), outlive.JobInfo)
    assert_type(await host.work.enqueue_many(send, [Mail("ann")]), list[outlive.Job[int]])
    assert_type(await host.work.enqueue("mails", {"to": "ann"}), outlive.Job[Any])
    assert_type(host.work.job("id", send), outlive.Job[int])
    assert_type(host.work.job("id"), outlive.Job[Any])
    assert_type(await host.work.cancel(queue="mails", state="ready"), int)


async def claiming(host: outlive.Host) -> None:
    claims = await host.work.claim(["mails", send], limit=5, wait=1)
    assert_type(claims, list[outlive.Claim])
    assert_type(claims[0].token, Token)
    await claims[0].fail(ValueError(), retry_in=timedelta(minutes=1))


def without_await(host: blocking.Host) -> None:
    assert_type(host.work.enqueue(send, Mail("ann")), blocking.Job[int])
    assert_type(host.work.enqueue(send, Mail("ann")).result(), int)
    assert_type(host.work.claim("mails"), list[blocking.Claim])
