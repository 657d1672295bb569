"""The Azure Blob Storage driver: leases across machines, on a storage account and nothing else.

Importing this package imports no client library; opening a driver does.
"""

from outlive.drivers.azblob.driver import AzureBlobFactory

__all__ = ["AzureBlobFactory"]
