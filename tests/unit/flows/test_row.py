"""The row of a live flow: what its commits say beside what its code decides."""

from __future__ import annotations

import pytest

from outlive.flows.row import FlowRow
from outlive.model.instance import ClaimedInstance
from outlive.names import InstanceId, Token

pytestmark = pytest.mark.whitebox


def test_a_mark_is_written_by_every_commit_until_one_of_them_stands():
    """A transaction that takes it along may be rolled back."""
    row = FlowRow(
        ClaimedInstance(
            id=InstanceId("f"),
            kind="flow",
            name="f",
            token=Token(1),
            version=3,
            base=0,
            input="{}",
            began_at_us=0,
            parent=None,
            headers="{}",
            attributes='{"outlive.stuck":"why"}',
            custom=None,
        )
    )
    row.mark("{}")
    rolled_back = row.beside(due_at_us=None)
    again = row.beside(due_at_us=None)
    assert (rolled_back.attributes, again.attributes) == ("{}", "{}")
    assert row.marked
    row.written(again)
    assert not row.marked
    assert row.beside(due_at_us=None).attributes is None
