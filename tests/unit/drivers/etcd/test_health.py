"""Which versions of etcd may forget what they acknowledged."""

from __future__ import annotations

import pytest

from outlive.drivers.etcd.health import _may_forget


@pytest.mark.parametrize("version", ["3.3.27", "3.4.20", "3.5.0", "3.5.4"])
def test_an_old_member_alone_may_forget(version: str) -> None:
    assert _may_forget(version)


@pytest.mark.parametrize("version", ["3.4.21", "3.4.23", "3.5.5", "3.5.21", "3.6.0", "4.0.0"])
def test_a_newer_one_does_not(version: str) -> None:
    assert not _may_forget(version)
