"""``outlive host ls``: the processes of a store, from a shell."""

from __future__ import annotations

import pytest

import outlive as library
from outlive import blocking

pytestmark = pytest.mark.usefixtures("made_store")


def test_living_hosts_are_listed_with_what_they_own(shell):
    assert shell("work", "enqueue", "mails", "1").code == 0
    with blocking.connect(f"sqlite:///{shell.folder}/leases.db", name="web-1") as host:
        host.leases.acquire("printer")
        (row,) = shell("host", "ls", "-o", "json").document["hosts"]
        table = shell("host", "ls").stdout.split()
    assert (row["name"], row["alive"], row["leases"], row["jobs"]) == ("web-1", True, 1, 0)
    assert row["version"] == library.__version__
    assert table[:3] == ["NAME", "ALIVE", "DRAINING"]
    assert shell("host", "ls", "-o", "json").document == {"hosts": []}
