"""Work over HTTP, for programs that have no connection to the store: a client and a worker.

Needs nothing but the core package; the server is ``holdfast serve``.
"""

from holdfast.client.calling import cancelled
from holdfast.client.client import Client, Item
from holdfast.client.worker import HttpWorker, Work

__all__ = ["Client", "HttpWorker", "Item", "Work", "cancelled"]
