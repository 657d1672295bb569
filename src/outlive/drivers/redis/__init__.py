"""The Redis driver: leases and wake-ups across machines, on one primary.

Importing this package imports no client library; opening a driver does.
"""

from outlive.drivers.redis.driver import RedisFactory

__all__ = ["RedisFactory"]
