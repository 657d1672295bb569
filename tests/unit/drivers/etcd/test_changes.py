"""Transactions: what they are conditional on, and that they stay within what etcd commits."""

from __future__ import annotations

from outlive.drivers.etcd import changes
from outlive.drivers.etcd.changes import SLOTS_MAX
from outlive.drivers.etcd.decide import Take, decide
from outlive.drivers.etcd.folder import RecordValue, SlotValue, encoded
from outlive.drivers.etcd.operations import CreatedAt, Delete, Put, Term, Unmodified
from tests.unit.drivers.etcd.folders_by_hand import NAMES, ask, folder, place, slot

# --max-txn-ops of etcd.
OPERATIONS_MAX = 128
TERM = Term(5, 30)
WHOLE = Unmodified(*NAMES.folder("k"), 100)


def taken(before, request, now_us: int = 0):
    decided = decide(before, request, now_us, 0)
    assert isinstance(decided, Take)
    return changes.take(NAMES, before, request, decided, term=TERM, now_us=7)


def puts(change) -> dict[bytes, Put]:
    return {
        operation.key: operation for operation in change.operations if isinstance(operation, Put)
    }


def test_a_first_grant_writes_its_folder_if_nobody_else_did() -> None:
    change = taken(folder(), ask("a/1"))
    assert change.conditions == (WHOLE,)
    live = NAMES.live("k", 0, 0)
    assert set(puts(change)) == {live, NAMES.slot("k", 0), NAMES.record("k")}
    assert puts(change)[live] == Put(live, b"a/1", TERM.id)
    # Whatever must outlive the owner hangs on no lease of etcd.
    assert {put.lease for put in puts(change).values() if put.key != live} == {0}


def test_a_later_grant_leaves_the_record_alone() -> None:
    change = taken(folder(slot(0, None, 9)), ask("a/1"))
    assert set(puts(change)) == {NAMES.live("k", 0, 0), NAMES.slot("k", 0)}


def test_a_takeover_records_the_end_of_the_former_grant() -> None:
    change = taken(folder(slot(0, "b/1", 9, live=False)), ask("a/1"))
    assert NAMES.ended("k", 0, 0) in puts(change)


def test_a_resuming_host_creates_the_other_live_key() -> None:
    change = taken(folder(slot(0, "web-1/x", 9)), ask("web-1/y", resume=True))
    assert Delete(NAMES.live("k", 0, 0)) in change.operations
    assert NAMES.live("k", 0, 1) in puts(change)


def test_a_repeat_keeps_its_live_key_and_needs_it() -> None:
    change = taken(folder(slot(0, "a/1", 9)), ask("a/1"))
    assert change.conditions == (WHOLE, CreatedAt(NAMES.live("k", 0, 0), 9))
    value = puts(change)[NAMES.slot("k", 0)].value
    assert value == encoded(SlotValue("a/1", 2, 30_000_000, 0, "{}", 9))


def test_passing_marks_those_who_are_passed_and_forgets_the_dead() -> None:
    queue = (place(11, "b/1"), place(12, "c/1"))
    before = folder(slot(0, None, 9), places=queue, passed=(3,))
    change = taken(before, ask("c/1"), now_us=10**9)
    assert puts(change)[NAMES.record("k")].value == encoded(RecordValue(1, (11,)))
    assert Delete(NAMES.place("k", "c/1")) in change.operations


def test_a_release_asks_for_its_own_token_alone() -> None:
    held = slot(0, "a/1", 9)
    change = changes.release(NAMES, folder(held), held, 7)
    assert change.conditions == (CreatedAt(NAMES.live("k", 0, 0), 9),)
    late = slot(0, "a/1", 9, live=False)
    assert changes.release(NAMES, folder(late), late, 7).conditions == (WHOLE,)


def test_the_largest_transactions_fit() -> None:
    # One more operation shows the folder afterwards.
    full = [slot(number, f"a/{number}", number + 1) for number in range(SLOTS_MAX)]
    broken = changes.break_all(NAMES, folder(*full, limit=SLOTS_MAX), now_us=7, reason="r")
    assert len(broken.operations) < OPERATIONS_MAX
    late = [slot(number, f"a/{number}", number + 1, live=False) for number in range(SLOTS_MAX)]
    waiting = (place(200, "b/1"), place(201, "c/1"))
    resized = taken(folder(*late, limit=SLOTS_MAX, places=waiting), ask("c/1"), now_us=10**9)
    assert len(resized.operations) < OPERATIONS_MAX
    assert len(resized.conditions) <= 2


def test_no_transaction_names_a_key_twice() -> None:
    # etcd refuses to put a key twice, or to put what it deletes.
    late = [slot(number, f"a/{number}", number + 1, live=False) for number in range(3)]
    for change in (
        taken(folder(*late, limit=3), ask("b/1")),
        taken(folder(slot(0, "web-1/x", 9)), ask("web-1/y", resume=True)),
        changes.break_all(NAMES, folder(slot(0, "a/1", 9)), now_us=7, reason="r"),
    ):
        written = list(puts(change))
        assert len(written) == sum(isinstance(item, Put) for item in change.operations)
        for gone in (item for item in change.operations if isinstance(item, Delete)):
            end = gone.end or gone.key + b"\0"
            assert not [key for key in written if gone.key <= key < end]
