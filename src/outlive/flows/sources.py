"""What of the standard library reaches out of a flow, by name, and what flow code has instead.

Owns the table, and how a value of a program is looked at: by its type alone. A value is asked for
nothing, not even for its ``__class__``, which proxies answer with code of their own. It imports
nothing of what it names: what is not loaded, no code can refer to.
"""

from __future__ import annotations

import inspect
import sys
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

STEP = "do it in a step (@app.step) and await that"


class Deed(NamedTuple):
    """What flow code would do, and what it does instead."""

    deed: str
    instead: str


CLOCK = Deed("read a clock", "ask outlive.now(), which is the same at each replay")
PAUSE = Deed("stop its host's event loop", "await asyncio.sleep(…), which is a durable timer")
CHANCE = Deed("draw random numbers", "ask outlive.random(), which is the same at each replay")
ID = Deed("make a random id", "ask outlive.uuid(), which is the same at each replay")
THREAD = Deed("start a thread", STEP)
PROCESS = Deed("start a process", STEP)
FILE = Deed("use a file", STEP)
NETWORK = Deed("use the network", STEP)
DATABASE = Deed("open a database", STEP)
PERSON = Deed("wait for the keyboard", f"await outlive.wait_signal(…), or {STEP}")

# Functions: to name one in flow code is to call it, or to hand it to somebody who will.
_FUNCTIONS: dict[Deed, dict[str, str]] = {
    CLOCK: {
        "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns",
        "datetime:datetime": "now utcnow",
        "datetime:date": "today",
        "os": "times",
    },
    PAUSE: {"time": "sleep"},
    CHANCE: {
        "random": "betavariate binomialvariate choice choices expovariate gammavariate gauss "
        "getrandbits getstate lognormvariate normalvariate paretovariate randbytes randint random "
        "randrange sample seed setstate shuffle triangular uniform vonmisesvariate weibullvariate",
        "os": "urandom getrandom",
        "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe",
    },
    ID: {"uuid": "uuid1 uuid4 uuid6 uuid7 getnode"},
    THREAD: {"_thread": "start_new_thread start_joinable_thread"},
    PROCESS: {
        "subprocess": "run call check_call check_output getoutput getstatusoutput",
        "os": "system popen fork forkpty posix_spawn posix_spawnp startfile spawnl spawnle spawnlp "
        "spawnlpe spawnv spawnve spawnvp spawnvpe execl execle execlp execlpe execv execve execvp "
        "execvpe",
        "multiprocessing": "Pool",
    },
    FILE: {
        "io": "open_code",
        "builtins": "open",
        "os": "open fdopen listdir scandir walk fwalk remove unlink rename replace mkdir makedirs "
        "rmdir removedirs stat lstat link symlink truncate utime",
        "os.path": "exists lexists isfile isdir getsize getmtime getatime getctime",
        "pathlib:Path": "open read_text read_bytes write_text write_bytes mkdir touch unlink rmdir "
        "rename replace iterdir glob rglob exists is_file is_dir stat lstat symlink_to",
        "shutil": "copy copy2 copyfile copyfileobj copytree move rmtree disk_usage",
        "tempfile": "NamedTemporaryFile TemporaryFile mkstemp mkdtemp",
        "glob": "glob iglob",
    },
    NETWORK: {
        "socket": "create_connection create_server socketpair getaddrinfo getnameinfo getfqdn "
        "gethostbyname gethostbyname_ex gethostbyaddr",
        "urllib.request": "urlopen urlretrieve",
        "requests": "get post put patch delete head options request",
        "httpx": "get post put patch delete head options request stream",
    },
    DATABASE: {"sqlite3": "connect"},
    PERSON: {"builtins": "input", "getpass": "getpass"},
}

# Classes: a mere mention is a type, so that only a call counts.
_CLASSES: dict[Deed, dict[str, str]] = {
    CHANCE: {"random": "SystemRandom"},
    THREAD: {
        "threading": "Thread Timer",
        "concurrent.futures.thread": "ThreadPoolExecutor",
        "multiprocessing.pool": "ThreadPool",
    },
    PROCESS: {
        "subprocess": "Popen",
        "concurrent.futures.process": "ProcessPoolExecutor",
        "multiprocessing.context": "Process",
    },
    FILE: {"io": "FileIO", "tempfile": "TemporaryDirectory SpooledTemporaryFile"},
    NETWORK: {
        "socket": "socket",
        "http.client": "HTTPConnection HTTPSConnection",
        "smtplib": "SMTP SMTP_SSL",
        "ftplib": "FTP FTP_TLS",
        "imaplib": "IMAP4 IMAP4_SSL",
        "requests": "Session",
    },
}

