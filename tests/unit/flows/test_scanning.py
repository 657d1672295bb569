"""What the scan of a flow's code finds, by every way in which Python names things."""

from __future__ import annotations

import importlib.util
import random
import sys
import textwrap
import types
from typing import Any

import pytest

from outlive.flows.scanning import scan

HEAD = """
from __future__ import annotations
import asyncio, contextlib, concurrent.futures, datetime, functools, io, multiprocessing, os
import pathlib, random, secrets, socket, sqlite3, subprocess, tempfile, threading, time, typing
import urllib.request, uuid
import datetime as dt
import os.path as osp
import random as dice
import time as clock
from datetime import date, datetime as Instant
from pathlib import Path
from threading import Thread
from time import sleep as nap, time as t
from typing import TYPE_CHECKING
from uuid import uuid4

now = datetime.datetime.now
SETTINGS = Path("settings.toml")
dies = random.Random(7)


class Instants(datetime.datetime):
    pass


class Tools:
    def read(self):
        return time.time()

    @staticmethod
    def static():
        return time.time()

    @classmethod
    def of_class(cls):
        return time.time()


tools = Tools()


class Wound:
    now = datetime.datetime.now

    def __init__(self):
        self.now = lambda: 5


wound = Wound()


def helper():
    return other_helper()


def other_helper():
    return [time.monotonic() for _ in range(3)]


@contextlib.contextmanager
def managed():
    yield time.time()


@functools.lru_cache
def cached():
    return time.time()


def harmless():
    return harmless()
"""

