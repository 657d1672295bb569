"""Doorbells: one datagram socket per listening host, in a directory beside the file.

Owns the sockets and what travels over them. A bell is a hint: it may be lost, and whatever arrives
is checked, because any process of the same user may send. It must never block, and never raise
because a listener is gone.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlive.drivers.sqlite.backlog import Backlog, Ring
from outlive.drivers.sqlite.files import DIRECTORY_MODE, refuse_links
from outlive.errors import ConfigurationError
from outlive.names import HostId
from outlive.ports.wakeups import Listener, Wakeup

# A topic is at most a key and a few letters; this many fit into one datagram with room to spare.
_BELLS_MAX = 64
_DATAGRAM_MAX = 64 * 1024

# Datagrams taken in one turn of the loop, so that a flood cannot keep it from other work.
_TAKE_MAX = 64

# Listing the directory rings every host of the machine; more than this is not one machine's work.
_HOSTS_MAX = 1024

# How often the fallback asks whether the file changed, and how many places it then wakes.
_POLL_S = 0.05
_POLL_WAITERS_MAX = 100

# The kernel's limit for a socket's path, for systems without /proc.
_PATH_MAX = 100


class _Datagram(msgspec.Struct):
    """What travels: the namespace, and (topic, waiter, position) for each bell."""

    n: str
    b: list[Ring]


class Poll(NamedTuple):
    """What is asked of the file.

    Its stamp, which asks the file system alone, and is ``None`` where that cannot tell whether
    anything was written; its version; this host's places in the queues of leases; the topics of
    jobs and instances that this host waits for and that have some, with the seconds until more
    comes due.
    """

    stamp: Callable[[], object | None]
    version: Callable[[], int]
    places: Callable[[str, int], Sequence[tuple[str, int]]]
    work: Callable[[], tuple[Sequence[str], float | None]]


class SqliteWakeups:
    """The doorbells of one namespace, rung and heard by one host."""

    def __init__(
        self,
        directory: Path,
        *,
        namespace: str,
        host: HostId,
        poll: Poll,
        logger: logging.Logger,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._namespace = namespace
        self._host = host
        self._asking = poll
        self._logger = logger
        self._listeners: list[Listener] = []
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(_Datagram).decode
        self._folder: int | None = None
        self._sender: socket.socket | None = None
        self._bell: socket.socket | None = None
        self.listening = False
        self._poller: asyncio.TimerHandle | None = None
        self._version: int | None = None
        self._stamp: object | None = None
        self._changed = True
        # By the loop's clock: until when somebody waits, and when the next comes due.
        self._watched_until = 0.0
        self._due_at: float | None = None
        self._backlog = Backlog(self._loop, self._room_for, _BELLS_MAX)
        self._pid = os.getpid()
        self._closed = False

    @property
    def deaf(self) -> bool:
        """Whether no doorbell could be hung up here."""
        return self._bell is None

    def rings(self) -> bool:
        """Whether a datagram reaches this host's own bell; it carries nothing."""
        if self._sender is None or self._bell is None:
            return False
        try:
            data = self._encode(_Datagram(self._namespace, []))
            self._sender.sendto(data, self._address(self._name(self._host)))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def open(self, *, listen: bool) -> None:
        """Hang up the bell of this host, or only prepare to ring those of others."""
        self.listening = listen
        if not hasattr(socket, "AF_UNIX"):
            return
        try:
            self._directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            refuse_links(self._directory)
            if self._directory.lstat().st_uid == os.getuid():
                self._directory.chmod(DIRECTORY_MODE)
            # Names below an open directory stay short, however long the path to it is.
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            self._folder = os.open(self._directory, flags)
            self._sender = _datagram_socket()
            if listen:
                self._bell = self._hang_up(self._name(self._host))
                self._loop.add_reader(self._bell.fileno(), self._heard)
        except (OSError, ConfigurationError, NotImplementedError) as error:
            self._bell = None
            self._logger.warning(
                "no local notifications in %s (%s): waiters poll the file instead",
                self._directory,
                error,
            )

    def close(self) -> None:
        """Take the bell down. Repeatable."""
        if self._closed:
            return
        self._closed = True
        own = os.getpid() == self._pid
        if own:
            self._backlog.close()
        if self._poller is not None:
            self._poller.cancel()
        if self._bell is not None:
            if own:
                self._loop.remove_reader(self._bell.fileno())
                self._remove(self._name(self._host))
            self._bell.close()
        if self._sender is not None:
            self._sender.close()
        if self._folder is not None:
            os.close(self._folder)
        self._listeners.clear()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint; returns the function that ends it."""
        # A wrapper of its own: the same function may subscribe twice.
        entry: Listener = lambda wakeup: listener(wakeup)  # noqa: E731, PLW0108
        self._listeners.append(entry)
        if self.listening and self.deaf and self._poller is None:
            self._poll()

        def unsubscribe() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return unsubscribe

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint to one host, or to all listening hosts of the namespace."""
        self.send([wakeup], host)

    def send(self, wakeups: Sequence[Wakeup], host: HostId | None) -> None:
        """Send hints in as few datagrams as they fit in. Callable from any thread."""
        if self._closed or os.getpid() != self._pid:
            return
        if self._sender is None or (self.deaf and host == self._host):
            # Nobody can be rung, but whoever listens in this very driver can be told.
            self._loop.call_soon_threadsafe(self._deliver, wakeups)
            if self._sender is None:
                return
        names = self._everybody() if host is None else [self._name(host)]
        for start in range(0, len(wakeups), _BELLS_MAX):
            rings = [(w.topic, w.waiter, w.position) for w in wakeups[start : start + _BELLS_MAX]]
            data = self._encode(_Datagram(self._namespace, rings))
            for name in names:
                if not self._send_one(data, name):
                    self._loop.call_soon_threadsafe(self._keep, rings, name)

    def _keep(self, rings: Sequence[Ring], name: str) -> None:
        if not self._closed:
            self._backlog.add(rings, name)

    def _room_for(self, rings: Sequence[Ring], name: str) -> bool:
        return self._send_one(self._encode(_Datagram(self._namespace, list(rings))), name)

    def _send_one(self, data: bytes, name: str) -> bool:
        """Whether it need not be sent again: only a bell that is full has use for that."""
        assert self._sender is not None
        try:
            self._sender.sendto(data, self._address(name))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                # Its host died without taking it down.
                self._remove(name)
            elif error.errno != errno.ENOENT:
                self._logger.debug("could not notify socket %s: %s", name, error)
        return True

    def _name(self, host: str) -> str:
        return hashlib.sha256(f"{self._namespace}\0{host}".encode()).hexdigest()[:24]

    def _address(self, name: str) -> str:
        short = f"/proc/self/fd/{self._folder}/{name}"
        if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
            return short
        path = str(self._directory / name)
        if len(os.fsencode(path)) > _PATH_MAX:
            raise OSError(errno.ENAMETOOLONG, "the path is too long for a socket")
        return path

    def _hang_up(self, name: str) -> socket.socket:
        bell = _datagram_socket()
        try:
            bell.bind(self._address(name))
            os.chmod(name, 0o600, dir_fd=self._folder)
        except BaseException:
            bell.close()
            raise
        return bell

    def _everybody(self) -> list[str]:
        """The bells that hang in the directory now."""
        assert self._folder is not None
        names: list[str] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    names.append(entry.name)
                if len(names) >= _HOSTS_MAX:
                    break
        return names

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except OSError:
            # Somebody else was first.
            return

    def _heard(self) -> None:
        if self._bell is None:
            return
        for _ in range(_TAKE_MAX):
            try:
                data = self._bell.recv(_DATAGRAM_MAX)
            except OSError:
                return
            try:
                datagram = self._decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            if datagram.n == self._namespace:
                self._deliver([Wakeup(*bell) for bell in datagram.b[:_BELLS_MAX]])

    def _deliver(self, wakeups: Sequence[Wakeup]) -> None:
        for wakeup in wakeups:
            for listener in tuple(self._listeners):
                try:
                    listener(wakeup)
                except Exception:
                    self._logger.exception("a notification listener failed")

    def watch(self, seconds: float) -> None:
        """Look for jobs and instances for so long, doorbell or not.

        Whoever adds some in a transaction of the user's rings nobody, and nobody rings when one
        comes due.
        """
        self._watched_until = max(self._watched_until, self._loop.time() + seconds)
        self._version = None
        if self.listening and self._poller is None and not self._closed:
            self._poller = self._loop.call_later(_POLL_S, self._poll)

    def _poll(self) -> None:
        """While somebody needs it: look whether the file changed, or something has come due."""
        self._poller = None
        now = self._loop.time()
        watching = now < self._watched_until
        if self._closed or not self._listeners or not (self.deaf or watching):
            return
        try:
            due = self._due_at is not None and now >= self._due_at
            if self._written() or self._version is None or due:
                version = self._asking.version()
                if version != self._version or due:
                    self._version = version
                    self._look(now, watching=watching)
        except Exception:
            # A poll that fails is tried again; losing one costs only time.
            self._logger.debug("could not poll the file for changes", exc_info=True)
        self._poller = self._loop.call_later(_POLL_S, self._poll)

    def _written(self) -> bool:
        """Whether the file may have been written since this was last asked but one.

        A write within the same tick of the file system's clock leaves the same stamp: a change is
        therefore told twice.
        """
        before, self._stamp = self._stamp, self._asking.stamp()
        changed = self._stamp is None or before != self._stamp
        told, self._changed = self._changed, changed
        return changed or told

    def _look(self, now: float, *, watching: bool) -> None:
        if self.deaf:
            places = self._asking.places(self._host, _POLL_WAITERS_MAX)
            self._deliver([Wakeup(f"lease/{key}", seq) for key, seq in places])
        if watching:
            topics, due_s = self._asking.work()
            self._due_at = None if due_s is None else now + due_s
            self._deliver([Wakeup(topic) for topic in topics])


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
