"""The files that the architecture tests judge. Owns the list, and that it is never empty."""

from __future__ import annotations

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "outlive"


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Python file; parsed when somebody first looks at its tree."""

    name: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Give every file that git has or would add; what it ignores is nobody's business."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    # A file may be deleted and not yet committed as such.
    found = tuple(sorted(path for path in paths if path.is_file()))
    assert len(found) > 20
    return found


@functools.cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Give the Python files under ``folders``; a folder that is not there yet is empty."""
    wanted = [ROOT / folder for folder in folders]
    found = tuple(
        _read(path)
        for path in tracked_files()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in wanted)
    )
    assert len(found) > 5
    return found


def forget() -> None:
    """Let go of what was read; the trees are large."""
    modules.cache_clear()
    _read.cache_clear()


@functools.cache
def _read(path: Path) -> Module:
    return Module(name=path.relative_to(ROOT).as_posix(), text=path.read_text())
