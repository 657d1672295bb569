"""No error of the server gets through, and none says "refused" of what may be applied."""

from __future__ import annotations

import random
import ssl
import subprocess
import sys

import hiredis
import pytest

from outlive.clock import SystemClock
from outlive.drivers.redis import RedisFactory
from outlive.drivers.redis.translate import translate, translate_connect
from outlive.drivers.redis.wire import Lost
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.location import parse_url
from outlive.names import HostId
from outlive.ports.driver import DriverContext

pytestmark = pytest.mark.whitebox


def test_a_lost_write_is_unknown_only_if_it_was_sent():
    assert type(translate(Lost("cut", sent=True), write=True)) is OutcomeUnknown
    assert type(translate(Lost("cut", sent=True), write=False)) is StoreUnavailable
    assert type(translate(Lost("cut", sent=False), write=True)) is StoreUnavailable


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
        ("BUSY Redis is busy running a script", StoreUnavailable),
        ("ERR Error running script: Script killed by user with SCRIPT KILL.", StoreUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable),
        ("ERR max number of clients reached", StoreUnavailable),
        ("NOAUTH Authentication required.", ConfigurationError),
        ("WRONGPASS invalid username-password pair", ConfigurationError),
        ("NOPERM this user has no permissions", ConfigurationError),
        ("MOVED 3999 127.0.0.1:6381", ConfigurationError),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", StoreError),
        ("ERR something new", StoreError),
        ("ERR Error running script: @user_script: 49: -READONLY You can't", StoreUnavailable),
    ],
)
def test_a_reply_says_what_to_do(reply, expected):
    assert type(translate(hiredis.ReplyError(reply), write=True)) is expected
    assert isinstance(translate_connect(hiredis.ReplyError(reply), "redis://h"), expected)


def test_an_error_of_ours_passes_unchanged():
    error = UsageError("mine")
    assert translate(error, write=True) is error
    assert translate_connect(error, "redis://h") is error


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (TimeoutError(), StoreUnavailable, "no answer in time"),
        (ConnectionRefusedError(), StoreUnavailable, "ConnectionRefusedError"),
        (ssl.SSLEOFError(8, "bad"), StoreUnavailable, "uses TLS"),
        (UnicodeError("label too long"), ConfigurationError, "host name"),
        (Lost("cut", sent=True), StoreUnavailable, "it is a Redis server"),
    ],
)
def test_a_failed_connection_says_why_and_where(error, expected, says):
    translated = translate_connect(error, "redis://h")
    assert type(translated) is expected
    assert says in str(translated)
    assert "redis://h" in str(translated)


def test_reading_capabilities_imports_no_client_library():
    code = (
        "import sys; from outlive.connect import find_factory; f = find_factory('redis');"
        "f.capabilities; f.options; sys.exit('hiredis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_missing_library_is_named_with_the_command_that_fixes_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "hiredis", None)
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("h")
    )
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[redis\]'"):
        await RedisFactory().open(parse_url("redis://127.0.0.1:1"), context)