# With an argument these depend on nothing but that; without, they look for themselves.
_WITHOUT_ARGUMENTS: dict[Deed, dict[str, str]] = {
    CLOCK: {"time": "localtime gmtime ctime asctime"},
    CHANCE: {"random": "Random"},
}

_OWNERS = frozenset(
    owner.partition(":")[0]
    for table in (_FUNCTIONS, _CLASSES, _WITHOUT_ARGUMENTS)
    for owners in table.values()
    for owner in owners
)


_FUNCTION_TYPES = (
    FunctionType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
    WrapperDescriptorType,
)

# Where modules keep what is in them. To ask a module itself would load one that is lazy.
_MODULE_MEMBERS: Any = vars(ModuleType)["__dict__"]


class Source(NamedTuple):
    """One thing that reaches out: as it is called in an error, and when it counts."""

    name: str
    deed: Deed
    called: bool = False
    """Only a call counts."""
    bare: bool = False
    """Only a call without arguments counts."""


Key = tuple[int, ...]
Sources = dict[Key, Source]


def sources() -> Sources:
    """The table as of now: by identity, whatever names a program has given to it."""
    found: Sources = {}
    for table, called, bare in (
        (_FUNCTIONS, False, False),
        (_CLASSES, True, False),
        (_WITHOUT_ARGUMENTS, True, True),
    ):
        for deed, owners in table.items():
            for owner, names in owners.items():
                for name in names.split():
                    key = key_of(_resolve(owner, name))
                    if key is not None:
                        shown = f"{owner.replace(':', '.')}.{name}".removeprefix("builtins.")
                        found[key] = Source(shown, deed, called=called, bare=bare)
    return found


def is_known_module(name: str) -> bool:
    """Whether the table has something of this module, or of one inside of it."""
    return any(owner == name or owner.startswith(f"{name}.") for owner in _OWNERS)


def _resolve(owner: str, name: str) -> Any:
    module, _, kind = owner.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        return None
    if kind:
        found = attribute_of(found, kind)
    return attribute_of(found, name)


def is_a(value: object, kind: type) -> bool:
    """``isinstance``, without asking ``value`` what it would like to be."""
    return issubclass(type(value), kind)


def _type_of(value: object) -> type[Any]:
    return type(value)


def members_of(module: Any) -> dict[str, Any]:
    """What is in a module now. One that loads itself when it is looked at is left as it is."""
    found: dict[str, Any] = _MODULE_MEMBERS.__get__(module)
    return found


def attribute_of(value: Any, name: str) -> Any:
    """What ``value.name`` is, without running any code; ``None`` if that cannot be said."""
    try:
        return _attribute_of(value, name)
    except Exception:  # noqa: BLE001 - whatever it raises, nothing is known
        return None


def _attribute_of(value: Any, name: str) -> Any:
    if is_a(value, ModuleType):
        members = members_of(value)
        if name in members:
            return members[name]
        # Modules of the standard library load some of their names on demand, and do nothing else.
        if type(value) is ModuleType and _is_of_python(members.get("__name__")):
            return getattr(value, name, None)
        return None
    kind = _type_of(value)
    found: Any = inspect.getattr_static(value, name, None)
    if not is_a(value, type) and found is not inspect.getattr_static(kind, name, None):
        # The object's own. It may be another one tomorrow, and hides what its class has.
        return None
    held = _type_of(found)
    return found.__func__ if held is staticmethod or held is classmethod else found


def _is_of_python(module: object) -> bool:
    return type(module) is str and module.partition(".")[0] in sys.stdlib_module_names


def key_of(value: Any) -> Key | None:
    """By what a function or class is known, however it was reached; ``None`` for all else."""
    kind = _type_of(value)
    if kind is MethodType:
        return (id(value.__self__), id(value.__func__))
    if kind is BuiltinFunctionType:
        bound = value.__self__
        if is_a(bound, type):
            # A method of a class: the same for all that inherit it.
            return (id(inspect.getattr_static(bound, value.__name__, None)),)
        if bound is None or is_a(bound, ModuleType):
            return (id(value),)
        return (id(bound), hash(value.__name__))
    # One by one: a set would ask for the hash of a class, which is code of its metaclass.
    plain = any(kind is each for each in _FUNCTION_TYPES)
    return (id(value),) if plain or is_a(value, type) else None
