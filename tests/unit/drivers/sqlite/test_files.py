"""Paths, modes, file systems and options: what is refused, and what is created."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from outlive.drivers.sqlite import SqliteFactory, connection, files
from outlive.errors import ConfigurationError, StoreUnavailable
from outlive.model.location import parse_url
from tests.unit.drivers.sqlite.support import ask, context, open_store

pytestmark = pytest.mark.whitebox


async def refuse(url: str, **options: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        await SqliteFactory().open(parse_url(url), context(**options))
    return str(caught.value)


def modes_in(directory: Path) -> dict[str, int]:
    return {p.name: stat.S_IMODE(p.stat().st_mode) for p in directory.iterdir()}


async def test_all_files_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        driver = await open_store(tmp_path)
        await driver.leases.acquire(ask("key"))
    finally:
        os.umask(before)
    modes = modes_in(tmp_path)
    await driver.close()
    assert modes.pop("store.db-bells") == 0o700
    assert set(modes) >= {"store.db", "store.db-wal", "store.db-shm", "store.db-hosts"}
    assert set(modes.values()) == {0o600}


async def test_an_umask_that_takes_everything_does_no_harm(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        driver = await open_store(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store.db").stat().st_mode) == 0o600
    assert not driver.wakeups.deaf
    await driver.close()


async def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.locate(parse_url("sqlite:///a.db")).main == tmp_path / "a.db"
    assert files.locate(parse_url("sqlite:///b/../a.db")).main == tmp_path / "a.db"
    assert files.locate(parse_url("sqlite:////x/y.db")).main == Path("/x/y.db")
    assert files.locate(parse_url("sqlite:////x/a%20b%3F.db")).main == Path("/x/a b?.db")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:////tmp/", "memory://"),
        ("sqlite://store.db", "three slashes"),
        ("sqlite:///file:store.db?mode=ro", "unknown option"),
        ("sqlite:///file:store.db", "plain path"),
        ("sqlite:////tmp/a#b.db", "%23"),
        ("sqlite:////no/such/directory/a.db", "does not exist"),
        ("sqlite:////tmp/a.db?busy_timeout=0", "busy_timeout"),
        ("sqlite:////tmp/a.db?busy_timeout=soon", "busy_timeout"),
        ("sqlite:////tmp/a.db?synchronous=off", "synchronous"),
        ("sqlite:////tmp/a.db?allow_network_fs=maybe", "allow_network_fs"),
        ("sqlite:////tmp/a.db?cache=shared", "unknown option"),
    ],
)
async def test_what_cannot_work_is_refused_with_advice(url: str, says: str) -> None:
    assert says in await refuse(url)


async def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    assert "symbolic link" in await refuse(f"sqlite:///{tmp_path}/link.db")
    (tmp_path / "real.db-hosts").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in await refuse(f"sqlite:///{tmp_path}/real.db")


async def test_a_directory_and_a_text_are_no_databases(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert "not a regular file" in await refuse(f"sqlite:///{tmp_path}/folder.db")
    (tmp_path / "text.db").write_text("nothing but words " * 100)
    assert "not an SQLite database" in await refuse(f"sqlite:///{tmp_path}/text.db")


def test_the_file_system_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    here = os.path.realpath(tmp_path)
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 0:9 / {here} rw shared:1 - nfs4 server:/x rw\n"
        f"3 1 0:9 / {here}/with\\040space rw - fuse.sshfs x rw\n"
        f"4 1 0:9 / {here}-other rw - 9p x rw\n"
    )
    space = tmp_path / "with space"
    space.mkdir()
    assert files.filesystem_of(Path("/"), mounts) == "ext4"
    assert files.filesystem_of(tmp_path, mounts) == "nfs4"
    assert files.filesystem_of(space, mounts) == "fuse.sshfs"
    assert files.filesystem_of(tmp_path, tmp_path / "missing") is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs"])
async def test_network_file_systems_are_refused_unless_allowed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "filesystem_of", lambda _: kind)
    assert kind in await refuse(f"sqlite:///{tmp_path}/a.db")
    assert not (tmp_path / "a.db").exists()
    driver = await open_store(tmp_path, allow_network_fs=True)
    await driver.close()


async def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.sqlite3, "sqlite_version_info", (3, 34, 1))
    assert "3.35" in await refuse("sqlite:////tmp/never.db")


async def test_a_damaged_file_gives_typed_errors(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    await driver.leases.acquire(ask("key"))
    await driver.close()
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises((StoreUnavailable, ConfigurationError)):
        opened = await open_store(tmp_path)
        try:
            await opened.leases.acquire(ask("key"))
        finally:
            await opened.close()


async def test_closed_means_unavailable(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    await driver.close()
    await driver.close()
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("key")
    with pytest.raises(StoreUnavailable):
        await driver.leases.acquire(ask("key"))


async def test_a_healthy_store_has_nothing_to_report(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    assert {finding.level for finding in await driver.check()} == {"ok"}
    (tmp_path / "store.db").chmod(0o644)
    findings = await driver.check()
    await driver.close()
    assert any("0644" in finding.what for finding in findings)


async def test_a_full_file_is_unavailable_and_recovers(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    raw = driver.writer._transactions.connection
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        for number in range(200):
            await driver.leases.acquire(ask(f"key/{number}"))
    raw.execute("PRAGMA max_page_count=1000000")
    await driver.leases.acquire(ask("key/199"))
    await driver.close()


async def test_a_file_removed_or_replaced_underneath_grants_nothing(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    await driver.leases.acquire(ask("key"))
    path, aside = tmp_path / "store.db", tmp_path / "aside.db"
    path.rename(aside)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await driver.leases.acquire(ask("other"))
    path.touch()
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await driver.leases.acquire(ask("other"))
    aside.replace(path)
    await driver.leases.acquire(ask("other"))
    await driver.close()
