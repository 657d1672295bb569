"""The public surface: what ``outlive`` promises is there, and nothing else looks public."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
import types

import outlive


def test_every_promised_name_can_be_imported():
    assert len(outlive.__all__) > 3
    absent = [name for name in outlive.__all__ if not hasattr(outlive, name)]
    assert absent == []


def test_promises_are_made_once():
    assert len(outlive.__all__) == len(set(outlive.__all__))


def test_nothing_else_looks_public():
    public = {name for name in vars(outlive) if not name.startswith("_")}
    leaks = {
        name
        for name in public - set(outlive.__all__)
        if not _is_ours(getattr(outlive, name)) and name != "annotations"
    }
    assert leaks == set()


def test_no_promised_name_is_somebody_elses_module():
    modules = [name for name in outlive.__all__ if isinstance(_get(name), types.ModuleType)]
    assert [name for name in modules if not _is_ours(_get(name))] == []


def test_the_package_is_typed():
    folder = importlib.resources.files("outlive")
    assert (folder / "py.typed").is_file()


def _get(name: str) -> object:
    return getattr(outlive, name)


def _is_ours(value: object) -> bool:
    """Tell whether ``value`` is a submodule: importing one sets it on its package."""
    return isinstance(value, types.ModuleType) and value.__name__.startswith("outlive.")


def test_a_program_without_charts_does_not_import_them():
    program = "import sys, outlive.cli.main; print('outlive.charts' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
