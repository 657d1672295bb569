"""Guarding from code that does not await: the connection stays on its own thread."""

from __future__ import annotations

import psycopg
import pytest

import outlive
from outlive import blocking

pytestmark = pytest.mark.service


def test_a_blocking_guard_works_with_a_blocking_connection(postgres_url):
    with blocking.connect(postgres_url) as host, psycopg.connect(postgres_url) as db:
        lease = host.leases.acquire("k")
        with db.transaction():
            lease.guard(db)
        host.leases.break_lease("k", reason="test")
        with db.transaction(), pytest.raises(outlive.Fenced):
            lease.guard(db)
        assert not lease.is_held
