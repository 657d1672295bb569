"""What drivers have in common that remove instances: few at a time where histories are long."""

from __future__ import annotations

from types import ModuleType

import pytest

from outlive.model.instance import Commit, InstanceStatus, NewInstance
from outlive.names import HostId, InstanceId, Token
from outlive.ports.driver import Driver

ROWS_MAX = 5


async def removed_in_steps(
    driver: Driver, host: HostId, module: ModuleType, patch: pytest.MonkeyPatch
) -> list[int]:
    """How many of six with 3, 4, 1, 9, 1 and 1 rows are removed by each of five steps."""
    patch.setattr(module, "REMOVED_ROWS_MAX", ROWS_MAX)
    store = driver.instances
    assert store is not None
    for place, rows in enumerate((3, 4, 1, 9, 1, 1)):
        id_ = InstanceId(f"i{place}")
        new = NewInstance(
            id=id_,
            kind="flow",
            name="f",
            input="{}",
            request=f"r{place}",
            session=host,
            retention_us=0,
        )
        await store.start([new])
        for version in range(1, rows + 1):
            ends = version == rows
            commit = Commit(
                id=id_,
                token=Token(1),
                version=version,
                commit=f"1.{version}",
                events="[]",
                status=InstanceStatus.COMPLETED if ends else InstanceStatus.RUNNING,
                outcome="1" if ends else None,
                due_at_us=None,
            )
            (answer,) = await store.commit([commit])
            assert answer.ok
    return [await store.tend(limit=10) for _ in range(5)]


# 3 rows leave room for the next, whose 4 do not; 1 row leaves room for one of 9, and so on.
IN_STEPS = [2, 2, 2, 0, 0]
