"""The wizard: at a terminal, from a script, and on the days when something is wrong."""

from __future__ import annotations

import tomllib

import pytest

from outlive.cli.stores import STORES, access_of

CANARY = "hunter2-canary"


def written(program):
    path = program.folder / "outlive.local.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    return tomllib.loads(path.read_text())


def is_untouched(program) -> bool:
    return not (program.folder / "outlive.local.toml").exists()


def test_a_store_is_chosen_tried_and_written(shared):
    store = next(s for s in STORES if s.serves(shared.url.partition("://")[0]))
    access = access_of(store, shared.store.auth)
    terminal = shared.at_terminal("configure", OUTLIVE_URL="")
    terminal.expect(r"Which kind of store\?")
    terminal.expect(r"Store \[1\]: ")
    terminal.type(store.name)
    if len(store.access) > 1:
        terminal.expect(r"Authentication \[.*\]: ")
        terminal.type(access.name)
    if access.setting is not None:
        terminal.expect(r"Name of the variable that holds the secret")
        terminal.type(shared.store.variable)
    if access.setting != "url":
        terminal.expect(r"Endpoint \(.*: ")
        terminal.type(shared.url)
    terminal.expect(r"it works")
    assert terminal.finish() == 0
    assert shared.store.variable in (shared.folder / "outlive.local.toml").read_text()
    if access.setting != "url":
        assert written(shared)["url"] == shared.url
    # From here on the file speaks.
    assert shared("lease", "acquire", "k", OUTLIVE_URL="").code == 0
    assert shared("lease", "ls", "-o", "jsonl", OUTLIVE_URL="").lines[0]["key"] == "k"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--backend", "sqlite"), {"url": "sqlite:///outlive.db"}),
        (("--url", "sqlite:///x.db"), {"url": "sqlite:///x.db"}),
        (("--backend", "memory"), {"url": "memory://demo"}),
        (("--url", "postgres://u@h/db"), {"url": "postgres://u@h/db"}),
        (("--backend", "postgresql", "--auth", "url"), {"url": "env:DATABASE_URL"}),
        (("--backend", "redis"), {"url": "redis://localhost:6379/0"}),
        (("--url", "rediss://h:6380/1"), {"url": "rediss://h:6380/1"}),
        (("--backend", "redis", "--auth", "url", "--variable", "R"), {"url": "env:R"}),
        (("--url", "azblob://account/container"), {"url": "azblob://account/container"}),
        (
            ("--url", "azblob://account/container", "--auth", "connection-string"),
            {
                "url": "azblob://account/container",
                "options": {"connection_string": "env:AZURE_STORAGE_CONNECTION_STRING"},
            },
        ),
        (
            ("--url", "cosmos://account/db/c", "--auth", "key", "--variable", "COSMOS"),
            {"url": "cosmos://account/db/c", "options": {"account_key": "env:COSMOS"}},
        ),
    ],
)
def test_a_script_answers_by_options(shell, arguments, wanted):
    done = shell("configure", *arguments, "--no-test", "-o", "json", OUTLIVE_URL="")
    assert done.code == 0, done.stderr
    assert written(shell) == wanted
    assert done.document["url"] == wanted["url"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--backend"),
        (("--url", "nonsense"), "--backend"),
        (("--backend", "azblob"), "--url azblob://ACCOUNT/CONTAINER"),
        (("--backend", "redis", "--url", "sqlite:///x.db"), "must have the form redis://"),
        (("--backend", "sqlite", "--auth", "key"), "has no authentication 'key'"),
        (("--backend", "redis", "--auth", "url", "--variable", "a b"), "give its name"),
        (("--url", f"postgresql://u:{CANARY}@h/db"), "--auth url"),
        (("--url", "postgresql://u:abc@h/db", "--no-test"), "--auth url"),
        (("--url", "sqlite:///\udcff.db", "--no-test"), "UTF-8"),
        (("--backend", "mysql"), "not one of"),
    ],
)
def test_wrong_answers_are_refused_and_nothing_is_written(shell, arguments, said):
    done = shell("configure", *arguments, OUTLIVE_URL="")
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]
    assert CANARY not in done.stderr
    assert is_untouched(shell)


