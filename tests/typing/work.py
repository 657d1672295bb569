"""What a type checker must say about work: payloads and results keep the types of their handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import holdfast
from holdfast import blocking
from holdfast.names import JobId, Token

app = holdfast.App("typed")


@dataclass
class Mail:
    to: str


@app.handler("mails", concurrency=5, timeout=timedelta(seconds=3), retry=holdfast.Retry(first=2))
async def send(mail: Mail) -> int:
    current = holdfast.current()
    assert_type(current, holdfast.Current)
    assert_type(current.token, Token)
    assert_type(current.job, JobId)
    assert_type(current.cancelled, bool)
    current.progress({"done": 1})
    return len(mail.to)


@app.handler("files", rate=(10, 60), concurrency_key=lambda path: path)
def store(path: str) -> None: ...


async def enqueueing(hf: holdfast.Holdfast) -> None:
    assert_type(send, holdfast.Handler[Mail, int])
    assert_type(store, holdfast.Handler[str, None])
    job = await hf.work.enqueue(send, Mail("ann"), priority=5, delay=timedelta(hours=1))
    assert_type(job, holdfast.Job[int])
    assert_type(await job.result(timeout=5), int)
    assert_type(await job.status(), holdfast.JobInfo)
    assert_type(await hf.work.enqueue_many(send, [Mail("ann")]), list[holdfast.Job[int]])
    assert_type(await hf.work.enqueue("mails", {"to": "ann"}), holdfast.Job[Any])
    assert_type(hf.work.job("id", send), holdfast.Job[int])
    assert_type(hf.work.job("id"), holdfast.Job[Any])
    assert_type(await hf.work.cancel(queue="mails", state="ready"), int)


async def claiming(hf: holdfast.Holdfast) -> None:
    claims = await hf.work.claim(["mails", send], limit=5, wait=1)
    assert_type(claims, list[holdfast.Claim])
    assert_type(claims[0].token, Token)
    await claims[0].fail(ValueError(), retry_in=timedelta(minutes=1))


def without_await(hf: blocking.Holdfast) -> None:
    assert_type(hf.work.enqueue(send, Mail("ann")), blocking.Job[int])
    assert_type(hf.work.enqueue(send, Mail("ann")).result(), int)
    assert_type(hf.work.claim("mails"), list[blocking.Claim])
