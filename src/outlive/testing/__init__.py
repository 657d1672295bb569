"""For tests of users and of driver authors: clocks, a simulated world, faults, and the suites.

``outlive.testing.conformance`` and ``outlive.testing.flows`` need pytest; nothing else here
does. Nothing in the package imports this.
"""

from outlive.testing.checker import check
from outlive.testing.clock import ManualClock
from outlive.testing.every_commit import CrashReport, crash_at_every_commit
from outlive.testing.faults import Fault, FaultPlan, Faults
from outlive.testing.faulty_driver import FaultyDriver
from outlive.testing.history import FencedResource, History
from outlive.testing.instance_checker import check_instances
from outlive.testing.instance_history import InstanceHistory
from outlive.testing.job_checker import check_jobs
from outlive.testing.job_history import JobHistory
from outlive.testing.loop import VirtualLoop
from outlive.testing.replay import check_replay
from outlive.testing.simulated_runtime import SimulatedRuntime, SimulatedStore
from outlive.testing.simulation import SimHost, Simulation
from outlive.testing.world import World

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
