"""``outlive.local.toml``: rendered, kept private, and never overwritten by accident.

Owns the one file that the command line writes. Knows no secret: those stand in variables that the
file refers to.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from outlive.errors import ConfigurationError
from outlive.settings import FILE_LOCAL

_HEAD = """\
# Settings of this machine, written by `outlive configure`. Not for the repository.
# A value "env:NAME" is read from the variable NAME when the program starts.
"""

_MODE = 0o600


def read(folder: Path) -> dict[str, Any]:
    """What the file in ``folder`` says now; empty if there is none.

    Raises:
        ConfigurationError: It is there and cannot be read.
    """
    path = folder / FILE_LOCAL
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise ConfigurationError(f"{path} cannot be read; move it away first") from None


def render(settings: Mapping[str, Any]) -> str:
    """``settings`` as TOML: plain values, then one table after the other."""
    lines: list[str] = []
    tables: list[str] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            if table:
                tables += ["", f"[{name}]", *(_line(key, table[key]) for key in table)]
        else:
            lines.append(_line(name, value))
    return _HEAD + "\n".join([*lines, *tables]) + "\n"


def is_there(folder: Path) -> bool:
    """Whether ``folder`` has the file already, or a link of its name that leads nowhere."""
    return os.path.lexists(folder / FILE_LOCAL)


def can_hold(text: str) -> bool:
    """Whether ``text`` can be written into the file; an argument may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write(folder: Path, text: str, *, replace: bool) -> Path:
    """Put ``text`` into the file of ``folder``, whole or not at all, readable by its owner alone.

    Raises:
        ConfigurationError: The folder cannot be written; or there is a file, and ``replace`` is
            false. It is left as it is.
    """
    path = folder / FILE_LOCAL
    new = path.with_suffix(".toml.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            # Asked last: questions and the try of a store take a while.
            if not replace and is_there(folder):
                raise ConfigurationError(
                    f"{path} was created by another process meanwhile; --force replaces its url"
                )
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    return path


def is_ignored(folder: Path) -> bool:
    """Whether git would leave the file alone, as far as the repository's own list tells."""
    for parent in (folder, *folder.parents):
        ignored = parent / ".gitignore"
        if ignored.is_file() and FILE_LOCAL.encode() in ignored.read_bytes().split():
            return True
        if (parent / ".git").exists():
            return False
    # No repository, nothing to commit it to.
    return True


def ignore(folder: Path) -> None:
    """Add the file to the ``.gitignore`` of ``folder``."""
    path = folder / ".gitignore"
    before = path.read_bytes() if path.exists() else b""
    gap = b"" if not before or before.endswith(b"\n") else b"\n"
    with path.open("ab") as file:
        file.write(gap + FILE_LOCAL.encode() + b"\n")


def _line(name: str, value: object) -> str:
    # JSON text is TOML text but for DEL; numbers, true, false and lists are written alike.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{name} = {text}"
