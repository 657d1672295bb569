"""The log of what admins do from a command line: who, what, to what.

Owns what is written of an act, and that it is written before the act is done: one that fails, or
whose reply is lost, was tried all the same. A store without tokens keeps no such log. Must never
hold a payload or a secret.
"""

from __future__ import annotations

import os
import pwd
import socket

from outlive.host import Host
from outlive.model.bearer import Act


def actor() -> str:
    """Who runs this command, and where."""
    uid = os.getuid()
    try:
        # Not what the environment says, where everybody may call himself as he likes.
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        # A container may run under a number that has no name.
        user = str(uid)
    return f"{user}@{socket.gethostname()}"


async def record(host: Host, action: str, subject: str) -> None:
    """Keep that ``action`` is about to be done to ``subject``, a checked name, or a filter.

    Raises:
        StoreError: It could not be kept: the act must not be done.
    """
    tokens = host.driver.tokens
    if tokens is not None:
        await tokens.record(Act(actor=actor(), action=action, subject=subject))
