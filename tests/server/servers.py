"""Real servers: ``outlive serve`` in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.model.bearer import Scope
from tests.server.api import make_token, open_store

COMMAND = (sys.executable, "-m", "outlive.cli.main")
PATIENCE_S = 30.0


def environ() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")}


@dataclass
class Fleet:
    """Servers on one store, and a token for it."""

    url: str
    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def outlive(self, *arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--url", self.url],
            cwd=self.folder,
            env=environ(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, *scopes: str) -> str:
        """A token as ``outlive token create`` makes it, without a process for it."""

        async def make() -> str:
            driver = await open_store(self.url, "default")
            try:
                _, text = await make_token(driver, "default", *map(Scope, scopes))
            finally:
                await driver.close()
            return text

        return asyncio.run(make())

    def start(self, *arguments: str, port: int = 0) -> Server:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--url", self.url, "--port", str(port), *arguments],
            cwd=self.folder,
            env=environ(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return Server(process, _address(process))

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "listening on " in line:
            return line.partition("listening on ")[2].split()[0]
    raise AssertionError(f"the server did not start: {''.join(said)}")


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def ask(self, method: str, path: str, token: str, document: Any = None) -> tuple[int, Any]:
        """One request, as any HTTP client makes it."""
        request = urllib.request.Request(
            self.address + path,
            data=None if document is None else json.dumps(document).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                body = answer.read()
                return answer.status, json.loads(body) if body else None
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read())
