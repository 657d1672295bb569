"""The in-process store: for tests, single-process programs, and as the model of the ports."""

from outlive.drivers.memory.driver import MemoryFactory

__all__ = ["MemoryFactory"]
