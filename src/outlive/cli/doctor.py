"""``outlive doctor``: everything worth knowing about this installation and its store, judged.

Looks and says; changes nothing. A store that is not there is not made, and a schema that is older
is left as it is, whatever the settings allow.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from dataclasses import asdict
from typing import Any

import click

from outlive import __version__
from outlive.cli import errors, signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import emit_document, emit_rows
from outlive.errors import OutliveError
from outlive.model.location import NO_URL
from outlive.ports.driver import Driver, Finding

# One page of hosts tells whether anybody is there.
_HOSTS_MAX = 1000

# Enough to recognise the fleet by.
_NAMES_MAX = 10

_EXTRAS = {
    "postgres": "asyncpg",
    "redis": "hiredis",
    "azure-blob": "azure.storage.blob",
    "cosmos": "azure.cosmos",
    "server": "uvicorn",
    "otel": "opentelemetry",
    "metrics": "prometheus_client",
}


@click.command()
@global_options
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check the installation, the settings and the store; exit 1 if anything is wrong."""
    invocation = current()
    findings = [*installation(), *signals.run(lambda _: _look(invocation))]
    # What a driver says is scrubbed like an error: it may quote an address.
    rows: list[dict[str, Any]] = [
        {name: errors.scrub(text, invocation.secrets) for name, text in asdict(finding).items()}
        for finding in findings
    ]
    ok = all(finding.level != "error" for finding in findings)
    if invocation.output == "json":
        emit_document({"ok": ok, "findings": rows})
    else:
        columns = {"level": "LEVEL", "what": "FINDING", "advice": "ADVICE"}
        emit_rows(invocation.output, "findings", rows, columns)
    context.exit(errors.OK if ok else errors.UNEXPECTED)


def installation() -> list[Finding]:
    """Findings about this machine and this installation."""
    present = [name for name, module in _EXTRAS.items() if _is_installed(module)]
    absent = [name for name in _EXTRAS if name not in present]
    return [
        Finding(level="ok", what=f"outlive {__version__}"),
        Finding(level="ok", what=f"Python {platform.python_version()}"),
        _platform(),
        Finding(
            level="ok",
            what=f"extras installed: {', '.join(present) or 'none'}",
            advice=f"pip install 'outlive[{','.join(absent)}]' adds the others" if absent else "",
        ),
    ]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be a part of is missing.
        return False


def _platform() -> Finding:
    if sys.platform == "linux":
        return Finding(level="ok", what="Linux: supported in full")
    if sys.platform == "darwin":
        return Finding(
            level="warning",
            what="macOS: not part of the continuous tests",
            advice="run production hosts on Linux",
        )
    return Finding(level="error", what=f"{sys.platform} is not supported", advice="use WSL 2")


async def _look(invocation: Invocation) -> list[Finding]:
    findings: list[Finding] = []
    across = ""
    try:
        target = invocation.target(migrate=False, create=False)
        across = target.factory.capabilities.across
        findings.append(_sources(target.settings.origins))
        async with invocation.open(target) as driver:
            findings.append(Finding(level="ok", what=f"connected to {target.location}"))
            findings += await driver.check()
            findings += await _hosts(driver)
    except OutliveError as error:
        what, advice = str(error), _advice(error, across)
        if what.startswith(f"{NO_URL}: "):
            what, advice = what.split(": ", 1)
        findings.append(Finding(level="error", what=what, advice=advice))
    return findings


def _sources(origins: dict[str, str]) -> Finding:
    used = sorted({origin for origin in origins.values() if origin != "default"})
    named = ", ".join(used) or "defaults only"
    return Finding(
        level="ok",
        what=f"settings come from {named}",
        advice="`outlive config show --origin` shows each",
    )


async def _hosts(driver: Driver) -> list[Finding]:
    if driver.hosts is None:
        return [Finding(level="ok", what="this backend does not support host sessions")]
    sessions = await driver.hosts.list(limit=_HOSTS_MAX)
    alive = sorted(session.name for session in sessions if session.alive)
    shown = [*alive[:_NAMES_MAX], *(["…"] if len(alive) > _NAMES_MAX else [])]
    names = f" ({', '.join(shown)})" if shown else ""
    findings = [Finding(level="ok", what=f"host sessions alive: {len(alive)}{names}")]
    expired = sum(not session.alive for session in sessions)
    if expired:
        findings.append(
            Finding(
                level="warning",
                what=f"host sessions expired and not yet reaped: {expired}",
                advice="a host died; other hosts will reap its session",
            )
        )
    return findings


def _advice(error: OutliveError, across: str) -> str:
    """What to do about ``error``; that of a file says it itself."""
    code = errors.exit_code_of(error)
    if code == errors.SCHEMA:
        return "run `outlive migrate`"
    if code == errors.UNAVAILABLE and across == "network":
        return "check that the store is running, and that this machine can reach it"
    return ""
