"""For tests of users and of driver authors: clocks, a simulated world, faults, and the suites.

``outlive.testing.conformance`` and ``outlive.testing.flows`` need pytest; nothing else here
does. Nothing in the package imports this.
"""

from outlive.flows.tools import lint
from outlive.testing.clock import ManualClock
from outlive.testing.every_commit import CrashReport, crash_at_every_commit
from outlive.testing.fault_proxy import FaultProxy, FaultyDriver, Interceptor
from outlive.testing.faults import Fault, FaultPlan, Faults
from outlive.testing.loop import VirtualLoop
from outlive.testing.replay import check_replay
from outlive.testing.simulated_runtime import SimulatedRuntime, SimulatedStore
from outlive.testing.simulation import SimHost, Simulation
from outlive.testing.world import World

__all__ = [
    "CrashReport",
    "Fault",
    "FaultPlan",
    "FaultProxy",
    "Faults",
    "FaultyDriver",
    "Interceptor",
    "ManualClock",
    "SimHost",
    "SimulatedRuntime",
    "SimulatedStore",
    "Simulation",
    "VirtualLoop",
    "World",
    "check_replay",
    "crash_at_every_commit",
    "lint",
]
