"""What the URL and the options ask for, and that no secret shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.drivers.etcd.settings import EtcdSettings, read_settings
from outlive.errors import ConfigurationError
from outlive.model.location import parse_url


def settings(url: str, **options: object) -> EtcdSettings:
    return read_settings(parse_url(url), options)


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("etcd://db", ("db:2379",)),
        ("etcd://db:1", ("db:1",)),
        ("etcd://a:1,b,c:3", ("a:1", "b:2379", "c:3")),
        ("etcd://[::1]:1,[::1]", ("[::1]:1", "[::1]:2379")),
        ("etcd://u:p@a:1,b:2/", ("a:1", "b:2")),
    ],
)
def test_members_are_read(url: str, endpoints: tuple[str, ...]) -> None:
    assert settings(url).endpoints == endpoints


def test_a_user_and_a_password_are_decoded_and_hidden() -> None:
    read = settings("etcd://us%40er:pass%2Fword-canary@a:1,b:2?prefix=x")
    assert (read.user, read.password) == ("us@er", "pass/word-canary")
    assert read.shown == "etcd://us@er@a:1,b:2"
    assert "canary" not in repr(read)


def test_arguments_win_over_the_query() -> None:
    read = settings("etcd://a?prefix=x&command_timeout=3", command_timeout="7")
    assert (read.prefix, read.command_timeout_s) == ("x", 7.0)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("etcd://", "names 1 to"),
        ("etcd://" + ",".join(["a"] * 17), "names 1 to"),
        ("etcd://user@a", "has a password"),
        ("etcd://a/path", "no path"),
        ("etcd://a?prefix=/x", "prefix"),
        ("etcd://a?prefix=x/", "prefix"),
        ("etcd://a?prefix=" + "x" * 129, "prefix"),
        ("etcd://a?tls=perhaps", "tls is true or false"),
        ("etcds://a?tls=false", "choose one"),
        ("etcd://a?tls=false&ca=x", "choose one"),
        ("etcds://a?ca=missing.pem", "cannot be read"),
        ("etcds://a?cert=x", "belong together"),
        ("etcd://a?command_timeout=soon", "number of seconds"),
        ("etcd://a?connect_timeout=0", "between"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        settings(url)


def test_a_port_that_is_no_number_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings("etcd://a:1,b:secret-canary")
    assert "canary" not in str(raised.value)


def test_tls_is_asked_for_by_scheme_switch_or_file(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_bytes(b"PEM")
    assert settings("etcd://a").tls is None
    for read in (settings("etcds://a"), settings("etcd://a?tls=on")):
        assert read.tls is not None
        assert read.tls.ca is None
    read = settings("etcd://a", ca=pem, cert=pem, key=pem, server_name="etcd.example")
    assert read.tls is not None
    assert (read.tls.ca, read.tls.server_name) == (b"PEM", "etcd.example")
    assert "key=" not in repr(read)