NAMED = [
    # clocks
    ("time.time()", "time.time"),
    ("time.time_ns()", "time.time_ns"),
    ("time.monotonic()", "time.monotonic"),
    ("time.perf_counter_ns()", "time.perf_counter_ns"),
    ("time.localtime()", "time.localtime"),
    ("clock.time()", "time.time"),
    ("t()", "time.time"),
    ("x = t", "time.time"),
    ("asyncio.get_running_loop().call_later(1, t)", "time.time"),
    ("time.time(*x, **y)", "time.time"),
    ("t(*x)", "time.time"),
    ("datetime.datetime.now()", "datetime.datetime.now"),
    ("datetime.datetime.now(datetime.UTC)", "datetime.datetime.now"),
    ("dt.datetime.utcnow()", "datetime.datetime.utcnow"),
    ("Instant.now(tz=x)", "datetime.datetime.now"),
    ("Instant.today()", "datetime.date.today"),
    ("date.today()", "datetime.date.today"),
    ("now()", "datetime.datetime.now"),
    ("Instants.now()", "datetime.datetime.now"),
    ("await asyncio.wait_for(x, timeout=t() + 5)", "time.time"),
    # chance and ids
    ("random.random()", "random.random"),
    ("dice.randint(1, 6)", "random.randint"),
    ("random.shuffle(x)", "random.shuffle"),
    ("random.Random()", "random.Random"),
    ("random.SystemRandom()", "random.SystemRandom"),
    ("dies.choice(x)", "random.Random.choice"),
    ("os.urandom(4)", "os.urandom"),
    ("secrets.token_hex(2)", "secrets.token_hex"),
    ("secrets.choice(x)", "secrets.choice"),
    ("uuid.uuid4()", "uuid.uuid4"),
    ("str(uuid4())", "uuid.uuid4"),
    ("uuid.uuid1()", "uuid.uuid1"),
    # threads and processes
    ("threading.Thread(target=print).start()", "threading.Thread"),
    ("Thread(target=print)", "threading.Thread"),
    ("threading.Timer(1, print)", "threading.Timer"),
    (
        "with concurrent.futures.ThreadPoolExecutor() as pool: ...",
        "concurrent.futures.thread.ThreadPoolExecutor",
    ),
    (
        "concurrent.futures.ProcessPoolExecutor()",
        "concurrent.futures.process.ProcessPoolExecutor",
    ),
    ("multiprocessing.Process(target=print)", "multiprocessing.context.Process"),
    ("multiprocessing.Pool()", "multiprocessing.Pool"),
    ("subprocess.run(['true'])", "subprocess.run"),
    ("subprocess.Popen(['true'])", "subprocess.Popen"),
    ("os.system('true')", "os.system"),
    ("os.fork()", "os.fork"),
    # files, the network, pauses, people
    ("open('x')", "open"),
    ("with open('x') as file: ...", "open"),
    ("io.open('x')", "open"),
    ("Path.read_text(x)", "pathlib.Path.read_text"),
    ("SETTINGS.read_text()", "pathlib.Path.read_text"),
    ("os.path.exists(x)", "os.path.exists"),
    ("osp.exists(x)", "os.path.exists"),
    ("tempfile.TemporaryDirectory()", "tempfile.TemporaryDirectory"),
    ("sqlite3.connect(':memory:')", "sqlite3.connect"),
    ("socket.socket()", "socket.socket"),
    ("socket.create_connection(x)", "socket.create_connection"),
    ("socket.getaddrinfo('localhost', 80)", "socket.getaddrinfo"),
    ("urllib.request.urlopen(x)", "urllib.request.urlopen"),
    ("time.sleep(1)", "time.sleep"),
    ("nap(1)", "time.sleep"),
    ("input()", "input"),
    # where the name stands
    ("[time.time() for _ in x]", "time.time"),
    ("list(time.time() for _ in x)", "time.time"),
    ("{each: time.time() for each in x}", "time.time"),
    ("later = lambda: time.time()", "time.time"),
    ("async def inner(): return time.time()", "time.time"),
    ("def inner(since=time.time()): ...", "time.time"),
    ("def inner():\n    def innermost(): return t()\n    return innermost", "time.time"),
    ("class Inner:\n    at = time.time()", "time.time"),
    ("class Inner:\n    def __init__(self): self.at = time.time()", "time.time"),
    ("try: ...\nfinally: time.time()", "time.time"),
    ("async with asyncio.timeout(5): print(f'{time.time()}')", "time.time"),
    ("if x: y = time.time()\nelse: y = 0", "time.time"),
    # local names
    ("import time as here\nhere.time()", "time.time"),
    ("import time; time.time()", "time.time"),
    ("import os.path\nos.path.exists(x)", "os.path.exists"),
    ("import os.path as p\np.exists(x)", "os.path.exists"),
    ("import urllib.request as r\nr.urlopen(x)", "urllib.request.urlopen"),
    ("from time import time as here\nhere()", "time.time"),
    ("from time import gmtime, time as a, sleep as b\nb(1)", "time.sleep"),
    ("from urllib import request\nrequest.urlopen(x)", "urllib.request.urlopen"),
    ("import time as here\ndef inner(): return here.time()", "time.time"),
    ("kind = datetime.datetime\nkind.now()", "datetime.datetime.now"),
    ("kind = threading.Thread\nkind(target=print)", "threading.Thread"),
    ("kind = datetime.datetime\nlater = lambda: kind.now()", "datetime.datetime.now"),
    # plain functions of the same module
    ("helper()", "time.monotonic"),
    ("x.sort(key=helper)", "time.monotonic"),
    ("with managed(): ...", "time.time"),
    ("cached()", "time.time"),
    ("tools.read()", "time.time"),
    ("Tools.static()", "time.time"),
    ("Tools.of_class()", "time.time"),
    ("def inner(): return helper()", "time.monotonic"),
    ("return (\n    datetime\n    .datetime\n    .now()\n)", "datetime.datetime.now"),
    ("return (time.time() + 5)", "time.time"),
    ("while x:\n    here = time\n    here.time()", "time.time"),
    ("import time as here\nclass Inner:\n    def at(self): return here.time()", "time.time"),
    ("import time as here\nclass Inner:\n    at = here.time()", "time.time"),
    ("import time as here\ndef inner():\n    return lambda: here.time()", "time.time"),
]

# So many that an instruction which names one more is written as two.
MANY_NAMES = "; ".join(f"name_{number} = x" for number in range(300))

HARMLESS = [
    "pass",
    "time",
    "datetime.datetime(2030, 1, 1)",
    "datetime.datetime.fromtimestamp(0)",
    "Instant.fromisoformat(x)",
    "time.localtime(0)",
    "time.gmtime(x)",
    "random.Random(7)",
    "random.Random(x).random()",
    "uuid.uuid5(uuid.NAMESPACE_DNS, 'a')",
    "uuid.UUID(x)",
    "Path('a') / 'b'",
    "SETTINGS.name",
    "os.path.join('a', 'b')",
    "isinstance(x, threading.Thread)",
    "isinstance(x, (socket.socket, subprocess.Popen))",
    "local: threading.Thread = x",
    "def inner(thread: threading.Thread, file: Path) -> socket.socket: ...",
    "try: ...\nexcept (OSError, socket.timeout, subprocess.CalledProcessError): ...",
    "if TYPE_CHECKING:\n    time.time()\nx = 5",
    "if typing.TYPE_CHECKING:\n    time.time()\nx = 5",
    "from time import time as unused",
    "open = x\nopen()",
    "time = x\ntime.time()",
    "def inner(time): return time.time()",
    "[time.time() for time in x]",
    "x.now()\nx.random()\nx.uuid4()",
    "kind = x\nkind = datetime.datetime\nkind.now()",
    "harmless()",
    "unknown_so_far()",
    "await asyncio.sleep(5)",
    "print(x)",
    "import nowhere_to_be_found",
    "from . import nowhere\nnowhere.time()",
    "wound.now()",
    "source = x or random\nsource.shuffle(y)",
    "source = x if x else random\nsource.shuffle(y)",
    "source = x and random\nsource.shuffle(y)",
    "(x or random).shuffle(y)",
    "(x if y else time).time()",
    "(time if y else x).time()",
    "return (x if x is not None else random).random()",
    f"{MANY_NAMES}\nsource = x or random\nsource.shuffle(y)",
    "import time as here\ndef inner(here):\n    return lambda: here.time()",
    "import time as here\ndef inner():\n    here = x\n    return lambda: here.time()",
    "import time as here\nclass Inner:\n    def at(self, here): return lambda: here.time()",
    "here = x\nclass Inner:\n    here = time\n    def at(self): return here.time()",
]