def test_a_secret_stays_in_its_variable(shell):
    url = f"sqlite:///{shell.folder}/secret.db"
    chosen = ("--backend", "postgresql", "--auth", "url", "--variable", "MY_STORE")
    done = shell("configure", *chosen, OUTLIVE_URL="", MY_STORE=url)
    assert done.code == 0, done.stderr
    assert written(shell) == {"url": "env:MY_STORE"}
    assert shell("lease", "acquire", "k", OUTLIVE_URL="", MY_STORE=url).code == 0
    unset = shell("lease", "ls", OUTLIVE_URL="")
    assert unset.code == 2
    assert "refers to the variable 'MY_STORE', which is not set" in unset.stderr
    hidden = f"postgresql://u:{CANARY}@127.0.0.1:1/db"
    for arguments in (("lease", "ls"), ("config", "show", "--origin"), ("doctor",)):
        shown = shell(*arguments, "-v", OUTLIVE_URL="", MY_STORE=hidden)
        assert CANARY not in shown.stdout + shown.stderr


def test_a_script_does_not_replace_a_file_by_accident(shell):
    path = shell.folder / "outlive.local.toml"
    path.write_text('url = "sqlite:///old.db"\n[leases]\nttl = 45\n')
    before = path.read_text()
    refused = shell("configure", "--backend", "sqlite", OUTLIVE_URL="")
    assert refused.code == 2
    assert "--force" in refused.stderr
    assert path.read_text() == before
    forced = shell("configure", "--backend", "sqlite", "--force", OUTLIVE_URL="")
    assert forced.code == 0
    # What else stood there stays.
    assert written(shell) == {"url": "sqlite:///outlive.db", "leases": {"ttl": 45}}


def test_a_person_is_asked_before_a_file_is_replaced(outlive):
    path = outlive.folder / "outlive.local.toml"
    path.write_text('url = "sqlite:///old.db"\n')
    for answer, url in (("n", "sqlite:///old.db"), ("y", "sqlite:///outlive.db")):
        terminal = outlive.at_terminal("configure", "--backend", "sqlite", OUTLIVE_URL="")
        terminal.expect(r"Endpoint")
        terminal.type("")
        terminal.expect(r"already exists. Replace its url\? \[y/N\]: ")
        terminal.type(answer)
        assert terminal.finish() == (130 if answer == "n" else 0)
        assert ("nothing was written" in terminal.screen) == (answer == "n")
        assert tomllib.loads(path.read_text())["url"] == url


def test_a_store_that_does_not_answer_is_not_written_unless_wanted(outlive, shell):
    away = ("--url", "postgresql://u@127.0.0.1:1/db", "--auth", "none")
    alone = shell("configure", *away, OUTLIVE_URL="")
    assert (alone.code, is_untouched(outlive)) == (69, True)
    for answer in ("n", "y"):
        terminal = outlive.at_terminal("configure", *away, OUTLIVE_URL="")
        terminal.expect(r"the store cannot be used yet: .*127\.0\.0\.1:1")
        terminal.expect(r"Write the file anyway\? \[y/N\]: ")
        terminal.type(answer)
        terminal.finish()
        assert is_untouched(outlive) == (answer == "n")


def test_a_password_at_the_prompt_is_refused_and_asked_again(outlive):
    terminal = outlive.at_terminal("configure", "--backend", "postgresql", OUTLIVE_URL="")
    terminal.expect(r"Authentication")
    terminal.type("none")
    terminal.expect(r"Endpoint")
    terminal.type(f"postgresql://u:{CANARY}@127.0.0.1:1/db")
    terminal.expect(r"a password must not be written to the file")
    terminal.expect(r"Endpoint")
    terminal.hang_up()
    assert terminal.finish() == 130
    assert is_untouched(outlive)


