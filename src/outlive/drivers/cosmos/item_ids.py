r"""The ids of items: reversible, legal in Cosmos DB, and in the order of the keys.

Pure. An id may not hold ``/ \ ? #``, and Cosmos DB does not promise how it sorts text beyond
ASCII. So the UTF-8 bytes of the key are written in base 64 with an alphabet whose digits ascend in
ASCII: comparing two ids compares the keys by code point, whatever the collation.
"""

from __future__ import annotations

import base64

# Together with a namespace of 64 and a key of 512 bytes an id has 754 characters; 1,023 may be.
_PREFIX = "lease-"

# No namespace holds it, so that the first one ends the namespace.
_SEPARATOR = "~"

_USUAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_ASCENDING = bytes(sorted(_USUAL))
_TO_ASCENDING = bytes.maketrans(_USUAL, _ASCENDING)
_TO_USUAL = bytes.maketrans(_ASCENDING, _USUAL)


def item_id(namespace: str, key: str) -> str:
    """The id of the item that holds ``key``."""
    text = base64.urlsafe_b64encode(key.encode()).rstrip(b"=").translate(_TO_ASCENDING)
    return f"{_PREFIX}{namespace}{_SEPARATOR}{text.decode()}"


def names_of(identity: str) -> tuple[str, str]:
    """The namespace and the key that ``identity`` was made of.

    Raises:
        ValueError: It is not the id of a lease.
    """
    namespace, separator, text = identity.removeprefix(_PREFIX).partition(_SEPARATOR)
    if not identity.startswith(_PREFIX) or not separator:
        raise ValueError(f"{identity!r} is not the id of a lease")
    padded = text.encode().translate(_TO_USUAL) + b"=" * (-len(text) % 4)
    return namespace, base64.urlsafe_b64decode(padded).decode()
