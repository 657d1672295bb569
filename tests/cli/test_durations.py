"""Durations and settings as people write them, on the way that they go."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlive
from outlive import ConfigurationError, UsageError
from tests.cli.conftest import Shell


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1500ms", 1.5),
        ("1.5s", 1.5),
        ("00:00:30", 30),
        ("1.12:00:00", 129_600),
    ],
)
def test_a_duration_is_read_wherever_one_is_given(shell: Shell, text: str, seconds: float) -> None:
    (shell.folder / "outlive.toml").write_text(f'session_ttl = "{text}"\n')
    shown = shell("config", "show", "-o", "json", OUTLIVE_LEASES_TTL=text)
    rows = {row["name"]: row["value"] for row in shown.document["settings"]}
    assert (rows["session_ttl"], rows["leases.ttl"]) == (seconds, seconds)
    acquired = shell("lease", "acquire", "k", "--ttl", text, "-o", "json")
    assert acquired.document["ttl_s"] == seconds


def test_a_duration_is_read_in_the_query_of_a_url(shell: Shell) -> None:
    assert shell("migrate", "--url", f"{shell.url}?busy_timeout=1m").code == 0
    refused = shell("migrate", "--url", f"{shell.url}?busy_timeout=2h")
    assert "busy_timeout must be" in refused.stderr


@pytest.mark.parametrize("text", ["", "s", "30 s", "1m1h", "1.2.3s", "00:61:00", "5x", "m"])
def test_what_is_no_duration_is_refused_with_examples(shell: Shell, text: str) -> None:
    done = shell("lease", "acquire", "k", "--ttl", text)
    assert done.code == 2
    assert "30s, 1h30m, 00:00:30" in done.stderr


def test_variables_of_others_stop_no_command(shell: Shell) -> None:
    others = {"OUTLIVE_IMAGE_TAG": "v3", "OUTLIVE_LOG_LEVEL": "debug"}
    assert shell("config", "show", **others).code == 0
    typed = shell("config", "show", OUTLIVE_NAMSPACE="x")
    assert (typed.code, "did you mean 'OUTLIVE_NAMESPACE'?" in typed.stderr) == (2, True)


async def test_a_mistyped_argument_of_connect_is_named() -> None:
    with pytest.raises(UsageError, match=r"connect has no option 'nmspace'; did you mean 'namesp"):
        outlive.connect("memory://", nmspace="x")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigurationError, match="url must be a string, not PosixPath"):
        await outlive.connect(Path("x.db"))  # pyright: ignore[reportArgumentType]
