"""One handle under strain: thousands of renewals, a fork, and a disk without space."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.process.stores import SqliteStore, create_schema, newest_token

pytestmark = pytest.mark.process

TTL_S = 1.0
RENEWALS = 10_000
# One renewal in about twelve milliseconds.
RENEWALS_BY_ITSELF = 200
# No machine is so slow that it renews nothing for so long.
LONG_TTL_S = 60.0


@pytest.mark.timeout(300)
def test_thousands_of_renewals_keep_the_token_and_never_exceed_the_ttl(store, cast):
    by_hand = cast.start("renewer", store.url, "by_hand", LONG_TTL_S, RENEWALS)
    by_itself = cast.start("renewer", store.url, "by_itself", LONG_TTL_S, RENEWALS_BY_ITSELF)
    seen = by_itself.wait("renewed", limit_s=240)
    assert seen["wrong"] == []
    assert seen["looks"] >= RENEWALS_BY_ITSELF
    assert seen["version"] == seen["renewals"] + 1
    assert seen["token"] == 1
    assert 0 < seen["longest_s"] <= LONG_TTL_S
    seen = by_hand.wait("renewed", limit_s=240)
    assert seen["wrong"] == []
    assert seen["looks"] == seen["renewals"] == RENEWALS
    assert seen["version"] == seen["stored"]["version"] == RENEWALS + 1
    assert seen["token"] == seen["stored"]["token"] == 1
    assert 0 < seen["longest_s"] <= LONG_TTL_S
    assert 0 < seen["stored"]["left_s"] <= LONG_TTL_S
    for renewer in (by_itself, by_hand):
        assert renewer.join() == 0, renewer


def test_child_of_a_fork_owns_nothing_and_harms_nothing(store, cast):
    owner, other = cast.owners(store.url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    child = owner.ask("fork", key="k")["child"]
    assert child["is_held"] is False
    assert child["reason"] == "forked"
    assert "token" not in child
    assert child["acquire"] == "UsageError"
    assert child["get"] == "UsageError"
    # The parent goes on: renewals by its keeper, and by its own connection.
    before = owner.ask("renew", key="k")
    assert other.provoke("acquire", key="k", timeout=1.5 * TTL_S)["error"] == "AcquireTimeout"
    after = owner.ask("renew", key="k")
    assert after["is_held"]
    assert after["token"] == granted["token"] == newest_token(store, "k")
    assert after["renewals"] >= before["renewals"] + 3
    assert owner.all("lost") == []
    owner.ask("release", key="k")
    assert other.ask("acquire", key="k", timeout=5)["token"] == granted["token"] + 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "outlive-test", folder],
        capture_output=True,
        check=False,
        timeout=10,
    )
    if made.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.decode(errors='replace').strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True, timeout=10)


def fill(folder: Path) -> Path:
    """Take every free byte; gives the file to remove."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(b"\0" * size) == size:
                    continue
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0
    return filler


def test_full_disk_refuses_with_advice_and_recovers_without_restart(small_disk, cast):
    store = SqliteStore(small_disk / "store.db")
    create_schema(store.url)
    owner, other = cast.owners(store.url, "owner", "other")
    kept = owner.ask("acquire", key="kept", ttl=30)
    brief = owner.ask("acquire", key="brief", ttl=TTL_S)
    filler = fill(small_disk)
    # A page or two may still fit into the log; after that nothing does.
    for number in range(20):
        other.tell("try_acquire", key=f"new-{number}")
        answer = other.wait("did", do="try_acquire")
        if "error" in answer:
            break
    assert answer["error"] == "StoreUnavailable", answer
    assert "full" in answer["text"]
    assert "free some space" in answer["text"]
    assert owner.provoke("renew", key="kept")["error"] == "StoreUnavailable"
    # What cannot be renewed is lost by its own deadline, and not before; the rest stays.
    lost = owner.wait("lost", key="brief")
    assert lost["reason"] == "expired"
    assert lost["at"] >= brief["at"] + brief["remaining_s"] - 0.05
    assert owner.ask("look", key="kept")["is_held"]
    assert store.ask("SELECT token FROM outlive_lease WHERE key = 'kept'") == [(kept["token"],)]
    filler.unlink()
    assert owner.ask("renew", key="kept")["is_held"]
    assert owner.ask("acquire", key="brief", ttl=TTL_S, timeout=5)["token"] == brief["token"] + 1
    assert other.provoke("acquire", key="kept", timeout=0)["error"] == "LeaseHeld"
    assert other.ask("try_acquire", key="after")["granted"]
    assert owner.ask("get", key="kept")["token"] == kept["token"]
    for actor in (owner, other):
        assert actor.join() == 0, actor
    assert store.ask("PRAGMA integrity_check") == [("ok",)]


def test_file_that_may_not_grow_refuses_and_recovers_without_restart(sqlite_store, cast):
    owner, other = cast.owners(sqlite_store.url, "owner", "other")
    kept = owner.ask("acquire", key="kept", ttl=30)
    log = Path(f"{sqlite_store.path}-wal")
    pids = [actor.process.pid for actor in (owner, other)]
    whole = resource.prlimit(pids[0], resource.RLIMIT_FSIZE)
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, whole[1]))
    # The system cuts the write short: an I/O error and not a full disk, perhaps inside COMMIT.
    error = other.provoke("try_acquire", key="new")
    assert error["error"] in {"StoreUnavailable", "OutcomeUnknown"}, error
    assert owner.provoke("renew", key="kept")["error"] in {"StoreUnavailable", "OutcomeUnknown"}
    assert owner.ask("look", key="kept")["is_held"]
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)
    assert other.ask("acquire", key="new", timeout=10)["is_held"]
    assert other.provoke("acquire", key="kept", timeout=0)["error"] == "LeaseHeld"
    assert owner.ask("renew", key="kept")["token"] == kept["token"]
    assert owner.all("lost") == []
    for actor in (owner, other):
        assert actor.join() == 0, actor
    assert sqlite_store.ask("PRAGMA integrity_check") == [("ok",)]
