"""Leases: locks, elections, semaphores, with fencing tokens, renewal and events."""
