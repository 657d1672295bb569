"""What a file system refuses to SQLite is named, also where nothing is to be written."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys

import pytest

from tests.cli.conftest import COMMAND, PATIENCE_S, Program

FULL = "dd if=/dev/zero of=fill bs=1k 2>/dev/null"
READ_ONLY = "mount -o remount,ro ."


def mounted(program: Program, *, after: str, arguments: tuple[str, ...]) -> tuple[int, str]:
    """The code and the output of a command on a small disk of its own, after ``after``.

    The disk is in a mount namespace, and gone with its shell.
    """
    disk = program.folder / "disk"
    disk.mkdir()
    url = f"sqlite:///{disk}/x.db"
    script = f"""
        mount -t tmpfs -o size=600k tmpfs . && cd {disk} || exit 99
        {shlex.join([*COMMAND, "migrate", "--url", url])} >/dev/null 2>&1
        {after}
        {shlex.join([*COMMAND, *arguments, "--url", url])} 2>&1
    """
    command = ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", script]
    done = subprocess.run(
        command,
        cwd=disk,
        env=program.environ(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    return done.returncode, done.stdout


pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or shutil.which("unshare") is None
    or subprocess.run(
        ["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="no mount namespaces here",
)


@pytest.mark.parametrize(
    ("after", "said"),
    [(READ_ONLY, "the file system is read-only"), (FULL, "the disk is full: free some space")],
)
@pytest.mark.parametrize(
    "arguments", [("lease", "ls"), ("work", "stats"), ("work", "enqueue", "q")]
)
def test_what_a_file_system_refuses_is_named(
    outlive: Program, after: str, said: str, arguments: tuple[str, ...]
) -> None:
    code, output = mounted(outlive, after=after, arguments=arguments)
    assert code == 69
    assert said in output


@pytest.mark.parametrize("after", [READ_ONLY, FULL])
def test_a_doctor_gives_no_advice_about_servers_for_a_file(outlive: Program, after: str) -> None:
    code, output = mounted(outlive, after=after, arguments=("doctor",))
    assert code == 1
    assert "the file system is read-only" in output or "the disk is full" in output
    assert "store is running" not in output
