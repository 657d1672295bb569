"""The SQLite driver: opens the files, joins the stores, and takes everything down again.

Owns the life of the connections, threads and sockets. It must never leave one behind when opening
fails half-way.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from outlive.clock import Clock
from outlive.drivers.sqlite import files, health, schema
from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.bells import FOR_INSTANCES, Bells
from outlive.drivers.sqlite.connection import check_library
from outlive.drivers.sqlite.domain import clock_domain
from outlive.drivers.sqlite.host_store import SqliteHostStore
from outlive.drivers.sqlite.instance_mail import InstanceMail
from outlive.drivers.sqlite.instance_reader import InstanceReader
from outlive.drivers.sqlite.instance_store import Parts, SqliteInstanceStore
from outlive.drivers.sqlite.job_reader import JobReader
from outlive.drivers.sqlite.job_store import SqliteJobStore
from outlive.drivers.sqlite.lease_reader import LeaseReader
from outlive.drivers.sqlite.lease_store import SqliteLeaseStore
from outlive.drivers.sqlite.long_reads import LongReads
from outlive.drivers.sqlite.opening import Connections, open_files
from outlive.drivers.sqlite.schedule_store import SqliteScheduleStore
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.settings import OPTIONS, Settings, read_settings
from outlive.drivers.sqlite.token_store import SqliteTokenStore
from outlive.drivers.sqlite.transaction import Bell, Transactions
from outlive.drivers.sqlite.user_transactions import UserTransactions
from outlive.drivers.sqlite.waiting import Waiting
from outlive.drivers.sqlite.wakeups import Poll, SqliteWakeups
from outlive.drivers.sqlite.writer import Writer
from outlive.model.location import Location
from outlive.model.schema_version import NEWER_SERVED
from outlive.model.turns import RING_DEPTH
from outlive.names import HostId
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration
from outlive.ports.wakeups import Wakeup

CAPABILITIES = Capabilities(
    backend="SQLite",
    fifo=True,
    push=True,
    history=True,
    semaphore=True,
    multi_key=True,
    sessions=True,
    guard=("sqlite3", "sqlalchemy", "django"),
    across="machine",
    clock="boot-time clock of the machine",
    drift=0.0,
    # A commit takes about a millisecond on a slow disk; a shorter ttl ends before it is known.
    ttl_min_s=0.01,
    ttl_max_s=None,
    jobs=True,
    ordering=True,
    queue_limits=True,
    schedules=True,
    instances=True,
    transact="sync",
)


class SqliteDriver:
    """An open store in one file and its sidecar."""

    def __init__(
        self,
        connections: Connections,
        paths: files.StoreFiles,
        settings: Settings,
        context: DriverContext,
        domain: str,
    ) -> None:
        namespace = context.namespace
        self.capabilities = CAPABILITIES
        self.paths = paths
        self.settings = settings
        self.reader = LeaseReader(
            connections.reader, context.clock, namespace=namespace, domain=domain
        )
        self.wakeups = SqliteWakeups(
            paths.bells,
            namespace=namespace,
            host=context.host,
            poll=Poll(
                paths.stamp,
                self.reader.data_version,
                self.reader.waiters_of,
                Waiting(self.reader, context.clock, namespace, context.host).look,
            ),
            logger=context.logger,
        )
        bells = _Bells(context.clock, self.wakeups, namespace, domain)
        self.writer = Writer(
            _transactions(connections.main, paths.main, context, settings),
            name="outlive-sqlite",
            logger=context.logger,
            after_commit=bells.ring,
        )
        self._host_writer = Writer(
            _transactions(connections.hosts, paths.hosts, context, settings),
            name="outlive-sqlite-hosts",
            logger=context.logger,
        )
        users = UserTransactions(paths.main)
        self.leases = SqliteLeaseStore(
            self.writer,
            self.reader,
            users,
            namespace=namespace,
            domain=domain,
        )
        self._reads = LongReads(connections.reads)
        self._sessions = Sessions(connections.sessions, namespace=namespace, domain=domain)
        self.jobs, self.instances = self._work(users, settings, context)
        self.schedules = SqliteScheduleStore(self.writer, self.jobs, namespace=namespace)
        self.hosts = SqliteHostStore(self._host_writer, namespace=namespace, domain=domain)
        self.tokens = SqliteTokenStore(self.writer, namespace=namespace)
        self.wakeups.open(listen=context.role == "host")

    def _work(
        self, users: UserTransactions, settings: Settings, context: DriverContext
    ) -> tuple[SqliteJobStore, SqliteInstanceStore]:
        """The stores that know of each other: a commit adds jobs, and a job's end is a letter."""
        namespace = context.namespace
        instance_bells = Bells(FOR_INSTANCES, namespace, context.host)
        mail = InstanceMail(instance_bells, namespace=namespace)
        jobs = SqliteJobStore(
            self.writer,
            JobReader(self._reads, context.clock, namespace=namespace),
            users,
            self._sessions,
            context=context,
            watch=self.wakeups.watch,
            ring_mail=mail.ring,
        )
        instances = SqliteInstanceStore(
            Parts(
                self.writer,
                InstanceReader(self._reads, namespace=namespace),
                users,
                self._sessions,
                mail,
                instance_bells,
                jobs.enqueue_in_turn,
                self.wakeups.watch,
            ),
            context=context,
            transact_limit_s=settings.transact_limit_s,
        )
        return jobs, instances

    async def check(self) -> Sequence[Finding]:
        """Look at the file, its settings, its file system and the doorbell."""
        return await health.check(self)

    async def close(self) -> None:
        """Give everything back. Repeatable."""
        self.wakeups.close()
        self.reader.close()
        await self._reads.close()
        await self.writer.close()
        # The writer is the one who asked.
        self._sessions.close()
        await self._host_writer.close()


