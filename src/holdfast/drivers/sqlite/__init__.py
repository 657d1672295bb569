"""The SQLite driver: one file, one machine, production grade."""

from __future__ import annotations

from holdfast.drivers.sqlite.driver import SqliteFactory

__all__ = ["SqliteFactory"]
