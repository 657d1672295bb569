"""The child of ``lease run``: started before any thread, let go by a word, stopped as a group.

Two processes are forked while this one is still single-threaded. The *launcher* leads a session of
its own and waits; told to go, it becomes the command. The *guardian* only watches a pipe: when it
closes because this process died, or when the deadline last written to it passes because this
process was stopped, it kills the launcher's process group. A command therefore outlives neither
its lease nor us, as long as its processes stay in their group.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from outlive.cli.errors import NO_COMMAND, NOT_EXECUTABLE, SIGNALLED
from outlive.clock import Clock

_DEADLINE = struct.Struct("d")

# The words to the launcher are a key, a token and an owner; a page holds them many times over.
_WORDS_MAX = 64 * 1024

# How often the group is looked at while it ends; people do not notice twenty milliseconds.
_LOOK_S = 0.02

# SIGKILL needs no more than a moment. What is left then is a zombie whose new parent does not
# reap, as in a container without an init; it runs nothing.
_GONE_PATIENCE_S = 2.0


# Descriptors of a process that has just started are far below this.
_FILES_MAX = 65_536


class Child:
    """A command that waits for its word, and its guardian."""

    def __init__(self, arguments: Sequence[str], clock: Clock) -> None:
        """Fork. Must be called while the process has one thread."""
        self._clock, self._program = clock, arguments[0]
        words_in, self._words = os.pipe()
        self._failed, failed_out = os.pipe()
        self.pid = _fork(lambda: _launch(arguments, words_in, self._words, failed_out))
        os.close(words_in)
        os.close(failed_out)
        guard_in, self._guard = os.pipe()
        self._guardian = _fork(lambda: _guard(self.pid, guard_in, clock))
        os.close(guard_in)
        self._reaped = False

    def signal(self, number: int) -> None:
        """Send a signal to the whole group of the command."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def extend(self, kill_at: float) -> None:
        """Let the guardian wait until ``kill_at``, by the monotonic clock."""
        # A guardian that somebody killed protects no more; the command goes on as before.
        with suppress(BrokenPipeError):
            os.write(self._guard, _DEADLINE.pack(kill_at))

    async def go(self, variables: Mapping[str, str]) -> None:
        """Become the command, with ``variables`` added to its environment.

        Raises:
            OSError: It could not be started.
        """
        os.write(self._words, json.dumps(dict(variables)).encode())
        os.close(self._words)
        self._words = -1
        loop = asyncio.get_running_loop()
        said = await loop.run_in_executor(None, os.read, self._failed, 32)
        if said:
            raise OSError(int(said), os.strerror(int(said)), self._program)

    async def wait(self) -> int:
        """Wait until the command itself has ended; the rest of its group may live on.

        Returns its exit code, 128 + n if signal n ended it.
        """
        loop = asyncio.get_running_loop()
        _, status = await loop.run_in_executor(None, os.waitpid, self.pid, 0)
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else SIGNALLED - code

    async def stop(self, grace_s: float) -> None:
        """End the whole group: SIGTERM, and SIGKILL to what is left after ``grace_s``."""
        until = self._clock.monotonic() + grace_s
        self.signal(signal.SIGTERM)
        # A stopped process hears SIGTERM only when it continues.
        self.signal(signal.SIGCONT)
        while self.is_alive and self._clock.monotonic() < until:
            await self._clock.sleep(_LOOK_S)
        self.signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until nothing of the group is left. The command itself must have been waited for."""
        until = self._clock.monotonic() + _GONE_PATIENCE_S
        while self.is_alive and self._clock.monotonic() < until:
            await self._clock.sleep(_LOOK_S)

    @property
    def is_alive(self) -> bool:
        """Whether anything of the group is left, the dead but not yet reaped included."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # macOS says so of a group of zombies.
            return not self._reaped
        return True

    def close(self) -> None:
        """Send launcher and guardian home. Kills what was never waited for. Repeatable."""
        if self._words >= 0:
            # A launcher that hears nothing but the end of the pipe goes away by itself.
            os.close(self._words)
            self._words = -1
        elif not self._reaped:
            self.signal(signal.SIGKILL)
        if not self._reaped:
            self._reaped = True
            # The thread that waits for the command may have been first.
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        if self._guard >= 0:
            with suppress(BrokenPipeError):
                os.write(self._guard, b"done")
            os.close(self._guard)
            os.close(self._failed)
            self._guard = -1
            os.waitpid(self._guardian, 0)


def exit_code_of(error: OSError) -> int:
    """What a shell would say of a command that could not be started."""
    return NO_COMMAND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def _fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    # Neither finally blocks nor buffers of the parent may run in its copy.
    try:
        os.setsid()
        body()
    finally:
        os._exit(NOT_EXECUTABLE)


def _launch(arguments: Sequence[str], words: int, parents: int, failed: int) -> NoReturn:
    os.close(parents)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    text = b""
    while len(text) < _WORDS_MAX and (more := os.read(words, 4096)):
        text += more
    if not text:
        os._exit(0)
    # Python ignores these two for itself; a command expects them as they are by default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(arguments[0], [*arguments], {**os.environ, **json.loads(text)})  # noqa: S606
    except OSError as error:
        os.write(failed, str(error.errno or 0).encode())
        os._exit(exit_code_of(error))


def _guard(group: int, pipe: int, clock: Clock) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever reads our output waits for its end, which must not depend on the guardian; and the
    # parent's ends of the pipes must have no second holder, or their closing would not be seen.
    kept = os.dup2(pipe, 3) if pipe != 3 else pipe  # noqa: PLR2004
    os.closerange(0, kept)
    os.closerange(kept + 1, _FILES_MAX)
    kill_at: float | None = None
    while True:
        left_s = None if kill_at is None else max(0.0, kill_at - clock.monotonic())
        # A timer stops while a machine sleeps and the clock does not: look again every second.
        ready, _, _ = select.select([kept], [], [], None if left_s is None else min(left_s, 1.0))
        if ready:
            said = os.read(kept, _DEADLINE.size)
            if said == b"done":
                os._exit(0)
            if len(said) < _DEADLINE.size:
                break
            (kill_at,) = _DEADLINE.unpack(said)
        elif kill_at is not None and clock.monotonic() >= kill_at:
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    os._exit(0)
