"""The length of histories: what a slot keeps of its ended grants.

Owns when and how a history is pruned. A grant prunes what the grants before it left behind, however
those ended, so that nothing else has to look. It must never let pruning fail the grant it follows.
"""

from __future__ import annotations

import sqlite3

from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.lease import HISTORY_MAX


class LeaseHistory:
    """Prunes the histories of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def look(self, turn: Turn, key: str, slot: int, endings: int) -> None:
        """Keep the history of a slot bounded, of which so many grants had ended before this one."""
        if endings == 0 or endings % sql.PRUNE_EVERY:
            return
        values = (self._namespace, key, slot, self._namespace, key, HISTORY_MAX)
        try:
            turn.cursor.execute(sql.PRUNE_HISTORY, values)
        except sqlite3.Error:
            if not turn.cursor.connection.in_transaction:
                # It took the whole transaction along, and the writer must know.
                raise
