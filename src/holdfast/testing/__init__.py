"""For tests of users and of driver authors: clocks, a simulated world, faults, and the suites.

``holdfast.testing.conformance`` and ``holdfast.testing.flows`` need pytest; nothing else here
does. Nothing in the package imports this.
"""

from holdfast.testing.checker import check
from holdfast.testing.clock import ManualClock
from holdfast.testing.every_commit import CrashReport, crash_at_every_commit
from holdfast.testing.faults import Fault, FaultPlan, Faults
from holdfast.testing.faulty_driver import FaultyDriver
from holdfast.testing.history import FencedResource, History
from holdfast.testing.instance_checker import check_instances
from holdfast.testing.instance_history import InstanceHistory
from holdfast.testing.job_checker import check_jobs
from holdfast.testing.job_history import JobHistory
from holdfast.testing.loop import VirtualLoop
from holdfast.testing.replay import check_replay
from holdfast.testing.simulated_runtime import SimulatedRuntime, SimulatedStore
from holdfast.testing.simulation import SimHost, Simulation
from holdfast.testing.world import World

__all__ = [
    "CrashReport",
    "Fault",
    "FaultPlan",
    "Faults",
    "FaultyDriver",
    "FencedResource",
    "History",
    "InstanceHistory",
    "JobHistory",
    "ManualClock",
    "SimHost",
    "SimulatedRuntime",
    "SimulatedStore",
    "Simulation",
    "VirtualLoop",
    "World",
    "check",
    "check_instances",
    "check_jobs",
    "check_replay",
    "crash_at_every_commit",
]
