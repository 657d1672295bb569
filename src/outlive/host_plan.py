"""``HostPlan``: who a host is and how it behaves, settled before it connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.model.flow_options import FlowOptions
from outlive.model.options import LeaseOptions
from outlive.names import HostId
from outlive.work.worker import CLAIM_BATCH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """Who a host is and how it behaves; made by ``connect`` from its arguments and settings."""

    name: str
    id: HostId
    namespace: str
    session_ttl_s: float
    leases: LeaseOptions
    metadata: Mapping[str, Any]
    version: str = ""
    session: bool = True
    flows: FlowOptions = field(default_factory=FlowOptions)
    claim_batch: int = CLAIM_BATCH_MAX
