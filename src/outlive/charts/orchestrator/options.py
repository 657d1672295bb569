"""What an orchestrator can be told: sizes, policies, and why the defaults are what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlive.errors import UsageError

MailboxPolicy = Literal["wait", "reject", "drop-oldest"]
POLICIES: tuple[MailboxPolicy, ...] = ("wait", "reject", "drop-oldest")

# One turn of sixteen lanes ends within a millisecond; five hundred fill the whole of a turn.
POOL_SIZE = 16
POOL_SIZE_MAX = 512

# A lane costs about a kilobyte; more than this would be a mistake in a unit.
POOL_SIZE_LIMIT = 65_536

# A sender that is this far ahead of a machine gains nothing by being further ahead.
MAILBOX_LIMIT = 10_000

# A caller that never looks again must not wait for ever, and people give up sooner than this.
REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How many lanes each event loop has.

    Raises:
        UsageError: The numbers do not fit together.
    """

    pool_size: int = POOL_SIZE
    max_pool_size: int = POOL_SIZE_MAX
    allow_growth: bool = True
    growth_factor: float = 2.0
    shrink_threshold: float = 0.25

    def __post_init__(self) -> None:
        if type(self.pool_size) is not int or not 1 <= self.pool_size <= POOL_SIZE_LIMIT:
            raise UsageError(
                f"pool_size must be from 1 to {POOL_SIZE_LIMIT}, not {self.pool_size!r}"
            )
        if (
            type(self.max_pool_size) is not int
            or not self.pool_size <= self.max_pool_size <= POOL_SIZE_LIMIT
        ):
            raise UsageError(
                f"max_pool_size must be from pool_size to {POOL_SIZE_LIMIT}, not "
                f"{self.max_pool_size!r}"
            )
        if not 1 < self.growth_factor <= POOL_SIZE_LIMIT:
            raise UsageError(
                f"growth_factor must be above 1 and at most {POOL_SIZE_LIMIT}, not "
                f"{self.growth_factor!r}"
            )
        if not 0 <= self.shrink_threshold < 1:
            raise UsageError(
                f"shrink_threshold must be from 0 to below 1, not {self.shrink_threshold!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxRule:
    """How many events may wait for one machine, and what becomes of those beyond.

    ``wait``: the sender's acceptance comes when there is room; as many again may wait like that.
    ``reject``: the newest is refused with ``MailboxFull``. ``drop-oldest``: the oldest goes.

    Raises:
        UsageError: The limit is below one, or there is no such policy.
    """

    limit: int = MAILBOX_LIMIT
    policy: MailboxPolicy = "wait"

    def __post_init__(self) -> None:
        if type(self.limit) is not int or self.limit < 1:
            raise UsageError(f"mailbox_limit must be at least 1, not {self.limit!r}")
        if self.policy not in POLICIES:
            raise UsageError(
                f"mailbox_policy must be one of {', '.join(POLICIES)}, not {self.policy!r}"
            )
