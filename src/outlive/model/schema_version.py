"""Which release can use which schema: what a store says of itself, and how a release judges it.

Pure. A release knows the schemas up to its own. Of a newer schema it knows only what the store
says: the version of the oldest release that can use the tables, written there by the migration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outlive.errors import SchemaMismatch

# Stands in the script of a migration, on a line of its own.
_DECLARED = re.compile(r"^-- compatible_with: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The schema of a store, and that of the oldest release that can use it."""

    number: int
    compatible_with: int

    def serves(self, release: int) -> bool:
        """Whether a release whose own schema is ``release`` can use it as it is."""
        return self.compatible_with <= release <= self.number


def version_of(number: int, script: str) -> SchemaVersion:
    """The schema that a migration makes; without a declaration it serves its own release alone."""
    declared = _DECLARED.search(script)
    return SchemaVersion(number, number if declared is None else int(declared.group(1)))


NEWER_SERVED = (
    "the schema of %s has version %d, from a newer release, and still supports this release "
    "(version %d): upgrade this host when convenient"
)
"""The log line of a release that uses a newer schema."""


def too_old(store: str, found: int, release: int) -> SchemaMismatch:
    """The error of a schema that has to be migrated first."""
    return SchemaMismatch(
        f"the schema of {store} has version {found}, and this release needs version {release}: "
        "run `outlive migrate`",
        found=found,
        expected=release,
    )


def too_new(store: str, found: SchemaVersion, release: int) -> SchemaMismatch:
    """The error of a schema that this release cannot use."""
    return SchemaMismatch(
        f"the schema of {store} has version {found.number}, from a newer release, and supports "
        f"releases from version {found.compatible_with} on; this release has version {release}: "
        "upgrade Outlive on this host to the release of the other hosts",
        found=found.number,
        expected=release,
    )
