"""Runs the blocks of one page in order, in the current directory, as a reader would.

    python run_page.py PAGE [SERVICE=URL ...]

Started by ``test_pages.py`` in a process of its own, which finds modules in the current directory,
as a program there does. Python blocks share one namespace and one event loop; a comment
``# prints TEXT`` is held to what the block printed. Of a ``console`` block each command runs, its
exit code must be 0 unless the page shows ``$ echo $?``, and the first word of each line the page
shows must begin a line of the output, in order. Writes what it ran as JSON.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
import types
from collections import Counter
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, SERVICES, Block, read

PRINTS = re.compile(r"# prints (?P<text>.+)$")
DOCUMENTED_URLS = {
    "postgres": "postgresql://app@db.example/app",
    "redis": "redis://redis.example:6379/0",
    "azblob": "azblob://shop/leases",
    "cosmos": "cosmos://shop/DistributedLeasing/Leases",
}
LIMIT_S = 60.0
# A program that listens for SIGTERM has begun to work; this much more lets it do some.
LISTENING_S = 0.5
LOOK_S = 0.05


class Wrong(Exception):
    """The page says something that is not so."""


class Bindings(dict[str, object]):
    """Values for the parameters of an SQL block; any number will do."""

    def __missing__(self, name: str) -> int:
        return 1


class PageRun:
    """One page being run."""

    def __init__(self, path: Path, urls: dict[str, str]) -> None:
        self.page = read(path)
        self.urls = urls
        self.ran: Counter[str] = Counter()
        self.environ = dict(os.environ)
        self.last_code = 0
        self.space: dict[str, Any] = {"__name__": "__main__"}
        self.loop = asyncio.Runner()
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None)

    def run(self) -> None:
        for block in self.page.blocks:
            if not block.marks & SERVICES <= self.urls.keys():
                continue
            try:
                self.run_block(block)
            except Exception as error:
                raise Wrong(f"{self.page.name}:{block.line}: {error!r}") from error
        self.loop.close()

    def run_block(self, block: Block) -> None:
        match block.language:
            case "python" if block.title:
                self.write_file(Path(block.title), block)
            case "python" if "until-stopped" in block.marks:
                path = Path(f"block_{block.line}.py")
                path.write_text(self.source(block), encoding="utf-8")
                self.run_until_stopped([sys.executable, str(path)])
            case "console" if "until-stopped" in block.marks:
                self.run_until_stopped(shlex.split(block.text.removeprefix("$ ")))
            case "python":
                self.run_python(block)
            case "console" | "sh":
                self.run_shell(block)
            case "toml":
                tomllib.loads(block.text)
            case "sql":
                self.run_sql(block)
            case _:
                return
        self.ran[block.language] += 1

    def source(self, block: Block) -> str:
        text = block.text
        for service in block.marks & SERVICES:
            documented = DOCUMENTED_URLS[service]
            scheme = documented.partition("://")[0]
            if documented not in text and f"{scheme}://" in text:
                raise Wrong(f"a block for {service} uses the URL {documented}")
            text = text.replace(documented, self.urls[service])
        return text

    def run_python(self, block: Block) -> None:
        # Blank lines in front let a traceback name the line of the page.
        source = "\n" * (block.line - 1) + self.source(block)
        code = compile(
            source, self.page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                self.loop.run(_awaited(code, self.space))
            else:
                exec(code, self.space)
        rest = printed.getvalue()
        for line in block.text.splitlines():
            expected = PRINTS.search(line)
            if expected is None:
                continue
            _, found, rest = rest.partition(expected["text"])
            if not found:
                raise Wrong(f"not printed: {expected['text']!r}; printed: {printed.getvalue()!r}")
            self.ran["prints"] += 1

    def write_file(self, path: Path, block: Block) -> None:
        compile(block.text, block.title or "", "exec", dont_inherit=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(self.source(block))

    def run_until_stopped(self, words: list[str]) -> None:
        with subprocess.Popen(words, env=self.environ) as process:
            try:
                wait_for_listener(process)
            except Wrong:
                process.kill()
                raise
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(LIMIT_S / 4)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Wrong("does not stop when told to") from None
        if code:
            raise Wrong(f"ended with code {code} after SIGTERM")

    def run_sql(self, block: Block) -> None:
        if "postgres" in block.marks:
            self.run_postgres_sql(block)
            return
        for statement in block.text.split(";"):
            if statement.strip():
                self.sqlite.execute(statement, Bindings())

    def run_postgres_sql(self, block: Block) -> None:
        import psycopg

        # Roles belong to the whole server: what a page shows is run and rolled back.
        with psycopg.connect(self.urls["postgres"]) as connection:
            connection.execute(block.text.encode())
            connection.rollback()

    def run_shell(self, block: Block) -> None:
        prompt = "$ " if block.language == "console" else ""
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            if prompt and not line.startswith(prompt):
                if commands and line.strip():
                    commands[-1][1].append(line)
            elif line.strip() and not line.startswith("#"):
                commands.append((line.removeprefix(prompt), []))
        if not commands:
            raise Wrong("a shell block without a command")
        for number, (command, shown) in enumerate(commands):
            follows = commands[number + 1][0] if number + 1 < len(commands) else ""
            self.run_command(command, shown, may_fail=follows == "echo $?")

    def run_command(self, command: str, shown: list[str], *, may_fail: bool) -> None:
        self.ran["command"] += 1
        words = shlex.split(command, comments=True)
        match words[0]:
            case "echo" if words == ["echo", "$?"]:
                if [str(self.last_code)] != shown:
                    raise Wrong(f"the exit code is {self.last_code}, not {shown}")
            case "export":
                name, _, value = words[1].partition("=")
                self.environ[name] = value
            case "make":
                check_make(words[1:])
            case "pip":
                check_pip(words[1:])
            case "outlive" | "python":
                self.run_program(command, shown, may_fail=may_fail)
            case other:
                raise Wrong(f"the tests know no command {other!r}")

    def run_program(self, command: str, shown: list[str], *, may_fail: bool) -> None:
        self.ran["program"] += 1
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.last_code = done.returncode
        if done.returncode and not may_fail:
            raise Wrong(f"{command}: exit code {done.returncode}: {done.stdout}")
        said = [first_word(line) for line in done.stdout.splitlines() if line.strip()]
        for line in shown:
            if line.strip() == "…":
                continue
            if first_word(line) not in said:
                raise Wrong(f"{command}: no line begins like {line!r} in {done.stdout!r}")
            del said[: said.index(first_word(line)) + 1]


async def _awaited(code: types.CodeType, space: dict[str, Any]) -> None:
    await eval(code, space)


def wait_for_listener(process: subprocess.Popen[bytes]) -> None:
    """Wait until ``process`` catches SIGTERM, as the kernel says, and then a little longer."""
    until = time.monotonic() + LIMIT_S / 2
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = re.search(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
        assert caught is not None
        if int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LISTENING_S)
            break
        if time.monotonic() > until:
            raise Wrong("never listens for SIGTERM")
        time.sleep(LOOK_S)
    if process.returncode is not None:
        raise Wrong(f"ended by itself with code {process.returncode}")


def first_word(line: str) -> str:
    return line.split(maxsplit=1)[0]


def check_make(targets: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert known is not None
    for target in targets:
        if "=" not in target and target not in known[1].split():
            raise Wrong(f"make has no target {target!r}")


def check_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if words[0] != "install":
        raise Wrong(f"pip {words[0]} is not an install")
    for word in words[1:]:
        match = re.fullmatch(r"(?P<name>[\w-]+|\.)(\[(?P<extras>[\w,-]+)\])?", word)
        # A dot is the clone itself.
        if match is None or match["name"] not in (project["name"], "."):
            raise Wrong(f"pip install {word!r} does not install {project['name']}")
        for extra in (match["extras"] or "").split(","):
            if extra and extra not in project["optional-dependencies"]:
                raise Wrong(f"there is no extra {extra!r}")


def main() -> int:
    sys.path.insert(0, str(Path.cwd()))
    urls = dict(word.split("=", 1) for word in sys.argv[2:])
    run = PageRun(Path(sys.argv[1]), urls)
    began = time.monotonic()
    run.run()
    print(json.dumps({**run.ran, "seconds": time.monotonic() - began}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
