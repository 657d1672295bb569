"""Leases: acquire, release, renew, hand over, and what waiting costs."""
