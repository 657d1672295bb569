"""One connection to one member of etcd: the only module that knows gRPC and the client library.

Owns the messages. It uses the stubs of aetcd on a channel of its own, because aetcd's client knows
one endpoint and no TLS. Turns plain operations into messages and back, and every failure into
``CallFailed``. Decides nothing: no retries, no second member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, cast

from outlive.drivers.etcd.library import import_rpc
from outlive.drivers.etcd.operations import (
    Answer,
    Condition,
    CreatedAt,
    Delete,
    News,
    Operation,
    Put,
    Read,
    Stored,
    Term,
)
from outlive.drivers.etcd.settings import EtcdSettings
from outlive.drivers.etcd.translate import CallFailed

# The largest folder is that of a key with thousands of waiters, at some 300 bytes each.
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024

# etcd ends connections that are pinged more often than every 5 s (--grpc-keepalive-min-time).
_PING_EVERY_MS = 10_000
_PING_WITHIN_MS = 5_000

# gRPC waits up to two minutes before it tries a dead server again; a lease cannot.
_RECONNECT_FIRST_MS = 100
_RECONNECT_MOST_MS = 1_000

# gRPC serves all event loops of a process from one thread, and tells the end of a cancelled call a
# moment later. A loop that is closed by then breaks the delivery to the others.
_AFTERMATH_S = 0.02


class Status(NamedTuple):
    """What a member says of itself: its version, its size, who leads, and its alarms."""

    version: str
    bytes: int
    has_leader: bool
    alarms: tuple[str, ...]


class Wire:
    """One channel. ``login`` is the token that calls carry, where etcd asks for a user."""

    def __init__(self, settings: EtcdSettings, endpoint: str) -> None:
        self._rpc, self._grpc = import_rpc()
        self.endpoint = endpoint
        self.login: str | None = None
        self._timeout_s = settings.command_timeout_s
        # Whether a call was given up whose end gRPC has not told yet.
        self._loose = False
        self.closed = False
        self._channel = self._open(settings, endpoint)
        rpc = self._rpc
        self._kv = rpc.KVStub(self._channel)
        self._lease = rpc.LeaseStub(self._channel)
        self._auth = rpc.AuthStub(self._channel)
        self._watch = rpc.WatchStub(self._channel)
        self._maintenance = rpc.MaintenanceStub(self._channel)

    def _open(self, settings: EtcdSettings, endpoint: str) -> Any:
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
            ("grpc.keepalive_time_ms", _PING_EVERY_MS),
            ("grpc.keepalive_timeout_ms", _PING_WITHIN_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_FIRST_MS),
            ("grpc.min_reconnect_backoff_ms", int(settings.connect_timeout_s * 1000)),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MOST_MS),
            # Channels to one address would share a connection, and an abandoned one be no use.
            ("grpc.use_local_subchannel_pool", 1),
            # Whether a call may be sent again is decided above, where its meaning is known.
            ("grpc.enable_retries", 0),
            # A proxy is for the web; it cannot carry this.
            ("grpc.enable_http_proxy", 0),
        ]
        tls = settings.tls
        if tls is None:
            return self._grpc.aio.insecure_channel(endpoint, options=options)
        if tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        credentials = self._grpc.ssl_channel_credentials(
            root_certificates=tls.ca, private_key=tls.key, certificate_chain=tls.cert
        )
        return self._grpc.aio.secure_channel(endpoint, credentials, options=options)

    async def connect(self, timeout_s: float) -> None:
        """Return once the member answers.

        Raises:
            CallFailed: It does not, in time. Nothing was sent.
        """
        states = self._grpc.ChannelConnectivity
        try:
            async with asyncio.timeout(timeout_s):
                state = self._channel.get_state(try_to_connect=True)
                while state is not states.READY:
                    if state is states.TRANSIENT_FAILURE:
                        await self._say_why()
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            self._loose = True
            raise CallFailed(
                "UNAVAILABLE",
                f"no connection to {self.endpoint} within {timeout_s:g} s",
                sent=False,
            ) from None

    async def _say_why(self) -> None:
        """Raise what gRPC knows of a failed connection, which only a call is told."""
        try:
            await self._call(self._maintenance.Status, self._rpc.StatusRequest(), login=False)
        except CallFailed as failure:
            raise CallFailed(failure.code, failure.words, sent=False) from failure

    async def close(self, grace_s: float | None = None) -> None:
        """End the channel; calls under way get ``grace_s`` to finish, and no others begin."""
        self.closed = True
        await self._channel.close(grace_s)
        if self._loose:
            await asyncio.sleep(_AFTERMATH_S)

    # -- calls ----------------------------------------------------------------------------------

    async def authenticate(self, user: str, password: str) -> str | None:
        """Log in and return the token, or ``None`` where etcd asks for no user."""
        request = self._rpc.AuthenticateRequest(name=user, password=password)
        try:
            answer = await self._call(self._auth.Authenticate, request, login=False)
        except CallFailed as failure:
            if "authentication is not enabled" in failure.words:
                return None
            raise
        return answer.token

    async def transact(
        self,
        conditions: Sequence[Condition],
        then: Sequence[Operation],
        otherwise: Sequence[Operation] = (),
    ) -> Answer:
        """Run ``then`` if all conditions hold, else ``otherwise``: one atomic step that may write.

        What only reads is not for here but for `read`: a transaction without a write is carried out
        under its caller's context, and etcd before 3.5.5 dies of one whose caller has gone.
        """
        assert any(not isinstance(operation, Read) for operation in (*then, *otherwise))
        request = self._rpc.TxnRequest(
            compare=[self._condition(condition) for condition in conditions],
            success=[_operation(operation) for operation in then],
            failure=[_operation(operation) for operation in otherwise],
        )
        answer = await self._call(self._kv.Txn, request)
        shown = [_shown(response) for response in answer.responses]
        return Answer(answer.succeeded, answer.header.revision, shown)

    async def read(self, reads: Sequence[Read]) -> Answer:
        """Show what ``reads`` name, all of it as it was at one revision: that of the first."""
        shown: list[list[Stored]] = []
        revision = 0
        for key, end in reads:
            request = self._rpc.RangeRequest(key=key, range_end=end, revision=revision)
            answer = await self._call(self._kv.Range, request)
            shown.append([_stored(item) for item in answer.kvs])
            revision = revision or answer.header.revision
        return Answer(succeeded=True, revision=revision, shown=shown)

    async def page(self, start: bytes, end: bytes, *, limit: int, revision: int) -> Answer:
        """At most ``limit`` keys of a range, as they were at ``revision`` (0: now).

        The answer succeeds when there is nothing beyond the page.
        """
        request = self._rpc.RangeRequest(key=start, range_end=end, limit=limit, revision=revision)
        answer = await self._call(self._kv.Range, request)
        stored = [_stored(item) for item in answer.kvs]
        return Answer(not answer.more, revision or answer.header.revision, [stored])

    async def grant(self, ttl_s: int) -> Term:
        """A new lease of etcd; the server may give it a longer ttl."""
        answer = await self._call(self._lease.LeaseGrant, self._rpc.LeaseGrantRequest(TTL=ttl_s))
        return Term(answer.ID, answer.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease of etcd, and with it whatever hangs on it."""
        await self._call(self._lease.LeaseRevoke, self._rpc.LeaseRevokeRequest(ID=lease))

    async def seconds_left(self, lease: int) -> int:
        """Whole seconds that a lease of etcd still has, rounded down; below 0 when it is gone."""
        request = self._rpc.LeaseTimeToLiveRequest(ID=lease)
        answer = await self._call(self._lease.LeaseTimeToLive, request)
        return answer.TTL

    async def status(self) -> Status:
        """What the member says of itself."""
        answer = await self._call(self._maintenance.Status, self._rpc.StatusRequest())
        alarms = await self._call(self._maintenance.Alarm, self._rpc.AlarmRequest())
        names = {self._rpc.NOSPACE: "NOSPACE", self._rpc.CORRUPT: "CORRUPT"}
        return Status(
            answer.version,
            answer.dbSize,
            bool(answer.leader),
            tuple(sorted({names.get(alarm.alarm, "unknown") for alarm in alarms.alarms})),
        )

    async def _call(self, method: Any, request: Any, *, login: bool = True) -> Any:
        metadata = self._metadata if login else None
        try:
            return await _told(
                self._grpc, method(request, timeout=self._timeout_s, metadata=metadata)
            )
        except asyncio.CancelledError:
            self._loose = True
            raise

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...] | None:
        return None if self.login is None else (("token", self.login),)

    # -- streams --------------------------------------------------------------------------------

    def renewals(self) -> Renewals:
        """A stream that keeps leases of etcd alive."""
        self._loose = True
        return Renewals(self._rpc, self._grpc, self._lease.LeaseKeepAlive(metadata=self._metadata))

    def watch(self) -> Watch:
        """A stream of changes. It ends when the member loses its leader, and so goes deaf."""
        self._loose = True
        metadata = (*(self._metadata or ()), ("hasleader", "true"))
        return Watch(self._rpc, self._grpc, self._watch.Watch(metadata=metadata))

    # -- messages -------------------------------------------------------------------------------

    def _condition(self, condition: Condition) -> dict[str, Any]:
        # Plain dictionaries become messages inside the library, three times as fast as here.
        compare = self._rpc.Compare
        if isinstance(condition, CreatedAt):
            return {
                "result": compare.EQUAL,
                "target": compare.CREATE,
                "key": condition.key,
                "create_revision": condition.revision,
            }
        return {
            "result": compare.LESS,
            "target": compare.MOD,
            "key": condition.start,
            "range_end": condition.end,
            "mod_revision": condition.revision + 1,
        }


