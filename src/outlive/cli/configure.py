"""``outlive configure``: asks where the store is, tries it, and writes ``outlive.local.toml``.

Owns the questions. Everything it asks can be said by options, so that a script answers too; what
neither says has a default or is refused. Must never write a secret, and never replaces a file
without a yes.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from outlive import settings as settings_module
from outlive.cli import errors, settings_file, signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import clean, emit_fields, say
from outlive.cli.stores import BACKENDS, STORES, Access, Store, access_of, store_of
from outlive.errors import ConfigurationError, OutliveError, UsageError
from outlive.model.location import parse_url
from outlive.settings import FILE_LOCAL, PREFIX, Settings, is_reference, reference_to

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the options of the command said already; ``None`` where they said nothing."""

    backend: str | None = None
    url: str | None = field(default=None, repr=False)
    auth: str | None = None
    variable: str | None = None
    force: bool = False
    test: bool = True


@click.command()
@click.option("--backend", type=click.Choice(BACKENDS), help="The kind of store.")
@click.option("--auth", help="Authentication to the store: none, url, identity, …")
@click.option("--variable", help="The variable that holds the secret; only its name is written.")
@click.option("--force", is_flag=True, help="Replace the url and options of an existing file.")
@click.option("--test/--no-test", default=True, help="Try the store before writing (default).")
@global_options
def configure(
    backend: str | None, auth: str | None, variable: str | None, force: bool, test: bool
) -> None:
    """Choose a store, try it, and write outlive.local.toml for this folder.

    Options that are not given are asked for at a terminal. Secrets are not written: the file
    refers to the variable that holds the secret.
    """
    invocation = current()
    answers = Answers(
        backend=backend,
        url=invocation.url,
        auth=auth,
        variable=variable,
        force=force,
        test=test,
    )
    path = run_wizard(invocation, answers)
    emit_fields(invocation.output, {"file": str(path), "url": _shown(path.parent)})


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def run_wizard(invocation: Invocation, answers: Answers) -> Path:
    """Settle all questions, try the store, write the file, and return its path.

    Raises:
        UsageError: Something is open and nobody is there to ask, or the answers do not fit.
        OutliveError: The store was tried, did not answer well, and nobody wants to keep it.
    """
    folder = Path.cwd()
    try:
        store = _ask_store(answers)
        access = _ask_access(store, answers)
        chosen = _ask_place(store, access, answers)
        is_there = settings_file.is_there(folder)
        kept = _may_replace(folder, answers)
        text = settings_file.render({**kept, **chosen})
        if answers.test:
            _try(invocation, text, access)
    except (click.Abort, EOFError):
        # Ctrl-C at a question, or a no to one that asks whether to go on.
        say("nothing was written")
        raise errors.Stopped(signal.SIGINT) from None
    path = settings_file.write(folder, text, replace=is_there)
    say(f"{path} was written, readable by you alone")
    if not settings_file.is_ignored(folder):
        _offer_ignoring(folder)
    if os.environ.get(f"{PREFIX}URL"):
        say(f"{PREFIX}URL is set in this shell and wins over the file")
    return path


def _ask_store(answers: Answers) -> Store:
    if answers.backend is not None:
        return store_of(answers.backend)
    if answers.url is not None:
        scheme = answers.url.partition("://")[0].lower()
        for store in STORES:
            if store.serves(scheme):
                return store
    _need_terminal("--backend")
    click.echo("Which kind of store?", err=True)
    for number, store in enumerate(STORES, 1):
        click.echo(f"  {number}  {store.says}", err=True)
    numbers = [str(number) for number in range(1, len(STORES) + 1)]
    answer = _prompt("Store", "1", click.Choice([*numbers, *BACKENDS]))
    return STORES[int(answer) - 1] if answer in numbers else store_of(answer)


def _ask_access(store: Store, answers: Answers) -> Access:
    if answers.auth is not None:
        return access_of(store, answers.auth)
    if len(store.access) == 1 or not can_ask():
        return store.access[0]
    click.echo("Which authentication to the store?", err=True)
    for access in store.access:
        click.echo(f"  {access.name:<17}  {access.says}", err=True)
    names = [access.name for access in store.access]
    return access_of(store, _prompt("Authentication", names[0], click.Choice(names)))


def _ask_place(store: Store, access: Access, answers: Answers) -> dict[str, Any]:
    """The settings of the store: its URL and the reference to its secret."""
    reference = None
    if access.setting is not None:
        reference = reference_to(_ask_variable(access, answers))
    if access.setting == "url":
        return {"url": reference, "options": {}}
    options = {} if access.setting is None else {access.setting: reference}
    return {"url": _ask_url(store, answers), "options": options}


