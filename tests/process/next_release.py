"""A release to come: this package, with migrations and a kind of event that this one does not know.

Owns a copy of the package in a folder of the test. Its migrations only add, as most do, and say so.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from outlive.drivers.postgres import schema as postgres
from outlive.drivers.sqlite import schema as sqlite
from tests.process.actors import ROOT

# Every table that hosts work with gets a column while they do.
_POSTGRES = "".join(
    f"ALTER TABLE {{s}}.{table} ADD COLUMN next_{table} text DEFAULT 'x';\n"
    for table in ("host", "lease", "job", "job_attempt", "instance", "instance_history", "letter")
)
_SQLITE = "".join(
    f"ALTER TABLE outlive_{table} ADD COLUMN next_{table} TEXT DEFAULT 'x';\n"
    for table in ("lease", "job", "job_attempt", "instance", "history", "letter")
)
_HOSTS = "ALTER TABLE outlive_session ADD COLUMN next_session TEXT;\n"


def make_next_release(folder: Path) -> Path:
    """The path to import it from."""
    package = folder / "next" / "outlive"
    skipped = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(ROOT / "src" / "outlive", package, ignore=skipped)
    drivers = package / "drivers"
    for migrations, newest, script in (
        (drivers / "postgres" / "migrations", postgres.migrations()[-1][0], _POSTGRES),
        (drivers / "sqlite" / "migrations", sqlite.steps()[-1].number, _SQLITE),
        (drivers / "sqlite" / "migrations" / "hosts", sqlite.steps("hosts")[-1].number, _HOSTS),
    ):
        text = f"-- compatible_with: {newest}\n{script}"
        (migrations / f"{newest + 1:04}_next.sql").write_text(text, encoding="utf-8")
    events = package / "flows" / "events.py"
    known = events.read_text(encoding="utf-8")
    assert 'tag="patched"' in known
    events.write_text(known.replace('tag="patched"', 'tag="marked"'), encoding="utf-8")
    return package.parent