def _operation(operation: Operation) -> dict[str, Any]:
    if isinstance(operation, Put):
        key, value, lease = operation
        return {"request_put": {"key": key, "value": value, "lease": lease}}
    key, end = operation
    if isinstance(operation, Delete):
        return {"request_delete_range": {"key": key, "range_end": end, "prev_kv": True}}
    return {"request_range": {"key": key, "range_end": end}}


def add_condition(tx: object, condition: CreatedAt) -> bool:
    """Add ``condition`` to a transaction of the user's; false if it is of no kind known here.

    A ``TxnRequest`` of aetcd's stubs, or the list that its client takes as ``compare``.
    """
    rpc, _ = import_rpc()
    from aetcd import transactions  # pyright: ignore[reportMissingTypeStubs]

    compare: Any = transactions.Create(condition.key) == condition.revision
    if isinstance(tx, rpc.TxnRequest):
        cast("Any", tx).compare.append(compare.build_message())
        return True
    if isinstance(tx, list):
        cast("list[Any]", tx).append(compare)
        return True
    return False


class Renewals:
    """A stream of keep-alives: answers come in any order and name their lease."""

    def __init__(self, rpc: Any, grpc: Any, call: Any) -> None:
        self._rpc = rpc
        self._grpc = grpc
        self._call = call

    async def send(self, lease: int) -> None:
        """Ask for a lease of etcd to be kept alive."""
        await _told(self._grpc, self._call.write(self._rpc.LeaseKeepAliveRequest(ID=lease)))

    async def next(self) -> Term:
        """The next answer; its ttl is 0 for a lease that is gone."""
        answer = await _told(self._grpc, self._call.read())
        if answer is self._grpc.aio.EOF:
            raise CallFailed("UNAVAILABLE", "the stream of renewals ended")
        return Term(answer.ID, answer.TTL)

    def close(self) -> None:
        """End the stream."""
        self._call.cancel()


