"""``holdfast.local.toml``: rendered, kept private, and never overwritten by accident.

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

from holdfast.errors import ConfigurationError
from holdfast.settings import FILE_LOCAL

_HEAD = """\
# Settings of this machine, written by `holdfast configure`. Not for the repository.
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


def write(folder: Path, text: str) -> Path:
    """Put ``text`` into the file of ``folder``, whole or not at all, readable by its owner alone.

    Raises:
        ConfigurationError: The folder cannot be written.
    """
    path = folder / FILE_LOCAL
    new = path.with_suffix(".toml.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    return path


def is_ignored(folder: Path) -> bool:
    """Whether git would leave the file alone, as far as the repository's own list tells."""
    for parent in (folder, *folder.parents):
        ignored = parent / ".gitignore"
        if ignored.is_file() and FILE_LOCAL in ignored.read_text(encoding="utf-8").split():
            return True
        if (parent / ".git").exists():
            return False
    # No repository, nothing to commit it to.
    return True


def ignore(folder: Path) -> None:
    """Add the file to the ``.gitignore`` of ``folder``."""
    path = folder / ".gitignore"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    gap = "" if not text or text.endswith("\n") else "\n"
    path.write_text(f"{text}{gap}{FILE_LOCAL}\n", encoding="utf-8")


def _line(name: str, value: object) -> str:
    # JSON text is TOML text but for DEL; numbers, true, false and lists are written alike.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{name} = {text}"
