"""Who only happens to run while flow code does: none of it is that code's doing.

Owns how they are told: by the frames between the call and the host, and by whether the garbage
collector is at work. When in doubt somebody is a bystander only if flow code could not have called
it. It must never run code of the program that it looks at.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from opcode import opmap
from pathlib import PurePath
from threading import get_ident
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ReferenceType

from outlive.flows.sources import attribute_of, is_a

# Packages that do for a program, wherever it is, what is no part of what it decides. A refusal
# there would make a log, a traceback or an import fail in a flow that did nothing wrong.
_INTERPRETER = (
    "importlib _frozen_importlib _frozen_importlib_external zipimport pkgutil linecache tokenize "
    "inspect traceback warnings weakref "
    # Tables that the standard library reads when they are first needed.
    "zoneinfo mimetypes gettext locale"
)
_WHO_WRITES_DOWN = "logging loguru structlog sentry_sdk opentelemetry ddtrace"
_WHO_LOOKS_ON = (
    "pdb bdb ipdb IPython pudb pdbpp remote_pdb coverage debugpy pydevd _pydevd_bundle "
    "_pydev_bundle _pydevd_frame_eval"
)
_BY_ITSELF = frozenset(f"{_INTERPRETER} {_WHO_WRITES_DOWN} {_WHO_LOOKS_ON}".split())

# Instructions that call nothing: all they can do is let go of a value. Whatever runs on top of one
# is the clean-up of something that nobody holds any more.
_DROPS = (
    "POP_TOP POP_EXCEPT STORE_FAST STORE_DEREF STORE_GLOBAL DELETE_FAST DELETE_DEREF DELETE_GLOBAL "
    # Later versions do two things at once.
    "STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST"
)
_LETTING_GO = frozenset(opmap[name] for name in _DROPS.split() if name in opmap)

# What a weak reference refers to, whatever a class that derives from it makes of being called.
_referent: Callable[[Any], object] = vars(ReferenceType)["__call__"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Threads in which the garbage collector is at work.
_collecting: set[int] = set()


def watch_collections() -> None:
    """Be told from now on when the garbage collector begins and ends. Called once."""
    collecting, thread = _collecting, get_ident

    # All that it needs is its own: it is still called when modules have been taken apart.
    def tell(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            collecting.add(thread())
        else:
            collecting.discard(thread())

    gc.callbacks.append(tell)


def goes_by_itself(frame: FrameType | None) -> bool:
    """Whether somebody asks who only happens to be called while flow code runs."""
    if get_ident() in _collecting:
        return True
    handlers = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _BY_ITSELF or frame.f_code.co_name == "__del__":
            return True
        if package == "outlive":
            # Whoever called flow code. What is below has nothing to do with it.
            return False
        if handlers is None:
            handlers = set(_signal_handlers())
        if frame.f_code in handlers or _cleans_up(frame):
            return True
        frame = frame.f_back
    return False


def is_deployed(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a file is only read that came with Python or a library: part of the code, as it were.

    Time zones are of this kind: their table is read without any frame of its own.
    """
    if event != "open" or not isinstance(args[0], (str, bytes)) or args[2] & _WRITING:
        return False
    path = os.path.normpath(os.fsdecode(args[0]))
    zones: Any = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    return any(path.startswith(f"{folder}{os.sep}") for folder in (*deployed_folders(), *zones))


@functools.cache
def deployed_folders() -> tuple[str, ...]:
    """Where Python, its time zones and its libraries are. Asked for first outside of flow code.

    It imports modules to find out, and is then known.
    """
    # An empty one would be the beginning of every path.
    return tuple(sorted({os.path.normpath(each) for each in _folders() if each}))


def _folders() -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield from (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    # As it was loaded: a virtual environment has the library of the Python that it was made by.
    with contextlib.suppress(Exception):
        yield str(PurePath(os.__file__).parent)
    # Libraries of the system and of the user have places of their own. Not every ``site`` tells.
    with contextlib.suppress(Exception):
        yield from site.getsitepackages(
            [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
        )
    with contextlib.suppress(Exception):
        yield site.getusersitepackages()
    # Those who read time zones without ``zoneinfo`` look in the same folders.
    yield from str(sysconfig.get_config_var("TZPATH") or "").split(os.pathsep)


# -- finalizers and handlers -----------------------------------------------------------------------


def _cleans_up(frame: FrameType) -> bool:
    """Whether this was called because nobody holds something any more.

    A generator that is dropped runs its ``finally``, a weak reference its callback. Where a call
    lets go of the last reference, only the latter can be told from what that call would do.
    """
    below = frame.f_back
    if below is not None and below.f_lasti >= 0:
        instruction = below.f_code.co_code[below.f_lasti]
        if instruction in _LETTING_GO:
            return True
    return any(
        is_a(value, ReferenceType) and _referent(value) is None for value in _arguments(frame)
    )


def _arguments(frame: FrameType) -> Iterator[Any]:
    """What a function was given by position."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        yield frame.f_locals.get(name)
    if code.co_flags & 0x04:
        starred: Any = frame.f_locals.get(
            code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        )
        if type(starred) is tuple:
            yield from starred


def _signal_handlers() -> Iterator[CodeType]:
    """The code of all that a signal may call between any two instructions of flow code."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while is_a(handler, functools.partial):
            handler = handler.func
        if type(handler) is not FunctionType and type(handler) is not MethodType:
            # An object that can be called is so by what its class says.
            handler = attribute_of(handler, "__call__")
        if type(handler) is MethodType:
            handler = handler.__func__
        if type(handler) is FunctionType:
            yield handler.__code__