class Watch:
    """A stream of changes in ranges."""

    def __init__(self, rpc: Any, grpc: Any, call: Any) -> None:
        self._rpc = rpc
        self._grpc = grpc
        self._call = call

    async def add(self, start: bytes, end: bytes, *, puts: bool, deletes: bool) -> None:
        """Ask for the changes of one more range, from now on."""
        rpc = self._rpc
        unwanted = [
            *([] if puts else [rpc.WatchCreateRequest.NOPUT]),
            *([] if deletes else [rpc.WatchCreateRequest.NODELETE]),
        ]
        create = rpc.WatchCreateRequest(key=start, range_end=end, filters=unwanted)
        await _told(self._grpc, self._call.write(rpc.WatchRequest(create_request=create)))

    async def next(self) -> News:
        """The next message."""
        answer = await _told(self._grpc, self._call.read())
        if answer is self._grpc.aio.EOF:
            raise CallFailed("UNAVAILABLE", "the watch ended")
        put: list[Stored] = []
        deleted: list[Stored] = []
        for event in answer.events:
            (deleted if event.type == event.DELETE else put).append(_stored(event.kv))
        return News(answer.created, answer.canceled, put, deleted)

    def close(self) -> None:
        """End the stream."""
        self._call.cancel()


async def _told(grpc: Any, call: Awaitable[Any]) -> Any:
    """The answer of ``call``; any failure as ``CallFailed``."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise CallFailed(error.code().name, error.details() or "") from error
    except (grpc.aio.UsageError, grpc.aio.InternalError) as error:
        # The channel was closed under the call.
        raise CallFailed("CANCELLED", type(error).__name__) from error
    except asyncio.InvalidStateError as error:
        # The stream had ended before anything could be written to it.
        raise CallFailed("UNAVAILABLE", "the stream had ended", sent=False) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # gRPC says the same when the channel is closed while a call is on its way.
        raise CallFailed("CANCELLED", "the connection was closed") from None


def _stored(item: Any) -> Stored:
    return Stored(item.key, item.value, item.create_revision, item.mod_revision, item.lease)


def _shown(response: Any) -> list[Stored]:
    kind = response.WhichOneof("response")
    if kind == "response_range":
        return [_stored(item) for item in response.response_range.kvs]
    if kind == "response_delete_range":
        return [_stored(item) for item in response.response_delete_range.prev_kvs]
    return []
