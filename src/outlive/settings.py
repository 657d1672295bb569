"""Settings: what holds, and where each value came from.

Arguments win over ``OUTLIVE_*`` variables, those over ``outlive.local.toml``, that over
``outlive.toml``, and all of them over the defaults; each key is decided by itself. Looks at
nothing but its arguments and the two files, and must never show a secret.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from outlive.errors import ConfigurationError, UsageError
from outlive.model.flow_options import FlowOptions, check_claim_batch
from outlive.model.location import parse_url
from outlive.model.options import TTL_MAX_S, LeaseOptions, duration, seconds

T = TypeVar("T")

NAMESPACE_DEFAULT = "default"

# One claim is one statement that holds its rows until it commits; whoever has more room asks again
# at once.
CLAIM_BATCH_DEFAULT = 100

# Peers take over this long after a host dies. 10 s rides out two lost heartbeats, a pause of the
# collector and most failovers of a database; shorter trades that for a faster takeover.
SESSION_TTL_DEFAULT_S = 10.0

# A heartbeat three times per ttl over a network needs some tens of milliseconds each.
_LEAST_S = {"session_ttl": 0.1}

FILE = "outlive.toml"
FILE_LOCAL = "outlive.local.toml"
PREFIX = "OUTLIVE_"

# A settings file is written by a person; a larger one is some other file, and not read into memory.
FILE_BYTES_MAX = 64 * 1024

# Kubernetes sets these in every pod beside a service whose name begins with "outlive".
_KUBERNETES = re.compile(
    r"OUTLIVE_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

# One or two letters that are missing or wrong.
_RESEMBLANCE = 0.8

_SECRET = re.compile(
    r"pass(?!file)|secret|token|credential|connection_?string|(?<!ssl)key$", re.IGNORECASE
)
# URL and options may name the variable that holds their value, so that a file holds no secret.
_REFERENCE = "env:"
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_TOP = {
    "url": "text",
    "name": "text",
    "namespace": "text",
    "session_ttl": "seconds",
    "claim_batch": "count",
    "migrate": "flag",
}
_LEASES = {
    "ttl": "seconds",
    "auto_renew": "flag",
    "renew_interval": "seconds",
    "renew_jitter": "number",
    "renew_retries_max": "count",
    "renew_backoff": "pair",
    "at_risk": "number",
    "safety_margin": "seconds",
    "acquire_retry": "pair",
    "timeout": "seconds",
    "stall_limit": "seconds",
}
_FLOWS = {
    "concurrency": "count",
    "threads": "count",
    "poll": "seconds",
    "poll_floor": "seconds",
    "park_grace": "seconds",
}
_TABLES = {"leases": _LEASES, "flows": _FLOWS}
_KINDS = {
    **_TOP,
    **{f"{table}.{name}": kind for table, names in _TABLES.items() for name, kind in names.items()},
}
_FLAGS = ("session", "create")
_ARGUMENTS = (*_TOP, *_FLAGS, *_TABLES, "options")

_Found = dict[str, tuple[Any, str]]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """What holds. ``origins`` maps each name (``url``, ``leases.ttl``, …) to its source.

    ``repr`` shows no password; ``url`` and ``options`` hold the whole, for the driver alone.
    """

    url: str | None
    name: str | None
    namespace: str
    session_ttl_s: float
    claim_batch: int
    leases: LeaseOptions
    flows: FlowOptions
    migrate: bool | None
    session: bool
    create: bool
    options: dict[str, Any]
    origins: dict[str, str]

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        shown["url"] = None if self.url is None else shown_url(self.url)
        shown["options"] = shown_options(self.options)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def load(arguments: Mapping[str, Any], *, environ: Mapping[str, str], directory: Path) -> Settings:
    """Settle every setting from ``arguments``, ``environ`` and the files in ``directory``.

    An argument of ``None`` and an empty variable count as not given. ``leases`` given as
    ``LeaseOptions`` wins whole, and so does ``flows`` given as ``FlowOptions``.

    Raises:
        ConfigurationError: A name is unknown, a value has the wrong type or range, a file cannot
            be read, or others may read a file that holds a password. Names the source.
    """
    found: _Found = {}
    for name in (FILE, FILE_LOCAL):
        found.update(_from_file(directory / name))
    found.update(_from_environ(environ))
    found.update(_from_arguments(arguments))
    found.update(_referred(found, environ))
    options = {name: value for name, (value, _) in found.items() if name.startswith("options.")}
    origins = dict.fromkeys((*_TOP, *_FLAGS, *_KINDS), "default")
    leases = _options_of("leases", LeaseOptions, arguments, found)
    flows = _options_of("flows", FlowOptions, arguments, found)
    origins.update({name: origin for name, (_, origin) in found.items()})

    def value(name: str, default: Any = None) -> Any:
        return found[name][0] if name in found else default

    return Settings(
        url=value("url"),
        name=value("name"),
        namespace=value("namespace", NAMESPACE_DEFAULT),
        session_ttl_s=value("session_ttl", SESSION_TTL_DEFAULT_S),
        claim_batch=_claim_batch(*found.get("claim_batch", (CLAIM_BATCH_DEFAULT, "default"))),
        leases=leases,
        flows=flows,
        migrate=value("migrate"),
        session=value("session", True),
        create=value("create", True),
        options={name.removeprefix("options."): value for name, value in options.items()},
        origins=origins,
    )


def reference_to(variable: str) -> str:
    """What a settings file says instead of a secret that ``variable`` holds."""
    return f"{_REFERENCE}{variable}"


def is_reference(value: str) -> bool:
    """Whether ``value`` names the variable that holds the real one."""
    return value.startswith(_REFERENCE)


def shown_url(url: str) -> str:
    """``url`` as it may be shown: no password and no query."""
    try:
        shown = parse_url(url).shown
    except ConfigurationError:
        return "(not a URL)"
    scheme, _, rest = shown.partition("://")
    address, slash, path = rest.partition("/")
    # A password with a bare "/" in it pushes its own tail, and the host after it, into the path.
    path = path.rpartition("@")[2] if "@" in path else path
    return f"{scheme}://{address}{slash}{path}"


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` as they may be shown: no secret, and no password inside an address."""
    return {name: _shown_option(name, value) for name, value in options.items()}


