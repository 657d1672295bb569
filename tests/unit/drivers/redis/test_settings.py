"""What a URL and its options mean, and that mistakes in them are told."""

from __future__ import annotations

import pytest

from outlive.drivers.redis.settings import RedisSettings, read_settings
from outlive.errors import ConfigurationError
from outlive.model.location import parse_url

pytestmark = pytest.mark.whitebox


def settings(url: str, **options: object) -> RedisSettings:
    return read_settings(parse_url(url), options)


def test_the_parts_of_a_url_are_found():
    found = settings("redis://us%40er:p%2Fw@db.example:7000/3")
    assert (found.host, found.port, found.database) == ("db.example", 7000, 3)
    assert (found.username, found.password, found.tls) == ("us@er", "p/w", False)


def test_what_is_left_out_has_a_default():
    found = settings("rediss://db.example")
    assert (found.port, found.database, found.tls) == (6379, 0, True)
    assert (found.username, found.password, found.prefix) == (None, None, "outlive")
    assert found.restart_wait


def test_a_password_alone_has_no_user():
    found = settings("redis://:secret@db.example")
    assert (found.username, found.password) == (None, "secret")


def test_a_unix_socket_is_named_by_its_path():
    found = settings("redis+unix:///run/redis.sock?db=2")
    assert (found.path, found.database, found.tls) == ("/run/redis.sock", 2, False)


def test_an_argument_wins_over_the_query():
    assert settings("redis://h?command_timeout=3", command_timeout=4).command_timeout_s == 4
    assert not settings("redis://h?restart_wait=true", restart_wait=False).restart_wait


def test_all_keys_of_a_namespace_share_a_hash_tag():
    assert settings("redis://h?prefix=app").keys_of("blue") == "app:{blue}:"


def test_no_repr_shows_the_password():
    assert "c4nary" not in repr(settings("redis://:c4nary@h"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis:///0", "has no host"),
        ("redis://user@h/0", "has a user but no password"),
        ("redis://h/many", "the database must be a number"),
        ("redis://h/-1", "the database must be a number"),
        ("redis://h/1?db=2", "the URL has database '1'"),
        ("redis://h?prefix=a*", "prefix"),
        ("redis://h?prefix={x}", "prefix"),
        ("redis://h?prefix=", "prefix"),
        ("redis://h?command_timeout=soon", "command_timeout must be a number"),
        ("redis://h?connect_timeout=0", "connect_timeout must be between"),
        ("redis://h?restart_wait=maybe", "restart_wait must be true or false"),
        ("rediss://h?tls_key=k", "tls_cert"),
        ("redis+unix://h/path", "redis\\+unix:///path"),
    ],
)
def test_a_mistake_is_named(url, says):
    with pytest.raises(ConfigurationError, match=says):
        settings(url)


def test_files_that_cannot_be_used_are_named_by_their_options(tmp_path):
    (tmp_path / "no.pem").write_text("nothing")
    for option in ("tls_ca", "tls_cert"):
        found = settings("rediss://h", **{option: str(tmp_path / "no.pem")})
        with pytest.raises(ConfigurationError, match=option):
            found.tls_context()
    assert settings("redis://h").tls_context() is None
