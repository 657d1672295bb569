"""The scripts that run inside the server, put together from files.

Owns which parts a script has, and the numbers that it shares with ``model``. A script is known to
the server by the digest of its text.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files

from outlive.model.job import ATTEMPTS_KEPT_MAX, SUSPECT_LOSSES
from outlive.model.lease import HISTORY_MAX
from outlive.model.turns import PASS_AFTER_US, RING_DEPTH

# A job that says nothing else has these. They never change: jobs that are stored mean them.
USUAL_LOSSES = 10
USUAL_RETENTION_US = 86_400_000_000

_NUMBERS = (
    f"local HISTORY_MAX, PASS_AFTER, RING_DEPTH = {HISTORY_MAX}, {PASS_AFTER_US}, {RING_DEPTH}\n"
    f"local ATTEMPTS_KEPT, USUAL_LOSSES = {ATTEMPTS_KEPT_MAX}, {USUAL_LOSSES}\n"
    f"local SUSPECT_LOSSES = {SUSPECT_LOSSES}\n"
    f"local USUAL_RETENTION = {USUAL_RETENTION_US}\n"
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
    "host_open": ("clock", "hosts"),
    "host_renew": ("clock", "hosts"),
    "host_close": ("clock", "hosts"),
    "host_reap": ("clock", "hosts"),
    "host_get": ("clock", "hosts"),
    "host_list": ("clock", "hosts"),
    "job_enqueue": ("clock", "jobs"),
    "job_claim": ("clock", "jobs"),
    "job_complete": ("clock", "jobs"),
    "job_fail": ("clock", "jobs"),
    "job_release": ("clock", "jobs"),
    "job_extend": ("clock", "jobs"),
    "job_reclaim": ("clock", "jobs"),
    "job_cancel": ("clock", "jobs"),
    "job_retry": ("clock", "jobs"),
    "job_purge": ("clock", "jobs"),
    "job_tend": ("clock", "jobs"),
    "job_put_queue": ("clock", "jobs"),
    "job_get": ("clock", "jobs", "job_read"),
    "job_list": ("clock", "jobs", "job_read"),
    "job_queues": ("clock", "jobs"),
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
    """Those of leases, and the one that every connection begins with."""

    acquire: Script
    renew: Script
    release: Script
    leave: Script
    break_lease: Script
    get: Script
    list: Script
    adopt: Script
    tokens: Script


@dataclass(frozen=True, slots=True, kw_only=True)
class HostScripts:
    """Those of sessions."""

    open: Script
    renew: Script
    close: Script
    reap: Script
    get: Script
    list: Script


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScripts:
    """Those of jobs."""

    enqueue: Script
    claim: Script
    complete: Script
    fail: Script
    release: Script
    extend: Script
    reclaim: Script
    cancel: Script
    retry: Script
    purge: Script
    tend: Script
    put_queue: Script
    get: Script
    list: Script
    queues: Script


@functools.cache
def load_scripts() -> Scripts:
    """Read the scripts of leases, once in a process."""
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


@functools.cache
def load_host_scripts() -> HostScripts:
    """Read the scripts of sessions, once in a process."""
    return HostScripts(
        open=_script("host_open"),
        renew=_script("host_renew"),
        close=_script("host_close"),
        reap=_script("host_reap"),
        get=_script("host_get", writes=False),
        list=_script("host_list", writes=False),
    )


@functools.cache
def load_job_scripts() -> JobScripts:
    """Read the scripts of jobs, once in a process."""
    return JobScripts(
        enqueue=_script("job_enqueue"),
        claim=_script("job_claim"),
        complete=_script("job_complete"),
        fail=_script("job_fail"),
        release=_script("job_release"),
        extend=_script("job_extend"),
        reclaim=_script("job_reclaim"),
        cancel=_script("job_cancel"),
        retry=_script("job_retry"),
        purge=_script("job_purge"),
        tend=_script("job_tend"),
        put_queue=_script("job_put_queue"),
        get=_script("job_get", writes=False),
        list=_script("job_list", writes=False),
        queues=_script("job_queues", writes=False),
    )


def _script(name: str, *, writes: bool = True) -> Script:
    folder = files("outlive.drivers.redis") / "lua"
    parts = [(folder / f"{part}.lua").read_text("utf-8") for part in (*_PARTS[name], name)]
    text = _NUMBERS + "\n".join(parts)
    # The digest is how Redis names a script; nothing is proven by it.
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)