def _shown_option(name: str, value: Any) -> Any:
    if _SECRET.search(name):
        return "***"
    return shown_url(value) if _is_secret_address(value) else value


def holds_secret(url: str) -> bool:
    """Whether ``url`` has a password in it, however short, or a query that speaks of one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    # An unescaped "/", "?" or "#" ends the address early and leaves the "@" behind it.
    if parts.password or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return True
    return any(_SECRET.search(key) for key, _ in parse_qsl(parts.query))


def _from_arguments(arguments: Mapping[str, Any]) -> _Found:
    found: _Found = {}
    for name, value in arguments.items():
        if name not in _ARGUMENTS:
            raise _unknown(f"argument {name!r}", name, _ARGUMENTS)
        if value is None or name in _TABLES:
            continue
        if name == "options":
            _check_kind(isinstance(value, Mapping), value, name, "argument", "a mapping")
            found.update(_options(cast("Mapping[object, Any]", value), "argument"))
        elif name in _FLAGS:
            found[name] = _checked("flag", value, name, "argument"), "argument"
        else:
            found[name] = _checked(_TOP[name], value, name, "argument"), "argument"
    return found


def _from_environ(environ: Mapping[str, str]) -> _Found:
    names = {PREFIX + name.upper().replace(".", "_"): name for name in _KINDS}
    found: _Found = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        option = variable.removeprefix(PREFIX + "OPTIONS_")
        if option != variable and _OPTION.fullmatch(option):
            if text:
                found[f"options.{option.lower()}"] = text, variable
        elif variable in names:
            name = names[variable]
            if text.strip():
                value = _parse(_KINDS[name], text.strip(), name, variable)
                found[name] = _checked(_KINDS[name], value, name, variable), variable
        elif _resembles_a_setting(variable):
            raise _unknown(f"variable {variable[:100]!r}", variable, names)
    return found


def _resembles_a_setting(variable: str) -> bool:
    """Whether ``variable`` was meant as a setting; other programs may use our prefix too."""
    if _KUBERNETES.fullmatch(variable) is not None:
        return False
    name = variable.removeprefix(PREFIX).lower()
    known = [each.replace(".", "_") for each in _KINDS]
    table = name.startswith(tuple(f"{each}_" for each in (*_TABLES, "options")))
    return table or bool(difflib.get_close_matches(name, known, n=1, cutoff=_RESEMBLANCE))


def _from_file(path: Path) -> _Found:
    document = _read(path)
    found: _Found = {}
    for name, value in document.items():
        if name in _TOP:
            found[name] = _checked(_TOP[name], value, name, path.name), path.name
        elif name in (*_TABLES, "options"):
            _check_kind(isinstance(value, dict), value, f"[{name}]", path.name, "a table")
            found.update(_table(name, value, path.name))
        else:
            known = (*_TOP, *_TABLES, "options")
            raise _unknown(f"key {name[:100]!r} in {path.name}", name, known)
    if any(_holds_secret(name, value) for name, (value, _) in found.items()):
        _check_private(path)
    return found


def _table(table: str, values: Mapping[object, Any], source: str) -> _Found:
    if table == "options":
        return _options(values, source)
    found: _Found = {}
    for name, value in values.items():
        if name not in _TABLES[table]:
            what = f"key '{table}.{str(name)[:100]}' in {source}"
            raise _unknown(what, str(name), _TABLES[table])
        full = f"{table}.{name}"
        found[full] = _checked(_KINDS[full], value, full, source), source
    return found


def _options(values: Mapping[object, Any], source: str) -> _Found:
    found: _Found = {}
    for name, value in values.items():
        if not isinstance(name, str) or _OPTION.fullmatch(name) is None:
            raise ConfigurationError(f"{source}: {str(name)[:100]!r} is not a valid option name")
        if source != "argument":
            # A program may pass an object, such as a TLS context; a file says plain values.
            plain = isinstance(value, (str, int, float))
            wanted = "a string, a number, true or false"
            _check_kind(plain, value, f"options.{name}", source, wanted)
        found[f"options.{name}"] = value, source
    return found


def _referred(found: _Found, environ: Mapping[str, str]) -> _Found:
    """The URL and the options that name a variable, with what it holds."""
    referred: _Found = {}
    for name, (value, source) in found.items():
        may_refer = name == "url" or name.startswith("options.")
        if may_refer and isinstance(value, str) and is_reference(value):
            variable = value.removeprefix(_REFERENCE)
            held = environ.get(variable, "")
            if not held.strip():
                raise ConfigurationError(
                    f"{source}: {name} refers to the variable {variable[:100]!r}, which is not set"
                )
            # Like OUTLIVE_URL itself: what was read from a file may end with a newline.
            referred[name] = held.strip() if name == "url" else held, variable
    return referred


def _options_of(table: str, kind: type[T], arguments: Mapping[str, Any], found: _Found) -> T:
    """The options of a table: those that were given as an argument, or those that were found."""
    given = arguments.get(table)
    if given is not None:
        _check_kind(isinstance(given, kind), given, table, "argument", f"a {kind.__name__}")
        found.update({f"{table}.{name}": (None, "argument") for name in _TABLES[table]})
        return cast("T", given)
    names = [name for name in _TABLES[table] if f"{table}.{name}" in found]
    try:
        return kind(**{name: found[f"{table}.{name}"][0] for name in names})
    except UsageError as error:
        sources = ", ".join(f"{name} from {found[f'{table}.{name}'][1]}" for name in names)
        raise ConfigurationError(f"{error} ({table}: {sources})") from None


def _claim_batch(value: object, source: str) -> int:
    try:
        return check_claim_batch(value)
    except UsageError as error:
        raise ConfigurationError(f"{source}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigurationError(f"{path} is not a file")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        # A decoding error would repeat the bytes around it, which may be a password.
        reason = error if isinstance(error, tomllib.TOMLDecodeError) else "not TOML in UTF-8"
        raise ConfigurationError(f"{path.name} is not valid: {reason}") from None


def _holds_secret(name: str, value: object) -> bool:
    if name == "url":
        return isinstance(value, str) and holds_secret(value)
    if not name.startswith("options."):
        return False
    if _SECRET.search(name):
        return bool(value) and not (isinstance(value, str) and is_reference(value))
    return _is_secret_address(value)


def _is_secret_address(value: object) -> bool:
    """Whether an option such as ``proxy`` or ``listen_url`` is a URL with a password."""
    return isinstance(value, str) and "://" in value and holds_secret(value)


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(
            f"{path.name} contains a password but other users can read it: run "
            f"`chmod 600 {path}`, or keep the password in {PREFIX}URL"
        )


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    return {**known, "0": False, "false": False, "no": False, "off": False}[text.lower()]


def _pair(text: str) -> tuple[float, float]:
    first, longest = text.split(",")
    return duration(first), duration(longest)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "seconds": duration,
    "number": float,
    "count": int,
    "flag": _flag,
    "pair": _pair,
}
_WANTED = {
    "text": "a string",
    "seconds": "a number of seconds, or a duration such as 30s, 1h30m or 00:00:30",
    "number": "a number",
    "count": "a whole number",
    "flag": "true or false",
    "pair": "two numbers of seconds, first and longest (0.5,5)",
}


def _parse(kind: str, text: str, name: str, source: str) -> Any:
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError):
        raise ConfigurationError(
            f"{source}={text[:40]!r}: {name} must be {_WANTED[kind]}"
        ) from None


def _checked(kind: str, value: Any, name: str, source: str) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "text":
            _check_kind(isinstance(value, str), value, name, source, _WANTED[kind])
        case "flag":
            _check_kind(isinstance(value, bool), value, name, source, _WANTED[kind])
        case "count":
            whole = number and not isinstance(value, float)
            _check_kind(whole, value, name, source, _WANTED[kind])
        case "number":
            _check_kind(number, value, name, source, _WANTED[kind])
        case "pair":
            items: Any = value
            pair = cast("tuple[Any, ...]", items) if isinstance(items, (list, tuple)) else ()
            _check_kind(len(pair) == 2, value, name, source, _WANTED[kind])  # noqa: PLR2004
            return tuple(_checked("seconds", item, name, source) for item in pair)
        case _:
            return _seconds(value, name, source)
    return value


def _seconds(value: Any, name: str, source: str) -> float:
    written = isinstance(value, str) and source != "argument"
    given: Any = _parse("seconds", value, name, source) if written else value
    try:
        # What belongs to a table is held to its range there.
        result = seconds(given, name, least=_LEAST_S.get(name, -math.inf))
    except UsageError as error:
        raise ConfigurationError(f"{source}: {error}") from None
    if result > TTL_MAX_S:
        raise ConfigurationError(f"{source}: {name} must be at most {TTL_MAX_S:g} s (ten years)")
    return result


def _check_kind(
    fits: bool,  # noqa: FBT001
    value: object,
    name: str,
    source: str,
    wanted: str,
) -> None:
    # The value stays out of the message: this is also the path of a URL of the wrong type.
    if not fits:
        kind = type(value).__name__
        raise ConfigurationError(f"{source}: {name} must be {wanted}, not {kind}")


def _unknown(
    what: str, name: str, known: Mapping[str, Any] | tuple[str, ...]
) -> ConfigurationError:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
    return ConfigurationError(f"unknown {what}{hint}")
