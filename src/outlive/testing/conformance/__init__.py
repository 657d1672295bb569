"""The suites that define the ports: a driver that passes them keeps its promises.

Subclass a suite, give it a ``lab`` fixture, and pytest does the rest:

    class TestMyLeases(LeaseStoreSuite):
        @pytest.fixture
        def lab(self, tmp_path):
            return Lab(factory=MyFactory(), url=f"my://{tmp_path}")

The suites ask a driver's capabilities, never its name; what a backend does not promise is skipped
with a reason that names the promise. No pytest plugin is needed.
"""

import pytest

# Rewritten before the first import, so that a failing assertion shows both of its sides.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "lab",
            "hosts",
            "instance_claim",
            "instance_commit",
            "instance_concurrency",
            "instance_hearing",
            "instance_jobs",
            "instance_mailbox",
            "instance_names",
            "instance_operate",
            "instance_outgoing",
            "instance_reading",
            "instance_repeats",
            "instance_runner",
            "instance_sessions",
            "instance_start",
            "instance_suite",
            "instance_transact",
            "instance_waiting",
            "job_claim",
            "job_concurrency",
            "job_enqueue",
            "job_keys",
            "job_operate",
            "job_queues",
            "job_repeats",
            "job_sessions",
            "job_settle",
            "job_suite",
            "job_waiting",
            "job_worker",
            "lease_acquire",
            "lease_break",
            "lease_concurrency",
            "lease_history",
            "lease_names",
            "lease_queue",
            "lease_reading",
            "lease_release",
            "lease_renew",
            "lease_ring",
            "lease_semaphore",
            "lease_suite",
            "schedules",
            "session_host",
            "tokens",
            "wakeups",
        )
    )
)

from outlive.testing.conformance.hosts import HostStoreSuite  # noqa: E402
from outlive.testing.conformance.instance_runner import Runner, runner  # noqa: E402
from outlive.testing.conformance.instance_suite import InstanceStoreSuite  # noqa: E402
from outlive.testing.conformance.job_suite import JobStoreSuite  # noqa: E402
from outlive.testing.conformance.job_worker import Worker, worker  # noqa: E402
from outlive.testing.conformance.lab import Lab, Member, scenario  # noqa: E402
from outlive.testing.conformance.lease_suite import LeaseStoreSuite  # noqa: E402
from outlive.testing.conformance.schedules import ScheduleStoreSuite  # noqa: E402
from outlive.testing.conformance.tokens import TokenStoreSuite  # noqa: E402
from outlive.testing.conformance.wakeups import WakeupsSuite  # noqa: E402

__all__ = [
    "HostStoreSuite",
    "InstanceStoreSuite",
    "JobStoreSuite",
    "Lab",
    "LeaseStoreSuite",
    "Member",
    "Runner",
    "ScheduleStoreSuite",
    "TokenStoreSuite",
    "WakeupsSuite",
    "Worker",
    "runner",
    "scenario",
    "worker",
]