def _ask_url(store: Store, answers: Answers) -> str:
    if answers.url is not None:
        return _checked_url(store, answers.url)
    if not can_ask():
        if store.default is None:
            raise UsageError(f"no terminal to ask at: give --url {store.form}")
        return store.default
    return _until_valid(
        lambda: _prompt(f"Endpoint ({store.form})", store.default),
        lambda text: _checked_url(store, text),
    )


def _ask_variable(access: Access, answers: Answers) -> str:
    if answers.variable is not None or not can_ask():
        return _checked_variable(answers.variable or access.variable)
    return _until_valid(
        lambda: _prompt("Name of the variable that holds the secret", access.variable),
        _checked_variable,
    )


def _until_valid(ask: Callable[[], str], check: Callable[[str], str]) -> str:
    while True:
        try:
            return check(ask())
        except UsageError as error:
            say(str(error))


def _checked_url(store: Store, url: str) -> str:
    if settings_module.holds_secret(url):
        raise UsageError(
            "a password must not be written to the file: put the URL into a variable, and choose "
            "--auth url"
        )
    if not settings_file.can_hold(url):
        raise UsageError("the URL is not valid UTF-8, so it cannot be written to the file")
    scheme = parse_url(url).scheme
    if not store.serves(scheme):
        raise UsageError(f"a URL of {store.name} must have the form {store.form}, not {scheme}://…")
    return url


def _checked_variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise UsageError(
            "the name of a variable has only A-Z, a-z, 0-9 and '_': give its name, not its value"
        )
    return name


def _may_replace(folder: Path, answers: Answers) -> dict[str, Any]:
    """What stays of the file that is there.

    Raises:
        UsageError: There is one, and nobody said that it may be changed.
    """
    present = settings_file.read(folder)
    kept = {name: value for name, value in present.items() if name not in ("url", "options")}
    if not settings_file.is_there(folder) or answers.force:
        return kept
    if not can_ask():
        raise UsageError(f"{folder / FILE_LOCAL} already exists; --force replaces its url")
    if not click.confirm(f"{FILE_LOCAL} already exists. Replace its url?", err=True):
        raise click.Abort
    return kept


def _try(invocation: Invocation, text: str, access: Access) -> None:
    """Open the store as the file would; what is wrong is said, and asked about at a terminal."""
    try:
        settings = _as_written(text)
        invocation.secrets |= errors.secrets_of(settings)
        said = signals.run(lambda _: _probe(invocation, settings))
    except OutliveError as error:
        if not can_ask():
            raise
        invocation.complain(f"the store cannot be used yet: {error}")
        if access.setting is not None:
            say("is the variable set in this shell?")
        if not click.confirm("Write the file anyway?", err=True):
            raise click.Abort from None
        return
    for line in said:
        invocation.complain(line)


def _as_written(text: str) -> Settings:
    """The settings that hold once ``text`` is the file and nothing else speaks."""
    with tempfile.TemporaryDirectory(prefix="outlive-configure-") as folder:
        settings_file.write(Path(folder), text, replace=False)
        others = (f"{PREFIX}URL", f"{PREFIX}OPTIONS_")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(others)}
        return settings_module.load({}, environ=environ, directory=Path(folder))


async def _probe(invocation: Invocation, settings: Settings) -> list[str]:
    target = invocation.target(settings=settings)
    async with invocation.open(target) as driver:
        findings = await driver.check()
    wrong = [finding for finding in findings if finding.level == "error"]
    if wrong:
        raise ConfigurationError(f"{wrong[0].what}; {wrong[0].advice}")
    warnings = [f"{f.what} ({f.advice})" for f in findings if f.level == "warning"]
    return [f"connected to {target.location}: it works", *warnings]


def _offer_ignoring(folder: Path) -> None:
    try:
        wanted = can_ask() and click.confirm(
            f"Add {FILE_LOCAL} to .gitignore?", default=True, err=True
        )
    except click.Abort:
        raise errors.Stopped(signal.SIGINT) from None
    if wanted:
        settings_file.ignore(folder)
    else:
        say(f"add {FILE_LOCAL} to .gitignore: it must not be committed")


def _prompt(text: str, default: str | None, kind: click.Choice[str] | None = None) -> str:
    return click.prompt(text, default=default, type=kind, show_choices=False, err=True).strip()


def _need_terminal(option: str) -> None:
    if not can_ask():
        raise UsageError(f"no terminal to ask at: give {option} ({', '.join(BACKENDS)})")


def _shown(folder: Path) -> str:
    url = str(settings_file.read(folder)["url"])
    return clean(url if is_reference(url) else settings_module.shown_url(url))
