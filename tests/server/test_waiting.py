"""Who waits for work over HTTP hears what concerns it, and looks where something may be missed."""

from __future__ import annotations

from outlive.ports.wakeups import MISSED, Wakeup
from outlive.server.waiting import Waiters


async def test_a_ring_reaches_those_of_its_queue_and_namespace():
    waiters = Waiters(per_bearer=5)
    with waiters.waiting("b", "shop", ["mail"]) as here, waiters.waiting("b", "x", ["mail"]) as far:
        waiters.ring("shop", Wakeup("work/post"))
        waiters.ring("shop", Wakeup("cancel/mail"))
        assert not here.is_set()
        waiters.ring("shop", Wakeup("work/mail"))
        assert here.is_set()
        assert not far.is_set()


async def test_who_may_have_missed_a_ring_looks():
    waiters = Waiters(per_bearer=5)
    with (
        waiters.waiting("b", "shop", ["mail", "post"]) as here,
        waiters.waiting("b", "x", ["mail"]) as far,
    ):
        waiters.ring("shop", MISSED)
        assert here.is_set()
        assert not far.is_set()
