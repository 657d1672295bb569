"""Pytest plugins of this repository's own tests."""
