"""What a key is called in a container, and which lease id an owner has. Pure.

A blob's name is the namespace, a slash, and the key in base32hex: only digits and lower-case
letters, so that no rule of blob names, URLs or hierarchical accounts can be broken, and listings
come in the order of the keys' code points, whatever collation a service sorts by.
"""

from __future__ import annotations

import base64
import uuid

from outlive.names import Owner

# Of our own making, so that a lease id of Outlive is nobody else's uuid5 of the same text.
_LEASE_IDS = uuid.UUID("6f1d3c52-8f0e-5a49-9c55-3d4c8f6a2b10")

# Five bytes of a key become eight characters of a name.
_BYTES, _CHARACTERS = 5, 8


def folder_of(namespace: str) -> str:
    """The virtual folder of a namespace, with its slash.

    No segment of a blob's name should end with a dot; ``~`` is in no namespace.
    """
    return f"{namespace}~/" if namespace.endswith(".") else f"{namespace}/"


def name_of(namespace: str, key: str) -> str:
    """The name of the blob of ``key``: at most 886 of the 1,024 characters that Azure allows."""
    return folder_of(namespace) + _encoded(key)


def prefix_of(namespace: str, prefix: str) -> str:
    """What the names of all keys that start with ``prefix`` start with; some others may, too."""
    data = prefix.encode()
    # The last character of an encoding also depends on the bytes that follow.
    certain = len(data) * _CHARACTERS // _BYTES
    return folder_of(namespace) + _encoded(prefix)[:certain]


def key_of(namespace: str, name: str) -> str | None:
    """The key whose blob has this ``name``, or ``None`` if it is no blob of ours."""
    folder = folder_of(namespace)
    text = name.removeprefix(folder)
    padding = "=" * (-len(text) % _CHARACTERS)
    try:
        key = base64.b32hexdecode((text + padding).upper()).decode()
    except ValueError:
        return None
    return key if key and name == name_of(namespace, key) else None


def lease_id_of(owner: Owner | str) -> str:
    """The lease id that ``owner`` proposes: the same for every attempt of the same owner.

    That makes acquire safe to repeat, and lets whoever reads the owner name its lease.
    """
    return str(uuid.uuid5(_LEASE_IDS, owner))


def _encoded(key: str) -> str:
    return base64.b32hexencode(key.encode()).decode().rstrip("=").lower()
