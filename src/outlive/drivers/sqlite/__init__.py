"""The SQLite driver: one file, one machine, production grade."""

from __future__ import annotations

from outlive.drivers.sqlite.driver import SqliteFactory

__all__ = ["SqliteFactory"]
