"""The scripts that run inside the server, put together from files.

Owns which parts a script has, and the numbers that it shares with ``model``. A script is known to
the server by the digest of its text.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files

from holdfast.model.lease import HISTORY_MAX
from holdfast.model.turns import PASS_AFTER_US, RING_DEPTH

_NUMBERS = (
    f"local HISTORY_MAX, PASS_AFTER, RING_DEPTH = {HISTORY_MAX}, {PASS_AFTER_US}, {RING_DEPTH}\n"
)

# What each script is made of, besides itself.
_PARTS = {
    "acquire": ("clock", "history", "queue"),
    "renew": ("clock", "history"),
    "release": ("clock", "history", "queue"),
    "leave": ("clock", "queue"),
    "break": ("clock", "history", "queue", "records"),
    "get": ("clock", "records"),
    "list": ("clock", "records"),
    "adopt": ("clock",),
    "tokens": ("clock",),
}


@dataclass(frozen=True, slots=True)
class Script:
    """One script. ``writes`` says whether it may change something."""

    text: str
    digest: str
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripts:
    """All of them."""

    acquire: Script
    renew: Script
    release: Script
    leave: Script
    break_lease: Script
    get: Script
    list: Script
    adopt: Script
    tokens: Script


@functools.cache
def load_scripts() -> Scripts:
    """Read the scripts, once in a process."""
    return Scripts(
        acquire=_script("acquire"),
        renew=_script("renew"),
        release=_script("release"),
        leave=_script("leave"),
        break_lease=_script("break"),
        get=_script("get", writes=False),
        list=_script("list", writes=False),
        adopt=_script("adopt"),
        tokens=_script("tokens"),
    )


def _script(name: str, *, writes: bool = True) -> Script:
    folder = files("holdfast.drivers.redis") / "lua"
    parts = [(folder / f"{part}.lua").read_text("utf-8") for part in (*_PARTS[name], name)]
    text = _NUMBERS + "\n".join(parts)
    # The digest is how Redis names a script; nothing is proven by it.
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)
