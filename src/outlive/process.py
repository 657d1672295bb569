"""Which process this is, without asking the kernel each time.

Owns one number. What was opened before a fork must not be used after it, and that is checked on
hot paths, where a system call would be felt.
"""

from __future__ import annotations

import os


class _Process:
    """The process id, renewed in every child. The one thing here that changes, and only by fork."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Windows has no fork, and is refused with a clear word by connect, not by this import.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.pid = os.getpid()


current = _Process()
