"""Claims by Outlive itself: the job store of a driver, with nothing above it.

Each worker opens a session of its own and claims one job at a time from the queue of the run. Names
that a store keeps (schema, prefix, file) are the benchmark's own, and removed with it.
"""

from __future__ import annotations

from outlive.bench.arena import PREFIX, Arena, Miss, Site
from outlive.connect import find_factory
from outlive.errors import UnsupportedByDriver
from outlive.model.job import ClaimRequest, Completion, NewJob, Want
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, JobId
from outlive.ports.driver import Driver, DriverContext
from outlive.ports.host_store import HostStore
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime

# Longer than any benchmark: nobody renews the session of a worker.
_SESSION_US = 3_600_000_000


class JobArena:
    """The job store of one driver.

    ``beside`` is an arena of the same store without Outlive: it knows how to say how durable the
    store is, and how to remove what has the benchmark's name.
    """

    def __init__(self, site: Site, store: str, beside: Arena, runtime: Runtime) -> None:
        url = site.urls.get(store) or f"sqlite:///{site.folder / 'outlive.db'}"
        self._location = parse_url(url)
        self._factory = find_factory(self._location.scheme)
        self._beside = beside
        self._tag = site.tag
        self._runtime = runtime
        self._session = HostId(runtime.new_id())
        name = f"{PREFIX}{site.tag}"
        own = {"postgres": {"schema": f"{name}_jobs"}, "redis": {"prefix": name}}
        self._options = own.get(store, {})
        self._driver: Driver | None = None
        self._claimed: list[Completion] = []
        self._requests = 0

    async def build(self) -> str:
        """Let the driver make its schema."""
        said = await self._beside.build()
        await self._open()
        return said

    async def lay_out(self, run: int, items: int) -> None:
        """Enqueue them in one call; they are gone when they are done."""
        jobs, _ = await self._open()
        prefix = f"{self._tag}-{run}-"
        await jobs.enqueue(
            [
                NewJob(
                    id=JobId(f"{prefix}{item}"), queue=f"run-{run}", payload="null", retention_us=0
                )
                for item in range(items)
            ]
        )

    async def claim(self, run: int, claimant: str) -> int | Miss:
        """Claim one job of the run's queue."""
        jobs, _ = await self._open()
        self._requests += 1
        found = await jobs.claim(
            ClaimRequest(
                session=self._session,
                worker=claimant,
                request=f"{self._session}-{self._requests}",
                wants=(Want(f"run-{run}", 1),),
            )
        )
        if not found.jobs:
            return Miss.EMPTY
        job = found.jobs[0]
        self._claimed.append(Completion(job.id, job.token))
        return int(job.id.rpartition("-")[2])

    async def tidy(self, run: int) -> None:
        """Complete what was claimed."""
        del run
        jobs, _ = await self._open()
        claimed, self._claimed = self._claimed, []
        if claimed:
            await jobs.complete(claimed)

    async def demolish(self) -> None:
        """Remove what has the benchmark's name."""
        await self._release()
        await self._beside.demolish()

    async def close(self) -> None:
        """End the session and give the connections back."""
        await self._release()
        await self._beside.close()

    async def _release(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        try:
            if driver.hosts is not None:
                await driver.hosts.close(self._session)
        finally:
            await driver.close()

    async def _open(self) -> tuple[JobStore, HostStore]:
        if self._driver is not None:
            return _ports(self._driver)
        context = DriverContext(
            clock=self._runtime.clock,
            random=self._runtime.random,
            namespace="bench",
            host=self._session,
            options=dict(self._options),
        )
        self._driver = await self._factory.open(self._location, context)
        jobs, hosts = _ports(self._driver)
        await hosts.open(
            HostSession(id=self._session, name="bench", ttl_us=_SESSION_US, metadata="{}")
        )
        return jobs, hosts


def _ports(driver: Driver) -> tuple[JobStore, HostStore]:
    if driver.jobs is None or driver.hosts is None:
        raise UnsupportedByDriver("this driver does not support jobs")
    return driver.jobs, driver.hosts