def test_a_variable_that_is_not_set_is_named(outlive):
    terminal = outlive.at_terminal("configure", "--backend", "redis", OUTLIVE_URL="")
    terminal.expect(r"Authentication")
    terminal.type("url")
    terminal.expect(r"Name of the variable that holds the secret \[REDIS_URL\]: ")
    terminal.type("")
    terminal.expect(r"'REDIS_URL', which is not set")
    terminal.expect(r"is the variable set in this shell\?")
    terminal.expect(r"Write the file anyway")
    terminal.type("y")
    assert terminal.finish() == 0
    assert written(outlive) == {"url": "env:REDIS_URL"}


def test_a_repository_is_told_to_ignore_the_file(outlive, shell):
    (outlive.folder / ".git").mkdir()
    alone = shell("configure", "--backend", "sqlite", OUTLIVE_URL="")
    assert "to .gitignore: it must not be committed" in alone.stderr
    terminal = outlive.at_terminal("configure", "--backend", "sqlite", "--force", OUTLIVE_URL="")
    terminal.expect(r"Endpoint")
    terminal.type("")
    terminal.expect(r"Add outlive.local.toml to .gitignore\? \[Y/n\]: ")
    terminal.type("")
    assert terminal.finish() == 0
    assert (outlive.folder / ".gitignore").read_text() == "outlive.local.toml\n"
    again = shell("configure", "--backend", "sqlite", "--force", OUTLIVE_URL="")
    assert ".gitignore" not in again.stderr


def test_what_was_written_is_not_denied_when_the_last_question_is_left_open(outlive):
    (outlive.folder / ".git").mkdir()
    terminal = outlive.at_terminal("configure", "--backend", "sqlite", OUTLIVE_URL="")
    terminal.expect(r"Endpoint")
    terminal.type("")
    terminal.expect(r"Add outlive.local.toml to .gitignore\? \[Y/n\]: ")
    terminal.hang_up()
    assert terminal.finish() == 130
    assert written(outlive) == {"url": "sqlite:///outlive.db"}
    assert "nothing was written" not in terminal.screen


def test_a_file_that_appeared_during_the_questions_is_left_alone(outlive):
    path = outlive.folder / "outlive.local.toml"
    away = ("--url", "postgresql://u@127.0.0.1:1/db", "--auth", "none")
    terminal = outlive.at_terminal("configure", *away, OUTLIVE_URL="")
    terminal.expect(r"Write the file anyway")
    path.write_text('url = "sqlite:///theirs.db"\n')
    terminal.type("y")
    terminal.expect(r"was created by another process meanwhile")
    assert terminal.finish() == 2
    assert tomllib.loads(path.read_text()) == {"url": "sqlite:///theirs.db"}
    assert [entry.name for entry in outlive.folder.glob("*.new")] == []


def test_a_gitignore_in_another_encoding_is_no_obstacle(shell):
    (shell.folder / ".git").mkdir()
    (shell.folder / ".gitignore").write_bytes(b"f\xfcr-mich\n")
    done = shell("configure", "--backend", "sqlite", OUTLIVE_URL="")
    assert done.code == 0, done.stderr
    assert "to .gitignore: it must not be committed" in done.stderr


def test_an_unreadable_file_is_left_alone(outlive):
    path = outlive.folder / "outlive.local.toml"
    path.write_text("not = = toml")
    done = outlive("configure", "--backend", "sqlite", "--force", OUTLIVE_URL="")
    assert done.code == 2
    assert path.read_text() == "not = = toml"


def test_a_url_chooses_its_store_whatever_its_capitals(shell):
    done = shell("configure", "--url", "SQLITE:///x.db", "--no-test", OUTLIVE_URL="")
    assert done.code == 0, done.stderr
    assert written(shell) == {"url": "SQLITE:///x.db"}
