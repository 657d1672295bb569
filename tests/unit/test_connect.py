"""Connecting: what is refused before anything is opened, and how."""

from __future__ import annotations

import pytest

import outlive
from outlive import ConfigurationError, InvalidName, StoreUnavailable
from outlive.connect import driver_schemes, find_factory
from outlive.model.location import parse_url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "no store URL"),
        ("nonsense", "scheme://"),
        ("sqlit:///x.db", "did you mean sqlite://"),
        ("mongodb://x", "no driver for mongodb://"),
        ("memory://?colour=red", "unknown option 'colour'"),
        ("sqlite:///x.db?busy_timeot=3", "did you mean 'busy_timeout'"),
        ("postgresql://u:pw@h:notaport/d", "cannot be parsed"),
        ("x" * 5000 + "://", "longer than"),
    ],
)
async def test_a_bad_url_is_refused_with_advice(url, message):
    with pytest.raises(ConfigurationError, match=message):
        await outlive.connect(url)


async def test_nothing_configured_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLIVE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="OUTLIVE_URL"):
        await outlive.connect()


async def test_the_environment_names_the_store(monkeypatch):
    monkeypatch.setenv("OUTLIVE_URL", "memory://from-env")
    async with outlive.connect(name="a") as host:
        assert host.capabilities.backend.lower() == "memory"


@pytest.mark.parametrize("host", ["a/b", "", "x" * 129, "a\nb"])
async def test_bad_host_names_are_refused(host):
    with pytest.raises(InvalidName):
        await outlive.connect("memory://", name=host)


@pytest.mark.parametrize("namespace", ["", "a b", "é", "x" * 65, "-x", "a/b", "a'b"])
async def test_bad_namespaces_are_refused(namespace):
    with pytest.raises((InvalidName, ConfigurationError)):
        await outlive.connect("memory://", namespace=namespace)


async def test_a_store_that_is_not_there_is_unavailable_and_no_secret_is_shown():
    with pytest.raises(StoreUnavailable) as caught:
        await outlive.connect("postgresql://user:s3cr3t-canary@127.0.0.1:1/x")
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cr3t-canary" not in str(error)
        assert "s3cr3t-canary" not in repr(error)
        error = error.__cause__ or error.__context__


def test_a_location_never_shows_its_secret():
    location = parse_url("postgresql://user:s3cr3t-canary@db/x?sslpassword=s3cr3t-canary")
    assert "s3cr3t-canary" not in f"{location} {location!r}"
    assert str(location) == "postgresql://user@db/x"


def test_a_location_shows_every_host_of_its_url():
    location = parse_url("postgresql://user:s3cr3t-canary@one:5432,two:5433/x")
    assert str(location) == "postgresql://user@one:5432,two:5433/x"


@pytest.mark.parametrize("secret", ["canary/77", "1/canary", "a?canary", "a#canary", "1#canary"])
def test_a_password_that_needs_escaping_is_refused_and_not_shown(secret):
    with pytest.raises(ConfigurationError, match="percent-encoded") as caught:
        parse_url(f"postgresql://user:{secret}@db/x")
    assert "canary" not in str(caught.value)


def test_a_file_may_have_an_at_sign():
    assert parse_url("sqlite:////tmp/a@b.db").path == "/" + "/tmp/a@b.db"


async def test_capitals_in_a_scheme_mean_nothing(tmp_path):
    location = parse_url("PostgreSQL://Ann@db/X")
    assert (location.scheme, location.url) == ("postgresql", "postgresql://Ann@db/X")
    async with outlive.connect(f"SQLITE:///{tmp_path}/A.db"):
        assert (tmp_path / "A.db").exists()


def test_every_scheme_has_a_factory_with_capabilities():
    schemes = driver_schemes()
    assert {"memory", "sqlite", "postgresql", "postgres"} <= set(schemes)
    for scheme in schemes:
        assert find_factory(scheme).capabilities.ttl_min_s > 0


async def test_a_ttl_outside_the_backends_range_is_refused_on_connect(tmp_path):
    options = outlive.LeaseOptions(ttl=0.001)
    with pytest.raises(outlive.UsageError, match="ttl must be at least"):
        await outlive.connect(f"sqlite:///{tmp_path}/x.db", leases=options)


def test_a_forgotten_await_is_explained():
    with pytest.raises(AttributeError, match="await"):
        _ = outlive.connect("memory://").leases


async def test_running_nothing_is_refused():
    async with outlive.connect("memory://") as host:
        with pytest.raises(outlive.UsageError, match="nothing to run"):
            await host.run()


def test_a_leader_is_a_coroutine_function():
    with pytest.raises(outlive.UsageError, match="async def"):

        @outlive.App("x").leader("k")
        def lead(lease: outlive.Lease) -> None: ...


async def test_an_app_is_no_name_of_one():
    with pytest.raises(outlive.UsageError, match=r"app must be an outlive\.App, not str"):
        await outlive.connect("memory://", app="good:app")
