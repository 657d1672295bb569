"""The Python versions and systems that the package claims are those that are tested."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLASSIFIERS = PYPROJECT["project"]["classifiers"]
VERSIONS = [
    found[1] for each in CLASSIFIERS if (found := re.search(r" :: Python :: (3\.\d+)$", each))
]


def test_the_oldest_version_is_the_one_that_the_tools_check_for() -> None:
    oldest = VERSIONS[0]
    assert PYPROJECT["project"]["requires-python"] == f">={oldest}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert PYPROJECT["tool"]["pyright"]["pythonVersion"] == oldest


def test_the_readme_names_the_versions_of_the_classifiers() -> None:
    *most, newest = VERSIONS
    sentence = f"Outlive runs on Python {', '.join(most)} and {newest}, on Linux."
    assert sentence in (ROOT / "README.md").read_text()
    systems = [each for each in CLASSIFIERS if each.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("default", VERSIONS)
def test_the_whole_check_runs_the_oldest_and_the_newest_version(
    tmp_path: Path, default: str
) -> None:
    oldest, *between, newest = VERSIONS
    on_path, home = tmp_path / "bin", tmp_path / "home"
    on_path.mkdir()
    # And nothing else: the interpreters of this machine must not be found.
    for tool in ("bash", "dirname", "sed"):
        (on_path / tool).symlink_to(str(shutil.which(tool)))
    program(on_path / "make", f'echo "$@" >>{tmp_path}/ran')
    program(tmp_path / "venv/bin/python", f"echo python{default}")
    first = program(on_path / f"python{oldest}", "exit 0")
    # As a shim of pyenv does it for a version that is not switched on.
    for version in (*between, newest):
        program(on_path / f"python{version}", "exit 127")
    last = program(home / f".pyenv/versions/{newest}.0/bin/python{newest}", "exit 0")
    subprocess.run(
        [ROOT / ".ci/run"],
        env={
            "PATH": str(on_path),
            "HOME": str(home),
            "OUTLIVE_VENV": str(tmp_path / "venv"),
        },
        check=True,
    )
    others = {oldest: first, newest: last}
    others.pop(default, None)
    assert (tmp_path / "ran").read_text().splitlines() == [
        "lint",
        "test",
        *(f"test-fast PYTHON={python}" for python in others.values()),
    ]
