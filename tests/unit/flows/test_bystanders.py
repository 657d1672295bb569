"""Who only happens to run while flow code does is not refused anything; who it calls, is."""

from __future__ import annotations

import functools
import gc
import importlib
import linecache
import logging
import os
import signal
import site
import sysconfig
import traceback
import warnings
import weakref
import zoneinfo
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive.flows.bystanders import deployed_folders
from tests.unit.flows.driving import Driven, flow_doing


def an_import(folder: Path) -> Callable[[], Any]:
    name = f"imported_by_a_flow_{os.getpid()}"
    (folder / f"{name}.py").write_text("with open(__file__) as file: TEXT = file.read()\n")
    return lambda: importlib.import_module(name)


def a_log(folder: Path) -> Callable[[], Any]:
    log = logging.getLogger("tests.guarding")
    handler = logging.FileHandler(folder / "log", delay=True)
    log.addHandler(handler)

    def act() -> None:
        log.error("written")
        log.removeHandler(handler)
        handler.close()
        assert (handler.stream, handler.baseFilename) == (None, str(folder / "log"))

    return act


def a_warning(folder: Path) -> Callable[[], Any]:
    linecache.clearcache()

    def act() -> None:
        shown: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda *said: shown.append(warnings.formatwarning(*said[:4]))
            warnings.warn("it is late", stacklevel=1)
        # With the line of the code, which is read from its file.
        assert "stacklevel=1" in shown[0]

    return act


def a_traceback(folder: Path) -> Callable[[], Any]:
    linecache.clearcache()

    def act() -> None:
        try:
            raise ValueError("x")
        except ValueError:
            assert "raise ValueError" in traceback.format_exc()

    return act


def a_time_zone(folder: Path) -> Callable[[], Any]:
    return lambda: zoneinfo.ZoneInfo.no_cache("Europe/Berlin")


def a_file_of_a_library(folder: Path) -> Callable[[], Any]:
    return lambda: Path(logging.__file__).read_text()


def the_end_of_an_object(folder: Path) -> Callable[[], Any]:
    class Left:
        def __del__(self) -> None:
            (folder / "left").write_text("x")

    held = [Left()]

    def act() -> None:
        held.clear()
        gc.collect()
        # The folder is not looked at here: that would be the flow's own doing.

    return act


class Leaving:
    """Freed as soon as nobody holds it."""


def a_finalizer(folder: Path) -> Callable[[], Any]:
    held = [Leaving()]
    weakref.finalize(held[0], lambda: (folder / "left").write_text("x"))
    return held.clear


def a_generator_of(folder: Path) -> Generator[None, None, None]:
    try:
        yield
    finally:
        (folder / "left").write_text("x")


class Cycle:
    """Freed by nobody but the garbage collector."""

    def __init__(self, held: object = None) -> None:
        self.held = held
        self.itself = self


def a_collected_generator(folder: Path) -> Callable[[], Any]:
    generator = a_generator_of(folder)
    next(generator)
    Cycle(generator)
    return gc.collect


def a_collected_reference(folder: Path) -> Callable[[], Any]:
    kept = weakref.ref(Cycle(), lambda _: (folder / "left").write_text("x"))

    def act() -> None:
        gc.collect()
        assert kept() is None

    return act


def a_dropped_generator(folder: Path) -> Callable[[], Any]:
    held = [a_generator_of(folder)]
    next(held[0])

    def act() -> None:
        generator = held.pop()
        del generator

    return act


def an_overwritten_generator(folder: Path) -> Callable[[], Any]:
    generator: Any = a_generator_of(folder)
    next(generator)

    def act() -> None:
        nonlocal generator
        generator = None

    return act


def a_dead_reference(folder: Path) -> Callable[[], Any]:
    held = [Leaving()]
    kept = weakref.ref(held[0], lambda _: (folder / "left").write_text("x"))

    def act() -> None:
        held.clear()
        assert kept() is None

    return act


def a_dead_reference_among_others(folder: Path) -> Callable[[], Any]:
    def leave(where: Path, *_given: object) -> None:
        where.write_text("x")

    held = [Leaving()]
    kept = weakref.ref(held[0], functools.partial(leave, folder / "left"))

    def act() -> None:
        held.clear()
        assert kept() is None

    return act


class Handling:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int, frame: object) -> None:
        (self.folder / "left").write_text("x")


def a_handled_signal(handler: Any) -> Callable[[], Any]:
    signal.signal(signal.SIGUSR2, handler)
    return lambda: signal.raise_signal(signal.SIGUSR2)


def a_signal(folder: Path) -> Callable[[], Any]:
    return a_handled_signal(lambda _number, _frame: (folder / "left").write_text("x"))


def a_signal_for_a_method(folder: Path) -> Callable[[], Any]:
    return a_handled_signal(Handling(folder).__call__)


