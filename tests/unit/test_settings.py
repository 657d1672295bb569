"""Settings: precedence, refusals, and secrets that never show."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from outlive.errors import ConfigurationError
from outlive.model.options import LeaseOptions
from outlive.settings import _LEASES, FILE_BYTES_MAX, Settings, load

CANARY = "hunter2-canary"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, text: str, *, local: bool = False, mode: int = 0o644) -> None:
    path = folder / ("outlive.local.toml" if local else "outlive.toml")
    path.write_text(text)
    path.chmod(mode)


def settle(folder: Path, environ: dict[str, str] | None = None, **arguments: object) -> Settings:
    return load(arguments, environ=environ or {}, directory=folder)


def test_defaults_hold_when_nothing_is_given(folder):
    settings = settle(folder)
    assert settings.url is None
    assert settings.namespace == "default"
    assert settings.session_ttl_s == 10
    assert settings.session is True
    assert settings.migrate is None
    assert settings.leases == LeaseOptions()
    assert set(settings.origins.values()) == {"default"}


def test_each_source_wins_over_the_one_below(folder):
    steps: list[tuple[str, str]] = []
    write(folder, 'namespace = "file"')
    steps.append((settle(folder).namespace, settle(folder).origins["namespace"]))
    write(folder, 'namespace = "local"', local=True)
    steps.append((settle(folder).namespace, settle(folder).origins["namespace"]))
    environ = {"OUTLIVE_NAMESPACE": "env"}
    from_environ = settle(folder, environ)
    steps.append((from_environ.namespace, from_environ.origins["namespace"]))
    given = settle(folder, environ, namespace="argument")
    steps.append((given.namespace, given.origins["namespace"]))
    assert steps == [
        ("file", "outlive.toml"),
        ("local", "outlive.local.toml"),
        ("env", "OUTLIVE_NAMESPACE"),
        ("argument", "argument"),
    ]


def test_keys_are_decided_one_by_one(folder):
    write(folder, "[leases]\nttl = 60\nat_risk = 0.5\n[options]\na = 1\nb = 2")
    environ = {"OUTLIVE_LEASES_TTL": "9", "OUTLIVE_OPTIONS_B": "3"}
    settings = settle(folder, environ, options={"c": 4})
    assert settings.leases == LeaseOptions(ttl=9.0, at_risk=0.5)
    assert settings.options == {"a": 1, "b": "3", "c": 4}
    assert settings.origins["leases.at_risk"] == "outlive.toml"
    assert settings.origins["options.b"] == "OUTLIVE_OPTIONS_B"


def test_every_lease_option_can_be_set_by_a_variable(folder):
    assert set(_LEASES) == {field.name for field in fields(LeaseOptions)}
    text = {
        "OUTLIVE_LEASES_TTL": "60",
        "OUTLIVE_LEASES_AUTO_RENEW": "off",
        "OUTLIVE_LEASES_RENEW_INTERVAL": "7",
        "OUTLIVE_LEASES_RENEW_JITTER": "0.2",
        "OUTLIVE_LEASES_RENEW_RETRIES_MAX": "3",
        "OUTLIVE_LEASES_RENEW_BACKOFF": "0.1,1",
        "OUTLIVE_LEASES_AT_RISK": "0.5",
        "OUTLIVE_LEASES_SAFETY_MARGIN": "2",
        "OUTLIVE_LEASES_ACQUIRE_RETRY": "0.2, 2",
        "OUTLIVE_LEASES_TIMEOUT": "11",
        "OUTLIVE_LEASES_STALL_LIMIT": "12",
    }
    assert len(text) == len(_LEASES)
    assert settle(folder, text).leases == LeaseOptions(
        ttl=60,
        auto_renew=False,
        renew_interval=7,
        renew_jitter=0.2,
        renew_retries_max=3,
        renew_backoff=(0.1, 1),
        at_risk=0.5,
        safety_margin=2,
        acquire_retry=(0.2, 2),
        timeout=11,
        stall_limit=12,
    )


def test_lease_options_as_argument_win_whole(folder):
    write(folder, "[leases]\nat_risk = 0.5")
    settings = settle(folder, leases=LeaseOptions(ttl=5))
    assert settings.leases == LeaseOptions(ttl=5)
    assert settings.origins["leases.at_risk"] == "argument"


def test_durations_may_be_timedelta(folder):
    assert settle(folder, session_ttl=timedelta(minutes=1)).session_ttl_s == 60


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_counts_as_not_given(folder, text):
    assert settle(folder, {"OUTLIVE_URL": text, "OUTLIVE_SESSION_TTL": text}).url is None


@pytest.mark.parametrize(
    "variable",
    [
        "OUTLIVE_BENCH_PG",
        "OUTLIVE_IMAGE_TAG",
        "OUTLIVE_LEASES_SERVICE_HOST",
        "OUTLIVE_LEASE_KEY",
        "OUTLIVE_LEASE_OWNER",
        "OUTLIVE_LEASE_TOKEN",
        "OUTLIVE_PYTHON",
        "OUTLIVE_SEED",
        "OUTLIVE_SOAK",
        "OUTLIVE_VENV",
        "OUTLIVE_SERVICE_HOST",
        "OUTLIVE_PORT_5432_TCP_ADDR",
        "OUTLIVE_WEB_PORT",
    ],
)
def test_foreign_variables_with_the_prefix_are_let_alone(folder, variable):
    assert settle(folder, {variable: "x"}).origins == settle(folder).origins


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OUTLIVE_NAMSPACE": "x"}, "did you mean 'OUTLIVE_NAMESPACE'"),
        ({"OUTLIVE_LEASE_TTL": "1"}, "did you mean 'OUTLIVE_LEASES_TTL'"),
        ({"OUTLIVE_SESSION_TTL": "abc"}, "OUTLIVE_SESSION_TTL='abc'.*number of seconds"),
        ({"OUTLIVE_SESSION_TTL": "0"}, r"at least 0\.1 s"),
        ({"OUTLIVE_SESSION_TTL": "0.001"}, r"at least 0\.1 s"),
        ({"OUTLIVE_SESSION_TTL": "-3"}, r"at least 0\.1 s"),
        ({"OUTLIVE_LEASES_TTL": "-1"}, "ttl must be above 0 s"),
        ({"OUTLIVE_SESSION_TTL": "nan"}, "finite"),
        ({"OUTLIVE_SESSION_TTL": "1e400"}, "finite"),
        ({"OUTLIVE_SESSION_TTL": "1e300"}, "ten years"),
        ({"OUTLIVE_MIGRATE": "maybe"}, "true or false"),
        ({"OUTLIVE_LEASES_RENEW_RETRIES_MAX": "1.5"}, "whole number"),
        ({"OUTLIVE_LEASES_ACQUIRE_RETRY": "1"}, "two numbers"),
        ({"OUTLIVE_LEASES_RENEW_INTERVAL": "99"}, "from OUTLIVE_LEASES_RENEW_INTERVAL"),
        ({"OUTLIVE_OPTIONS_": "1"}, "unknown variable"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(folder, environ, said):
    with pytest.raises(ConfigurationError, match=said):
        settle(folder, environ)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("namspace = 'x'", "did you mean 'namespace'"),
        ("[leases]\ntll = 3", "did you mean 'ttl'"),
        ("[lease]\nttl = 3", "did you mean 'leases'"),
        ("session_ttl = 'soon'", "number of seconds"),
        ("session_ttl = true", "number of seconds"),
        ("migrate = 1", "true or false"),
        ("url = 5", "url must be a string, not int"),
        ("leases = 5", "a table"),
        ("[leases]\nrenew_backoff = [1]", "two numbers"),
        ("[leases]\nrenew_jitter = 'a'", "a number"),
        ("[options]\n'a b' = 1", "is not a valid option name"),
        ("[options]\na = [1]", "a string, a number"),
        ("x =", "not valid"),
        ("x = " + "[" * 5000, "not valid"),
        ("x = " + "9" * 6000, "not valid"),
        ("#" * (FILE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_a_wrong_file_is_refused_by_name(folder, text, said):
    write(folder, text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        settle(folder)
    assert "outlive.toml" in str(caught.value)


def test_a_file_that_is_no_text_is_refused(folder):
    (folder / "outlive.toml").write_bytes(b"url = '\xff\xfe'")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        settle(folder)


def test_a_folder_in_place_of_a_file_is_refused(folder):
    (folder / "outlive.toml").mkdir()
    with pytest.raises(ConfigurationError, match="not a file"):
        settle(folder)


@pytest.mark.parametrize(
    "arguments",
    [
        {"nmespace": "x"},
        {"url": 5},
        {"namespace": b"x"},
        {"migrate": "yes"},
        {"session": 1},
        {"leases": {"ttl": 3}},
        {"options": ["a"]},
        {"session_ttl": "10"},
    ],
)
def test_a_wrong_argument_is_refused(folder, arguments):
    with pytest.raises(ConfigurationError):
        load(arguments, environ={}, directory=folder)


SECRET_FILES = [
    f'url = "postgresql://u:{CANARY}@h/db"',
    f'url = "postgresql://u@h/db?password={CANARY}"',
    f'url = "postgresql://u:a/{CANARY}@h/db"',
    f'[options]\npassword = "{CANARY}"',
    f'[options]\nproxy = "http://u:{CANARY}@h:8080"',
    f'[options]\nlisten_url = "postgresql://u:{CANARY}@h/db"',
]


@pytest.mark.parametrize("text", SECRET_FILES)
@pytest.mark.parametrize("local", [True, False])
def test_a_password_that_others_may_read_is_refused(folder, text, local):
    write(folder, text, local=local, mode=0o640)
    with pytest.raises(ConfigurationError, match="chmod 600") as caught:
        settle(folder)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("text", SECRET_FILES)
def test_a_password_in_a_private_file_is_used_and_never_shown(folder, text):
    write(folder, text, local=True, mode=0o600)
    settings = settle(folder)
    assert CANARY in f"{settings.url}{settings.options}"
    assert CANARY not in repr(settings)
    assert CANARY not in str(settings.origins)


def test_a_url_without_password_needs_no_private_file(folder):
    write(folder, 'url = "postgresql://u@h/db?sslmode=require"', local=True, mode=0o644)
    assert settle(folder).url is not None


@pytest.mark.parametrize(
    "environ",
    [
        {"OUTLIVE_URL": f"not a url {CANARY}"},
        {"OUTLIVE_URL": f"postgresql://u:{CANARY}@h/db"},
        {"OUTLIVE_URL": f"postgresql://u:1/{CANARY}@h/db"},
        {"OUTLIVE_OPTIONS_PASSWORD": CANARY},
        {"OUTLIVE_OPTIONS_SSLPASSWORD": CANARY},
        {"OUTLIVE_OPTIONS_PROXY": f"http://u:{CANARY}@h:8080"},
        {"OUTLIVE_OPTIONS_LISTEN_URL": f"postgresql://u:1/{CANARY}@h/db"},
    ],
)
def test_a_secret_from_the_environment_never_shows(folder, environ):
    assert CANARY not in repr(settle(folder, environ))


def test_an_address_without_a_password_is_shown(folder):
    options = {"proxy": "http://u@h:8080", "tls_ca": "/etc/ca@home.pem"}
    assert "'http://u@h:8080'" in repr(settle(folder, options=options))
    assert "'/etc/ca@home.pem'" in repr(settle(folder, options=options))


def test_an_option_may_name_the_variable_that_holds_its_value(folder):
    write(folder, '[options]\nconnection_string = "env:STORE"')
    settings = settle(folder, {"STORE": f"AccountKey={CANARY}"})
    assert settings.options == {"connection_string": f"AccountKey={CANARY}"}
    assert settings.origins["options.connection_string"] == "STORE"
    assert CANARY not in repr(settings)


@pytest.mark.parametrize("environ", [{}, {"STORE": ""}])
def test_an_option_that_names_an_unset_variable_is_refused(folder, environ):
    with pytest.raises(ConfigurationError, match=r"options.account_key.*'STORE'.*not set"):
        settle(folder, environ, options={"account_key": "env:STORE"})


def test_a_connection_string_that_others_may_read_is_refused(folder):
    write(folder, f'[options]\nconnection_string = "AccountKey={CANARY}"')
    with pytest.raises(ConfigurationError, match="chmod 600") as raised:
        settle(folder)
    assert CANARY not in str(raised.value)


def test_a_url_may_name_the_variable_that_holds_it(folder):
    write(folder, 'url = "env:STORE"')
    settings = settle(folder, {"STORE": f"postgresql://u:{CANARY}@h/db"})
    assert settings.url == f"postgresql://u:{CANARY}@h/db"
    assert settle(folder, {"STORE": "sqlite:///x.db\n"}).url == "sqlite:///x.db"
    assert settings.origins["url"] == "STORE"
    assert CANARY not in repr(settings)
    with pytest.raises(ConfigurationError, match=r"url.*'STORE'.*not set"):
        settle(folder)
