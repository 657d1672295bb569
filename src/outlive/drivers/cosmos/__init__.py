"""The Azure Cosmos DB driver: leases as single items, each write conditional on the item's ETag.

Importing this package imports no client library; opening a driver does.
"""

from outlive.drivers.cosmos.driver import CosmosFactory

__all__ = ["CosmosFactory"]
