"""The PostgreSQL driver: leases, sessions and wake-ups across machines.

Importing this package imports no client library; opening a driver does.
"""

from outlive.drivers.postgres.driver import PostgresFactory

__all__ = ["PostgresFactory"]
