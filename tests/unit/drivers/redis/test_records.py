"""What scripts answer and servers say, as values: records, histories, raw fields, findings."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outlive.drivers.redis.records import raw_of, records_of, tenancies_of
from outlive.drivers.redis.scripts import load_scripts
from outlive.drivers.redis.server import parse_config, parse_info, read_server
from outlive.errors import ConfigurationError, StoreUnavailable
from outlive.model.lease import HISTORY_MAX, Ended

pytestmark = pytest.mark.whitebox

NOW = 1_800_000_000_000_000
OWNED = [0, "a/1", "7", "3", "2000000", str(NOW + 500_000), str(NOW), str(NOW), "{}"]
FREE = [1, None, "8", "4", "2000000", None, str(NOW), str(NOW), "{}"]


def test_a_record_is_active_while_time_is_left():
    owned, free = records_of("k", NOW, [2, 5, "s", OWNED, FREE])
    assert (owned.slot, owned.owner, owned.token, owned.version) == (0, "a/1", 7, 3)
    assert (owned.active, owned.remaining_s, owned.ttl_s) == (True, 0.5, 2.0)
    assert owned.acquired_at == datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    assert (owned.limit, owned.waiters, owned.state) == (2, 5, "s")
    assert (free.owner, free.active, free.expires_at, free.remaining_s) == (None, False, None, 0)
    (late,) = records_of("k", NOW + 500_000, [1, 0, None, OWNED])
    assert (late.owner, late.active) == ("a/1", False)


def test_a_history_begins_with_the_present_and_keeps_to_its_limit():
    ended = [f"0\n6\n{NOW - 9}\n{NOW - 5}\nbroken\nb/1\ntwo\nlines", "0\n5\n1\n2\nreleased\nc/1\n"]
    entries = tenancies_of("k", NOW, [1, 0, None, OWNED], ended, 10)
    assert [(entry.token, entry.owner, entry.ended) for entry in entries] == [
        (7, "a/1", None),
        (6, "b/1", Ended.BROKEN),
        (5, "c/1", Ended.RELEASED),
    ]
    assert [entry.detail for entry in entries] == [None, "two\nlines", None]
    assert len(tenancies_of("k", NOW, [1, 0, None, OWNED], ended, 2)) == 2
    assert tenancies_of("k", NOW, None, [], 10) == []


def test_raw_fields_are_shown_by_slot():
    fields = ["limit", "2", "slots", "2", "state", "s", "owner:0", "a", "token:1", "9"]
    shared = {"limit": "2", "slots": "2", "state": "s"}
    assert raw_of(fields) == [{**shared, "owner:0": "a"}, {**shared, "token:1": "9"}]
    assert raw_of([]) == []


def test_scripts_carry_the_numbers_of_the_model():
    assert f"= {HISTORY_MAX}, 250000, 3" in load_scripts().acquire.text
    assert not load_scripts().get.writes


def info(**more: str) -> dict[str, str]:
    return {"run_id": "r", "redis_version": "7.0.15", "aof_enabled": "1", **more}


def test_a_server_says_what_it_keeps():
    assert not read_server(info(), "", "h").forgetful
    assert read_server(info(aof_enabled="0"), "", "h").forgetful
    assert not read_server(info(aof_enabled="0"), "60 1", "h").forgetful
    # One that does not say is trusted.
    assert not read_server(info(aof_enabled="0"), None, "h").forgetful


@pytest.mark.parametrize(
    ("policy", "evicts"),
    [("noeviction", False), ("volatile-lru", False), ("allkeys-lru", True)],
)
def test_only_policies_for_all_keys_evict_leases(policy, evicts):
    assert read_server(info(maxmemory_policy=policy), "", "h").evicts is evicts


def test_a_server_that_is_no_place_for_leases_is_refused():
    with pytest.raises(ConfigurationError, match="Cluster"):
        read_server(info(cluster_enabled="1"), "", "h")
    with pytest.raises(StoreUnavailable, match="LOADING"):
        read_server(info(loading="1"), "", "h")
    with pytest.raises(ConfigurationError, match="run id"):
        read_server(info(run_id=""), "", "h")


def test_answers_about_the_server_are_parsed():
    assert parse_info("# Server\r\nrun_id:x\r\n\r\ndb0:keys=1,expires=0\r\n") == {
        "run_id": "x",
        "db0": "keys=1,expires=0",
    }
    assert parse_config(["save", "60 1"]) == {"save": "60 1"}
    assert parse_config(ValueError("NOPERM")) == {}