def flow_of(text: str) -> Any:
    body = textwrap.indent(text, "    ")
    source = f"{HEAD}\nasync def flow(x, y=None):\n{body}\n"
    names: dict[str, Any] = {"__name__": "scanned", "__package__": "scanned"}
    exec(compile(source, "/srv/scanned.py", "exec", dont_inherit=True), names)
    return names["flow"]


@pytest.mark.parametrize(("text", "name"), NAMED, ids=[text for text, _ in NAMED])
def test_what_reaches_out_is_found_however_it_is_named(text, name):
    finding = scan(flow_of(text)).finding
    assert finding is not None
    assert finding.source.name == name


@pytest.mark.parametrize("text", HARMLESS)
def test_what_does_not_reach_out_is_left_alone(text):
    assert scan(flow_of(text)).finding is None


def test_a_finding_says_where_it_is():
    finding = scan(flow_of("x = 1\ndef inner():\n    return time.time()\n")).finding
    first = HEAD.count("\n") + 2
    assert str(finding) == f"time.time in flow.<locals>.inner (scanned.py, line {first + 3})"


def test_nothing_of_the_program_is_run():
    class Trap:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        @property
        def now(self) -> Any:
            raise AssertionError

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # pyright: ignore[reportAssignmentType]

    trap = Trap()

    async def flow() -> None:
        trap.now()
        trap.other.one()
        if trap == trap.now:
            pass

    assert scan(flow).finding is None


def test_a_proxy_is_not_asked_what_it_stands_for():
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("outside of any request")

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    proxy, held = Proxy(), types.SimpleNamespace(inner=Proxy())

    async def flow() -> None:
        proxy.settings.debug()
        held.inner.read()
        local = proxy
        local()

    assert scan(flow).finding is None


def test_a_class_is_not_asked_whether_it_equals_another():
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # pyright: ignore[reportAssignmentType]

    class Thing(metaclass=Meta): ...

    class Owner:
        thing = Thing()

    thing, owner = Thing(), Owner()

    async def flow() -> None:
        thing()
        Thing()
        owner.thing()

    assert scan(flow).finding is None


def test_a_module_that_loads_itself_is_not_loaded(tmp_path):
    file = tmp_path / "loads_itself.py"
    file.write_text("raise AssertionError\n")
    spec = importlib.util.spec_from_file_location("loads_itself", file)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    async def flow() -> None:
        module.run()

    assert scan(flow).finding is None


def test_what_cannot_be_imported_is_unknown(monkeypatch):
    # As where Python was built without it.
    monkeypatch.setitem(sys.modules, "sqlite3", None)

    async def flow() -> None:
        import sqlite3

        sqlite3.connect(":memory:")

    assert scan(flow).finding is None


def test_names_that_come_later_are_told_of():
    assert scan(flow_of("unknown_so_far()")).unresolved
    assert not scan(flow_of("harmless()")).unresolved


def test_a_closure_is_looked_into_and_may_be_empty():
    dice = random.Random(3)

    async def flow() -> float:
        return dice.random() + later()

    assert scan(flow).unresolved
    assert scan(flow).finding is not None

    def later() -> float:
        return 1.0

    assert not scan(flow).unresolved


def test_a_lazy_module_is_not_asked():
    names: dict[str, Any] = {"__name__": "lazy"}
    module = type(sys)("lazy")
    module.__dict__["__getattr__"] = pytest.fail
    names["lazy"] = module
    exec("async def flow(): lazy.loader()", names)
    assert scan(names["flow"]).finding is None


def test_methods_partials_and_objects_are_looked_into():
    import functools
    import time

    class Called:
        async def __call__(self) -> float:
            return time.time()

        async def run(self) -> float:
            return time.time()

    for given in (Called(), Called().run, functools.partial(Called().run)):
        assert scan(given).finding is not None
