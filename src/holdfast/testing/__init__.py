"""For tests of users and of driver authors: a clock that is moved by hand, and the suites.

``holdfast.testing.conformance`` needs pytest; nothing else here does. Nothing in the package
imports this.
"""

from holdfast.testing.clock import ManualClock

__all__ = ["ManualClock"]
