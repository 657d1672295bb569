"""Guarded writes: a condition on the grant inside the user's own etcd transaction.

Owns what ``Lease.guard`` accepts here. The proof is the condition itself: the transaction succeeds
only while the very key lives that the grant created, so that fencing is complete without a clock.
"""

from __future__ import annotations

from outlive.drivers.etcd.operations import CreatedAt
from outlive.drivers.etcd.owning import Owners
from outlive.drivers.etcd.wire import add_condition
from outlive.errors import UsageError
from outlive.model.lease import Grant


async def guard(owners: Owners, grant: Grant, tx: object) -> None:
    """Add to ``tx`` the condition that ``grant`` lasts; see the port.

    Raises:
        UsageError: ``tx`` is neither a list of comparisons nor a ``TxnRequest`` of aetcd.
        LeaseExpired, Fenced: The grant is known to be over.
    """
    condition = CreatedAt(await owners.live_name(grant), grant.token)
    if not add_condition(tx, condition):
        raise UsageError(
            f"an etcd transaction is guarded by its conditions: pass the list that becomes "
            f"client.transaction(compare=…), or an aetcd.rpc.TxnRequest, not {type(tx).__name__}"
        )
