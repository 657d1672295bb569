"""What the tests of the SQLite driver share: opening a store and asking for keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from outlive.clock import Clock, SystemClock
from outlive.drivers.sqlite import SqliteFactory
from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.model.instance import Commit, InstanceClaimRequest, Message, NewInstance
from outlive.model.job import ClaimRequest, NewJob, Want
from outlive.model.lease import AcquireRequest
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, InstanceId, JobId, Owner, Token
from outlive.ports.driver import DriverContext

TTL_US = 30_000_000


def context(
    host: str = "host-1", *, clock: Clock | None = None, role: str = "host", **options: Any
) -> DriverContext:
    return DriverContext(
        clock=clock or SystemClock(),
        random=random.Random(host),
        namespace="default",
        host=HostId(host),
        role=role,
        options=options,
    )


async def open_store(
    directory: Path,
    host: str = "host-1",
    *,
    domain: str | None = None,
    clock: Clock | None = None,
    role: str = "host",
    **options: Any,
) -> SqliteDriver:
    location = parse_url(f"sqlite:///{directory}/store.db")
    given = context(host, clock=clock, role=role, **options)
    return await SqliteFactory(domain).open(location, given)


def ask(
    key: str, owner: str = "web/1", ttl_us: int = TTL_US, host: str = "host-1", **more: Any
) -> AcquireRequest:
    return AcquireRequest(key, Owner(owner), ttl_us, "{}", HostId(host), **more)


def job(id_: str, queue: str = "mail", **more: Any) -> NewJob:
    return NewJob(id=JobId(id_), queue=queue, payload="{}", **more)


def want(
    limit: int = 1, queue: str = "mail", *, host: str = "host-1", request: str = "r", **more: Any
) -> ClaimRequest:
    return ClaimRequest(
        session=HostId(host),
        worker=host,
        request=request,
        wants=(Want(queue, limit),),
        limit=limit,
        **more,
    )


async def open_session(driver: SqliteDriver, host: str = "host-1") -> None:
    await driver.hosts.open(HostSession(id=HostId(host), name=host, ttl_us=TTL_US, metadata="{}"))


def flow(id_: str, name: str = "order", **more: Any) -> NewInstance:
    given: dict[str, Any] = {"input": "{}", "request": f"start-{id_}", **more}
    return NewInstance(id=InstanceId(id_), kind="flow", name=name, **given)


def owned(id_: str, host: str = "host-1", **more: Any) -> NewInstance:
    return flow(id_, session=HostId(host), worker=host, **more)


def step(id_: str, version: int, token: int = 1, **more: Any) -> Commit:
    given: dict[str, Any] = {"commit": f"{id_}/{version}/{token}", "events": "[]", **more}
    return Commit(id=InstanceId(id_), token=Token(token), version=version, **given)


def ask_for(
    limit: int = 10, *names: str, host: str = "host-1", request: str = "r", **more: Any
) -> InstanceClaimRequest:
    return InstanceClaimRequest(
        session=HostId(host),
        worker=host,
        request=request,
        kind="flow",
        names=names or ("order",),
        limit=limit,
        **more,
    )


def letter(to: str, id_: str = "m1", payload: str = "1") -> Message:
    return Message(InstanceId(to), id_, "signal", "paid", payload)