def a_signal_for_an_object(folder: Path) -> Callable[[], Any]:
    return a_handled_signal(Handling(folder))


def a_signal_for_a_partial(folder: Path) -> Callable[[], Any]:
    inner = functools.partial(lambda where, _number, _frame: where.write_text("x"), folder / "left")
    return a_handled_signal(functools.partial(inner))


GOES_THROUGH = {
    "import": an_import,
    "log": a_log,
    "warning": a_warning,
    "traceback": a_traceback,
    "time zone": a_time_zone,
    "library": a_file_of_a_library,
}
LEAVES_A_FILE = {
    "object": the_end_of_an_object,
    "finalizer": a_finalizer,
    "collected generator": a_collected_generator,
    "collected reference": a_collected_reference,
    "dropped generator": a_dropped_generator,
    "overwritten generator": an_overwritten_generator,
    "dead reference": a_dead_reference,
    "dead reference among others": a_dead_reference_among_others,
    "signal": a_signal,
    "signal for a method": a_signal_for_a_method,
    "signal for an object": a_signal_for_an_object,
    "signal for a partial": a_signal_for_a_partial,
}


@pytest.fixture(autouse=True)
def the_handler_of_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("kind", GOES_THROUGH)
def test_what_goes_by_itself_goes_through(kind, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Driven(flow_doing(GOES_THROUGH[kind](tmp_path))).outcome == "done"
    if kind == "log":
        assert (tmp_path / "log").read_text() == "written\n"


@pytest.mark.parametrize("kind", LEAVES_A_FILE)
def test_finalizers_and_handlers_go_through(kind, tmp_path):
    assert Driven(flow_doing(LEAVES_A_FILE[kind](tmp_path))).outcome == "done"
    assert (tmp_path / "left").read_text() == "x"


def reader_of(module: str, path: Path) -> Callable[[], Any]:
    """A function of some module that reads a file."""
    names: dict[str, Any] = {"__name__": module, "path": path}
    exec("def read():\n    with open(path) as file: return file.read()", names)
    return names["read"]


@pytest.mark.parametrize("module", ["pdb", "ipdb.__main__", "IPython.core", "pudb", "remote_pdb"])
def test_debuggers_may_look_at_files(module, tmp_path):
    (tmp_path / "source").write_text("x")
    assert Driven(flow_doing(reader_of(module, tmp_path / "source"))).outcome == "done"


# -- what came with Python -------------------------------------------------------------------------


def test_files_of_the_user_and_of_the_system_may_be_read(tmp_path, folders, monkeypatch):
    user, system, zones = (tmp_path / name for name in ("user", "system", "zones"))
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(user))
    monkeypatch.setattr(site, "getsitepackages", lambda _prefixes: [str(system)])
    config = sysconfig.get_config_var
    monkeypatch.setattr(
        sysconfig,
        "get_config_var",
        lambda name: f"/nowhere{os.pathsep}{zones}" if name == "TZPATH" else config(name),
    )
    for folder in (user, system, zones):
        folder.mkdir()
        (folder / "file").write_text("x")
        assert Driven(flow_doing(reader_of("library", folder / "file"))).outcome == "done"


def test_a_site_that_tells_nothing_is_borne(tmp_path, folders, monkeypatch):
    monkeypatch.delattr(site, "getusersitepackages")
    monkeypatch.delattr(site, "getsitepackages")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _name: None)
    assert Driven(flow_doing(a_file_of_a_library(tmp_path))).outcome == "done"
    driven = Driven(flow_doing(reader_of("library", Path(__file__))))
    assert "cannot use a file" in driven.outcome["message"]


@pytest.fixture
def folders() -> Iterator[None]:
    """Found anew by the test, and after it."""
    deployed_folders.cache_clear()
    yield
    deployed_folders.cache_clear()


# -- what flow code does by way of them ------------------------------------------------------------


def reading() -> Generator[str, None, None]:
    yield Path(__file__).read_text()


def closing() -> None:
    generator = a_generator_of(Path("/nowhere"))
    next(generator)
    generator.close()


def given_a_reference(reference: weakref.ref[Any]) -> str:
    return Path(__file__).read_text()


BY_FLOW_CODE: dict[str, Callable[[], Any]] = {
    "next": lambda: next(reading()),
    "list": lambda: list(reading()),
    "for": lambda: [each for each in reading()],  # noqa: C416 - by the loop itself
    "unpacking": lambda: [*reading()],
    "close": closing,
    "live reference": lambda: given_a_reference(weakref.ref(LIVE)),
}
LIVE = Leaving()


@pytest.mark.parametrize("kind", BY_FLOW_CODE)
def test_what_flow_code_resumes_or_calls_is_its_own(kind):
    driven = Driven(flow_doing(BY_FLOW_CODE[kind]))
    assert "cannot use a file" in driven.outcome["message"]
