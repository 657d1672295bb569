"""Who gets a key: the decision of one attempt, from the item as it was seen.

Pure. The write that follows is conditional on the ETag of that very item, so that a decision from
an item that has changed since is refused by the store.
"""

from __future__ import annotations

from typing import NamedTuple

from outlive.drivers.cosmos.items import Item
from outlive.model.lease import AcquireRequest
from outlive.names import host_of


class Take(NamedTuple):
    """The attempt may write.

    ``again`` means that the owner had the key already and keeps its token. ``previous_owner`` is
    whose grant ends by it, if one does.
    """

    again: bool = False
    previous_owner: str | None = None


class Wait(NamedTuple):
    """The attempt is refused; ``owner`` may lose the key in ``retry_s`` at the earliest."""

    owner: str
    retry_s: float


def decide(item: Item | None, request: AcquireRequest, free_in_s: float) -> Take | Wait:
    """The outcome of ``request`` on ``item``, which others may take in ``free_in_s``.

    An owner that asks again keeps its token, even after its time ran out, as long as nobody took
    the key. A resuming host takes over from its former self at once.
    """
    if item is None or item.owner is None:
        return Take()
    if item.owner == request.owner:
        return Take(again=True)
    if request.resume and host_of(item.owner) == host_of(request.owner):
        return Take(previous_owner=item.owner)
    if free_in_s > 0:
        return Wait(item.owner, free_in_s)
    return Take(previous_owner=item.owner)
