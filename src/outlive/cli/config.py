"""``outlive config``: the settings that hold, and where each came from. Secrets stay masked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from outlive.cli.invocation import current, global_options
from outlive.cli.output import emit_rows
from outlive.settings import Settings, shown_options, shown_url


@click.group()
def config() -> None:
    """Show the settings."""


@config.command()
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@global_options
def show(origin: bool) -> None:
    """Show the effective settings. Secrets are masked.

    Sources, the strongest first: arguments, OUTLIVE_* variables, outlive.local.toml,
    outlive.toml, defaults.
    """
    invocation = current()
    settings = invocation.settings()
    columns = {"name": "SETTING", "value": "VALUE"}
    rows = [{"name": name, "value": value} for name, value in effective(settings).items()]
    if origin:
        columns["origin"] = "ORIGIN"
        for row in rows:
            row["origin"] = settings.origins.get(row["name"], "default")
    emit_rows(invocation.output, "settings", rows, columns)


def effective(settings: Settings) -> dict[str, Any]:
    """Every setting by its name, as it may be shown."""
    leases = {
        f"leases.{field.name}": getattr(settings.leases, field.name)
        for field in fields(settings.leases)
    }
    options = shown_options(settings.options)
    return {
        "url": None if settings.url is None else shown_url(settings.url),
        "name": settings.name,
        "namespace": settings.namespace,
        "session_ttl": settings.session_ttl_s,
        "migrate": settings.migrate,
        **leases,
        **{f"options.{name}": value for name, value in options.items()},
    }
