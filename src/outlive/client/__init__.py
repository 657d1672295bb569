"""Work over HTTP, for programs that have no connection to the store: a client and a worker.

Needs nothing but the core package; the server is ``outlive serve``.
"""

from outlive.client.calling import cancelled
from outlive.client.client import Client, Item
from outlive.client.flows import FlowHandle, FlowInfo, Flows
from outlive.client.worker import HttpWorker, Work

__all__ = [
    "Client",
    "FlowHandle",
    "FlowInfo",
    "Flows",
    "HttpWorker",
    "Item",
    "Work",
    "cancelled",
]
