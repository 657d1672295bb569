"""What every ladder of migrations declares of the releases that it serves."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.model.schema_version import compatible_with


def check_declared(steps: Sequence[tuple[int, str]], *, first: int) -> None:
    """From ``first`` on each migration names a release, none later than itself, none going back."""
    said = [(number, compatible_with(text)) for number, text in steps]
    assert all(oldest is None for number, oldest in said if number < first)
    declared = [oldest for number, oldest in said if number >= first]
    assert all(oldest is not None and oldest <= number for number, oldest in said[first - 1 :])
    assert declared == sorted(declared)
