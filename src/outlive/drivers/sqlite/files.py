"""Where the files are, and whether they may be used: paths, modes and file systems.

Owns every decision about a path. It must never open and close a database file that may be in use:
closing any descriptor of a file drops all POSIX locks the process has on it, SQLite's included.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import ConfigurationError
from outlive.model.location import Location

# Leases say who works on what: for the owner's eyes only. SQLite gives -wal and -shm the mode of
# the main file.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

# WAL needs shared memory and working locks between all users of the file, and the boot-time clock
# is shared by one machine only. None of these promises both.
_NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "virtiofs", "ceph", "glusterfs", "afs"}
    | {"lustre", "gpfs", "ocfs2", "gfs2", "beegfs", "ncpfs", "vboxsf", "prl_fs"}
)
# Twice the file of shared memory (-shm) that each connection needs, even one that only reads.
_FREE_BYTES_MIN = 64 * 1024
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The files of one store, all beside each other."""

    main: Path

    @property
    def hosts(self) -> Path:
        """The sidecar that holds the sessions of hosts."""
        return self.main.with_name(self.main.name + "-hosts")

    def stamp(self) -> tuple[int, ...] | None:
        """Differs after a commit: what the file system says of the write-ahead log.

        ``None`` if there is no log, so that it cannot tell.
        """
        try:
            found = os.stat(f"{self.main}-wal")  # noqa: PTH116 - asked twenty times a second
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    @property
    def bells(self) -> Path:
        """The directory of the doorbells."""
        return self.main.with_name(self.main.name + "-bells")


def locate(location: Location) -> StoreFiles:
    """The files that ``location`` names.

    Raises:
        ConfigurationError: It names no file, or asks for something other than a plain file.
    """
    rest = location.url.partition("://")[2]
    if not rest.startswith("/"):
        raise ConfigurationError(
            "an SQLite URL has three slashes for a relative path (sqlite:///outlive.db) and four "
            "for an absolute one (sqlite:////var/lib/outlive.db)"
        )
    if "#" in rest:
        raise ConfigurationError(
            "write '#' as %23 in an SQLite URL; the text after a plain '#' is cut off"
        )
    text = location.path[1:]
    if not text or text.endswith("/") or ":memory:" in text:
        raise ConfigurationError(
            "the SQLite driver needs a file, for example sqlite:///outlive.db; for a store in "
            "the memory of this process, use memory://"
        )
    if text.startswith("file:") or "\0" in text:
        raise ConfigurationError("an SQLite URL must contain a plain path, not a file: URI")
    return StoreFiles(Path(os.path.abspath(text)))  # noqa: PTH100


def prepare(path: Path, *, allow_network_fs: bool) -> None:
    """Make sure that ``path`` is a plain file for this user alone, creating it if it is missing.

    Raises:
        ConfigurationError: The directory is missing, the path is a link or no file, or the file
            system cannot keep the promises of SQLite's write-ahead log.
    """
    parent = path.parent
    if not parent.is_dir():
        raise ConfigurationError(f"the directory {parent} does not exist; create it first")
    kind = filesystem_of(parent)
    if kind is not None and is_network(kind) and not allow_network_fs:
        raise ConfigurationError(
            f"{path} is on a file system of type {kind}, where SQLite's locks and shared memory "
            "are not reliable; use a local disk, or Postgres for more than one machine "
            "(allow_network_fs=true overrides, at your own risk)"
        )
    refuse_links(path)
    if path.exists():
        if not path.is_file():
            raise ConfigurationError(f"{path} is not a regular file")
        return
    try:
        # O_EXCL: the descriptor closed here is never one of a file that SQLite already uses.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        refuse_links(path)
        return
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be created: {error.strerror}") from error
    try:
        # A strange umask may have taken even the owner's bits.
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def refuse_links(path: Path) -> None:
    """Refuse a symbolic link: who can place one chooses which file is written.

    Raises:
        ConfigurationError: ``path`` is a symbolic link.
    """
    if path.is_symlink():
        raise ConfigurationError(f"{path} is a symbolic link; name the file itself")


def mode_of(path: Path) -> int:
    """The permission bits of ``path``."""
    return stat.S_IMODE(path.lstat().st_mode)


def obstacle_in(folder: Path) -> str | None:
    """What keeps SQLite from writing in ``folder``, if its file system says so."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    if status.f_flag & os.ST_RDONLY:
        return (
            "the file system is read-only, and SQLite writes files beside the database (-wal, "
            "-shm) even to read it: mount the file system writable"
        )
    if status.f_bavail * status.f_frsize < _FREE_BYTES_MIN:
        return "the disk is full: free some space"
    return None


def is_network(kind: str) -> bool:
    """Whether a file system of this type is refused."""
    return kind in _NETWORK_TYPES or kind.startswith("fuse")


def filesystem_of(directory: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type of the file system that ``directory`` is on, or ``None`` where nobody can say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        target = os.path.realpath(directory)
    except OSError:
        return None
    best = ""
    kind = None
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) <= 4:  # noqa: PLR2004
            continue
        point = _unescape(fields[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        # A later mount hides an earlier one on the same point.
        if inside and len(point) >= len(best):
            best, kind = point, after.split(" ", 1)[0]
    return kind


def _unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo (space, tab, newline, backslash)."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text
