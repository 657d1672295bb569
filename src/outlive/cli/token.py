"""``outlive token``: bearer tokens of the HTTP API, and the log of admin acts.

The text of a token is written once, to stdout, when it is made. It is stored nowhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from outlive.cli import audit as audit_log
from outlive.cli import signals
from outlive.cli.invocation import Invocation, create_option, current, global_options
from outlive.cli.output import emit_fields, emit_rows, say
from outlive.errors import TokenNotFound, UnsupportedByDriver, UsageError
from outlive.model.bearer import (
    NAME_LENGTH_MAX,
    PAGE_MAX,
    SECRET_BYTES,
    BearerRecord,
    NewBearer,
    Scope,
    bearer_digest,
    bearer_text,
)
from outlive.names import BearerId, check_reason
from outlive.ports.token_store import TokenStore

T = TypeVar("T")

_COLUMNS = {
    "id": "ID",
    "name": "NAME",
    "scopes": "SCOPES",
    "active": "ACTIVE",
    "created_at": "CREATED",
    "expires_at": "EXPIRES",
    "revoked_at": "REVOKED",
}
_ACT_COLUMNS = {"at": "AT", "actor": "WHO", "action": "WHAT", "subject": "TO"}

# A quarter is long enough to forget no renewal over, and short enough that a lost token dies.
_DAYS_DEFAULT = 90.0

# From a second, below which it would round to never, to ten years, above which it is a mistake in
# the unit, and further on an instant that no calendar has.
_DAYS_MIN, _DAYS_MAX = 1 / 86_400, 3650.0

_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=100,
    show_default=True,
    help="Maximum number to show, newest first.",
)


@click.group()
def token() -> None:
    """Create, list and revoke bearer tokens of the HTTP API."""


@token.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="Permission in its namespace. May be repeated.",
)
@click.option(
    "--days",
    type=float,
    default=_DAYS_DEFAULT,
    show_default=True,
    help="Days until the token expires; 0 is never.",
)
@create_option
@global_options
def make(name: str, scopes: tuple[str, ...], days: float, create: bool) -> None:
    """Create a token called NAME for the namespace, and print it to stdout, once.

    The token is all that a client needs to use its scopes: keep it like a password.
    """
    check_reason(name)
    if len(name) > NAME_LENGTH_MAX:
        raise UsageError(f"the name of a token must have at most {NAME_LENGTH_MAX} characters")
    if days != 0 and not _DAYS_MIN <= days <= _DAYS_MAX:
        raise UsageError(
            f"--days must be from one second to {_DAYS_MAX:g} days, or 0 for no expiry"
        )
    invocation = current()
    text = bearer_text(secrets.token_bytes(SECRET_BYTES), invocation.settings().namespace)
    new = NewBearer(
        id=BearerId(secrets.token_hex(6)),
        name=name,
        digest=bearer_digest(text),
        scopes=tuple(Scope(scope) for scope in dict.fromkeys(scopes)),
        ttl_us=round(days * 86_400e6) or None,
    )

    async def work(tokens: TokenStore) -> BearerRecord | None:
        await tokens.create(new, actor=audit_log.actor())
        return await tokens.find(new.digest)

    record = _run(invocation, work, create=create)
    assert record is not None
    emit_fields(invocation.output, {**_shown(record), "token": text})
    say("this token is not shown again; keep it like a password")


@token.command("ls")
@_LIMIT
@global_options
def list_tokens(limit: int) -> None:
    """List the tokens of the namespace, without their secrets."""
    invocation = current()
    found = _run(invocation, lambda tokens: tokens.list(limit=limit))
    rows = [_shown(record) for record in found]
    emit_rows(invocation.output, "tokens", rows, _COLUMNS)


@token.command()
@click.argument("id")
@global_options
def revoke(id: str) -> None:  # noqa: A002 - it is one
    """Revoke the token with this ID. Servers refuse it within seconds."""
    check_reason(id)
    invocation = current()
    record = _run(invocation, lambda tokens: tokens.revoke(BearerId(id), actor=audit_log.actor()))
    if record is None:
        raise TokenNotFound(id)
    emit_fields(invocation.output, _shown(record))
    say("revoked; servers refuse it within seconds")


@token.command()
@_LIMIT
@global_options
def audit(limit: int) -> None:
    """Show the audit log: tokens created and revoked, and other actions of admins."""
    invocation = current()
    acts = _run(invocation, lambda tokens: tokens.acts(limit=limit))
    emit_rows(invocation.output, "acts", [asdict(act) for act in acts], _ACT_COLUMNS)


def _run(
    invocation: Invocation,
    work: Callable[[TokenStore], Awaitable[T]],
    *,
    create: bool = False,
) -> T:
    """Do ``work`` on the tokens of this call's store; ``create`` lets it make the store."""

    async def main(_: signals.Signals) -> T:
        async with invocation.open(invocation.target(create=create)) as driver:
            if driver.tokens is None:
                raise UnsupportedByDriver(
                    f"{driver.capabilities.backend} does not support jobs and tokens; use "
                    "sqlite://, postgresql:// or redis://"
                )
            return await work(driver.tokens)

    return signals.run(main)


def _shown(record: BearerRecord) -> dict[str, Any]:
    """A record without its digest, which helps nobody who may see it."""
    fields = asdict(record)
    del fields["digest"]
    fields["scopes"] = " ".join(record.scopes)
    return fields
