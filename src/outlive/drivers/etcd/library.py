"""Imports gRPC and the messages of etcd, on first use, and so that processes can still be started.

Owns the one setting of gRPC that is read while it is imported, and at no other time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from outlive.errors import ConfigurationError

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"


def import_rpc() -> tuple[Any, Any]:
    """The messages and stubs of etcd, and gRPC.

    Raises:
        ConfigurationError: They are not installed.
    """
    try:
        with _without_fork_handlers():
            import grpc  # pyright: ignore[reportMissingTypeStubs]
        from aetcd import rpc  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise ConfigurationError(
            "the etcd driver needs aetcd: pip install 'outlive[etcd]'"
        ) from None
    return rpc, grpc


@contextmanager
def _without_fork_handlers() -> Generator[None, None, None]:
    """Let gRPC leave children alone, unless the user or an earlier import decided otherwise.

    Its handlers restart its threads in the child of a fork, whose files ``subprocess`` closes
    before it executes the program: with a busy channel, a child often dies of that before it has
    begun. The driver does not work in a child anyway. The variable is gone again afterwards, so
    that programs started from here decide for themselves.
    """
    # Empty is undecided, as a variable that a container passes on without having it.
    before = os.environ.get(_FORK_SUPPORT)
    if "grpc" in sys.modules or before:
        yield
        return
    os.environ[_FORK_SUPPORT] = "0"
    try:
        yield
    finally:
        os.environ.pop(_FORK_SUPPORT, None)
        if before is not None:
            os.environ[_FORK_SUPPORT] = before
