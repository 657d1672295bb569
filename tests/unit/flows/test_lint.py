"""Calls in the source of flows that a replay could not repeat, and what to use instead."""

from __future__ import annotations

import functools
import runpy
import textwrap
import time
import uuid
from pathlib import Path

import pytest

from outlive import App
from outlive.errors import UsageError
from outlive.testing import lint

NOW, STEP = "outlive.now()", "a step (@app.step)"

# What stands in a module, what its flow does, and what is to be used instead of the one call that
# is found. Only the source counts, so that none of it is run.
FOUND = [
    ("import time", "time.time()", NOW),
    ("import time as t", "t.monotonic()", NOW),
    ("from time import time as look", "look()", NOW),
    ("import time", "time.localtime()", NOW),
    ("import datetime", "datetime.datetime.now(datetime.UTC).date()", NOW),
    ("from datetime import UTC, datetime", "datetime.now(UTC)", NOW),
    ("from datetime import date", "date.today()", NOW),
    ("import time", "time.sleep(1)", "await asyncio.sleep(…)"),
    ("import random", "random.choice('ab')", "outlive.random()"),
    ("from random import shuffle as mix", "mix([1])", "outlive.random()"),
    ("import random", "random.Random()", "outlive.random()"),
    ("import secrets", "secrets.token_hex()", "outlive.random()"),
    ("import os", "os.urandom(4)", "outlive.random()"),
    ("import uuid", "uuid.uuid1()", "outlive.uuid()"),
    ("from uuid import uuid4", "str(uuid4())", "outlive.uuid()"),
    ("import os", "os.environ.get('HOME')", "an argument of the flow, or a step"),
    ("", "input()", "await outlive.wait_signal(…)"),
    ("", "open('x')", STEP),
    ("from pathlib import Path", "Path('x').open()", STEP),
    ("from pathlib import Path", "(Path('x') / 'y').read_text()", STEP),
    ("import os", "os.listdir()", STEP),
    ("import os.path", "os.path.exists('x')", STEP),
    ("import shutil", "shutil.rmtree('x')", STEP),
    ("import requests", "requests.Session().get('x')", STEP),
    ("import httpx", "await httpx.AsyncClient().get('x')", STEP),
    ("import urllib.request", "urllib.request.urlopen('x')", STEP),
    ("from urllib.request import urlopen", "urlopen('x')", STEP),
    ("import socket", "socket.create_connection(('x', 1))", STEP),
    ("import sqlite3", "sqlite3.connect('x')", STEP),
    ("import subprocess", "subprocess.run(['x'])", STEP),
    ("import threading", "threading.Thread(target=print).start()", STEP),
    ("import asyncio", "await asyncio.to_thread(print)", STEP),
    ("import asyncio", "asyncio.get_running_loop().run_in_executor(None, print)", STEP),
    ("", "[open(name) for name in 'ab']", STEP),
    ("", "import time; time.time()", NOW),
    (
        "import time\ndef helper(): return deeper()\ndef deeper(): return time.time()",
        "helper()",
        NOW,
    ),
]

HARMLESS = [
    ("import asyncio", "await asyncio.sleep(1)"),
    ("", "outlive.now(), outlive.uuid(), outlive.random().choice('ab')"),
    ("from outlive import random", "random().choice('ab')"),
    ("import random", "random = outlive.random(); random.choice('ab')"),
    ("import random", "random.Random(5).random()"),
    ("import time", "time.gmtime(5)"),
    ("import uuid", "uuid.uuid5(uuid.NAMESPACE_DNS, 'x')"),
    ("import os", "os.path.join('a', 'b')"),
    ("from pathlib import PurePath, Path", "PurePath('x').name, Path('x').with_suffix('.y').name"),
    ("from urllib.parse import quote", "quote('x')"),
    ("from shop.files import open", "open('x')"),
    ("import time\n@app.step\ndef step(): return time.time()", "await step()"),
    ("import time\ndef unused(): return time.time()", "print()"),
    ("import time\nclass Clock:\n    def look(self): return time.time()", "look()"),
]


def linted(folder: Path, module: str, does: str):
    path = folder / "sample.py"
    path.write_text(
        f"import outlive\napp = outlive.App('a')\nif False:\n    pass\n"
        f"{textwrap.indent(module, '    ')}\n@app.flow\nasync def flow():\n    {does}\n"
    )
    return path, lint(runpy.run_path(str(path))["app"])


@pytest.mark.parametrize(("module", "does", "instead"), FOUND)
def test_a_call_is_found_with_its_place_and_what_to_use_instead(tmp_path, module, does, instead):
    path, (found,) = linted(tmp_path, module, does)
    assert (found.file, found.flow, found.instead) == (str(path), "flow", instead)
    line = path.read_text().splitlines()[found.line - 1]
    assert found.call.removesuffix("()") in line
    assert str(found) == f"{path}:{found.line}: flow 'flow' calls {found.call}: use {instead}"


@pytest.mark.parametrize(("module", "does"), HARMLESS)
def test_what_is_the_same_at_each_replay_is_left_alone(tmp_path, module, does):
    assert linted(tmp_path, module, does)[1] == []


def test_flows_are_found_however_they_were_defined():
    async def decorated(path: str) -> str:
        return f"{path} {time.time()}"

    class Callable:
        async def __call__(self) -> str:
            return str(uuid.uuid4())

    @functools.wraps(decorated)
    async def around(path: str) -> str:
        return await decorated(path)

    app = App("a")
    app.flow(name="wrapped")(around)
    app.flow(name="part")(functools.partial(decorated, "x"))
    app.flow(name="object")(Callable())
    assert [each.call for each in lint(app)] == ["time.time()", "uuid.uuid4()"]


def test_a_flow_without_source_is_refused():
    async def flow() -> None: ...

    flow.__code__ = flow.__code__.replace(co_filename="<shell>")
    app = App("a")
    app.flow(flow)
    with pytest.raises(UsageError, match="source of flow 'flow' cannot be read"):
        lint(app)
