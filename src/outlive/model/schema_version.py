"""Which release may work with which schema: what a store says of itself, and how it is judged.

Pure. A release knows the schemas up to its own. Of a newer one it knows only what the store says:
the oldest release that its tables still serve, written there by the migration that made them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outlive.errors import SchemaMismatch

# Stands in a migration, on a line of its own.
_DECLARED = re.compile(r"^-- compatible_with: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The schema of a store.

    ``compatible_with`` is the schema of the oldest release that works with it; ``None`` where
    nobody said so, and then it is for releases that know ``number`` alone.
    """

    number: int
    compatible_with: int | None = None

    def serves(self, release: int) -> bool:
        """Whether a release whose own schema is ``release`` may work with it as it is."""
        if self.number <= release:
            return self.number == release
        return self.compatible_with is not None and self.compatible_with <= release


def compatible_with(migration: str) -> int | None:
    """What the text of a migration declares; ``None`` if it declares nothing."""
    found = _DECLARED.search(migration)
    return None if found is None else int(found.group(1))


def newer_served(store: str, found: int, release: int) -> str:
    """What is logged by a release that works with a newer schema."""
    return (
        f"the schema of {store} is number {found}, of a newer release, and still serves this one, "
        f"which knows {release}: upgrade when it suits you"
    )


def too_old(store: str, found: int, release: int, *, advice: str) -> SchemaMismatch:
    """The error of a schema that has to be migrated first."""
    return SchemaMismatch(
        f"the schema of {store} is number {found} and this release needs {release}: {advice}",
        found=found,
        expected=release,
    )


def too_new(store: str, found: SchemaVersion, release: int) -> SchemaMismatch:
    """The error of a schema that this release cannot work with."""
    oldest = found.number if found.compatible_with is None else found.compatible_with
    return SchemaMismatch(
        f"the schema of {store} is number {found.number}, written by a newer release, and serves "
        f"releases from {oldest} on; this one knows {release}: install the release "
        "here that the other hosts have",
        found=found.number,
        expected=release,
    )