class _Bells:
    """Wakes those who wait for what a commit freed, on the thread that committed.

    For leases the head of the queue of each freed key is looked up now; hosts that wait for jobs
    were taken from their notes in the transaction itself.
    """

    def __init__(self, clock: Clock, wakeups: SqliteWakeups, namespace: str, domain: str) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._namespace = namespace
        self._domain = domain

    def ring(self, connection: sqlite3.Connection, freed: list[str | Bell]) -> None:
        """Ring everybody who is to hear of ``freed``, one datagram for each host."""
        now = int(self._clock.monotonic() * 1e6)
        by_host: dict[str, list[Wakeup]] = {}
        for key in dict.fromkeys(freed):
            if isinstance(key, Bell):
                by_host.setdefault(key.host, []).append(Wakeup(key.topic))
                continue
            of = (self._namespace, key, self._domain, now)
            free = connection.execute(sql.FREE_SLOTS, of).fetchone()[0]
            if not free:
                continue
            # One for each slot that can be had, and as many behind as stand in for the dead.
            head = connection.execute(
                sql.HEAD, (*of, self._domain, free - 1 + RING_DEPTH)
            ).fetchall()
            for position, (seq, host) in enumerate(head):
                wakeup = Wakeup(f"lease/{key}", seq, position)
                by_host.setdefault(host, []).append(wakeup)
        for host, wakeups in by_host.items():
            self._wakeups.send(wakeups, HostId(host))


class SqliteFactory:
    """Opens SQLite drivers. ``domain`` names the clock's domain instead of the system's own."""

    def __init__(self, domain: str | None = None) -> None:
        self._domain = domain
        self.capabilities = CAPABILITIES
        self.options = OPTIONS

    async def open(self, location: Location, context: DriverContext) -> SqliteDriver:
        """Open the file, creating it and its schema if it is missing."""
        settings = read_settings(location.options, context.options)
        check_library()
        paths = files.locate(location)
        domain = self._domain or clock_domain()
        # Opening reads and syncs files, and may wait for a migration in another process.
        connections = await asyncio.to_thread(
            open_files,
            paths,
            settings,
            context.random,
            may_migrate=context.migrate is not False,
            may_create=context.create,
        )
        if connections.newer is not None and context.role == "host":
            context.logger.info(NEWER_SERVED, schema.STORE, *connections.newer)
        try:
            return SqliteDriver(connections, paths, settings, context, domain)
        except BaseException:
            connections.close()
            raise

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Bring both files to this release's schema, under the write lock, or change nothing."""
        settings = read_settings(location.options, context.options)
        check_library()
        paths = files.locate(location)
        connections = await asyncio.to_thread(
            open_files, paths, settings, context.random, may_migrate=True
        )
        await asyncio.to_thread(connections.close)
        return connections.migration


def _transactions(
    connection: sqlite3.Connection, path: Path, context: DriverContext, settings: Settings
) -> Transactions:
    return Transactions(
        connection,
        context.clock,
        context.random,
        path=path,
        busy_timeout_s=settings.busy_timeout_s,
    )
