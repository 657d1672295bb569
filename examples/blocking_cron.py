"""A nightly job, started by cron on every machine, done by one of them, once a day.

python examples/blocking_cron.py sqlite:///jobs.db

Nothing here awaits. The key's state remembers the day of the last run, so that a machine that
comes late finds nothing to do.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import outlive
from outlive import blocking

STEPS = 3


def write_report(lease: blocking.Lease) -> None:
    """Do the work in steps; a thread cannot be cancelled, so look between them."""
    for step in range(STEPS):
        lease.check()
        print(f"step {step + 1} of {STEPS}, token {lease.token}")
        time.sleep(0.1)


def main(url: str) -> int:
    """Run today's job unless it runs, or has run, elsewhere."""
    today = datetime.now(UTC).date().isoformat()
    with blocking.connect(url, session=False) as host:
        lease = host.leases.try_acquire("nightly-report")
        if lease is None:
            print("somebody else is at it")
            return 0
        with lease:
            if (lease.state or {}).get("day") == today:
                print("already done today")
                return 0
            write_report(lease)
            lease.renew(state={"day": today})
    print("done")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except outlive.LeaseLost as error:
        sys.exit(f"stopped: {error}")
