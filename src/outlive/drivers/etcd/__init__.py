"""The etcd driver: leases across machines on the leases of etcd itself.

Importing this package imports no client library; opening a driver does.
"""

from outlive.drivers.etcd.driver import EtcdFactory

__all__ = ["EtcdFactory"]
