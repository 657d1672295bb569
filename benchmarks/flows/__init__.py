"""Measurements of flows."""
