"""Requests: from what a caller asks for to what is sent, or a refusal before anything is.

Owns the names of owners: host name, host id and a counter, so that no owner is ever used twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.lease import SEMAPHORE_LIMIT_MAX, AcquireRequest
from outlive.model.options import Duration, LeaseOptions, LeasePlan, plan_of
from outlive.names import HostId, Owner, check_key
from outlive.ports.capabilities import Capabilities
from outlive.runtime.outside import check_outside
from outlive.serialization import encode_metadata

# Options given per call are few in a program; more plans than this means they are generated.
_PLANS_MAX = 256


class Requests:
    """Makes the requests of one host."""

    def __init__(
        self,
        capabilities: Capabilities,
        options: LeaseOptions,
        *,
        host_name: str,
        host_id: HostId,
        metadata: Mapping[str, Any],
    ) -> None:
        self._capabilities = capabilities
        self.options = options
        self._host_id = host_id
        self._owner_prefix = f"{host_name}/{host_id}-"
        self._count = itertools.count(1)
        self._metadata = dict(metadata)
        self._metadata_text = encode_metadata(self._metadata)
        self._plan = self._checked(plan_of(options, capabilities.drift))
        self._plans: dict[object, LeasePlan] = {}
        self.closed = False

    def request(
        self,
        key: str,
        plan: LeasePlan,
        metadata: Mapping[str, Any] | None,
        *,
        limit: int,
        resume: bool,
    ) -> AcquireRequest:
        """One attempt under a fresh owner.

        Raises:
            InvalidName, UsageError: The arguments are wrong.
        """
        check_outside("a connection or its leases")
        if self.closed:
            raise UsageError("this connection is closed; connect again")
        if type(limit) is not int or limit != 1:
            self._check_limit(limit)
        text = self._metadata_text
        if metadata is not None:
            if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"metadata must be a mapping, not {type(metadata).__name__}")
            text = encode_metadata({**self._metadata, **metadata})
        return AcquireRequest(
            check_key(key),
            Owner(self._owner_prefix + str(next(self._count))),
            plan.ttl_us,
            text,
            self._host_id,
            limit,
            None,
            0,
            resume,
        )

    def _check_limit(self, limit: int) -> None:
        if type(limit) is not int:
            raise UsageError(f"limit must be a whole number, not {limit!r}")
        if not 1 <= limit <= SEMAPHORE_LIMIT_MAX:
            raise UsageError(f"limit must be from 1 to {SEMAPHORE_LIMIT_MAX}, not {limit}")
        if not self._capabilities.semaphore:
            raise UnsupportedByDriver(f"{self._capabilities.backend} does not support semaphores")

    def plan(self, ttl: Duration | None, options: dict[str, Any]) -> LeasePlan:
        """The plan of a call that changes some options of its host.

        Raises:
            UsageError: An option is unknown, or they cannot work together on this backend.
        """
        if ttl is None and not options:
            return self._plan
        signature = (ttl, *sorted(options.items()))
        try:
            plan = self._plans.get(signature)
        except TypeError:
            raise UsageError(f"lease options must be plain values: {options!r}") from None
        if plan is None:
            changed = self.options.with_(ttl=ttl, **options)
            plan = self._checked(plan_of(changed, self._capabilities.drift))
            if len(self._plans) < _PLANS_MAX:
                self._plans[signature] = plan
        return plan

    def _checked(self, plan: LeasePlan) -> LeasePlan:
        least, most = self._capabilities.ttl_min_s, self._capabilities.ttl_max_s
        if plan.ttl_s < least or (most is not None and plan.ttl_s > most):
            allowed = f"at least {least:g} s" if most is None else f"{least:g} to {most:g} s"
            raise UsageError(
                f"ttl must be {allowed} on {self._capabilities.backend}, not {plan.ttl_s:g} s"
            )
        return plan
