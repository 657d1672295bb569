"""A run keeps its files in memory only where they fit and can be used."""

from __future__ import annotations

import os

import pytest

from tests.plugins import scratch
from tests.plugins.scratch import FREE_LEAST_BYTES, offers_room


@pytest.fixture
def found(monkeypatch):
    """What the file system says of itself, for a test to change."""
    sizes = {"f_flag": 0, "f_bavail": FREE_LEAST_BYTES, "f_frsize": 1}

    class Found:
        def __getattr__(self, name: str) -> int:
            return sizes[name]

    monkeypatch.setattr(os, "statvfs", lambda _: Found())
    return sizes


def test_a_folder_with_room_is_taken(found, tmp_path):
    assert offers_room(tmp_path)


def test_a_small_one_is_not(found, tmp_path):
    found["f_bavail"] -= 1
    assert not offers_room(tmp_path)


def test_one_that_runs_no_programs_is_not(found, tmp_path):
    found["f_flag"] = os.ST_NOEXEC
    assert not offers_room(tmp_path)


def test_one_that_is_not_there_is_not(tmp_path):
    assert not offers_room(tmp_path / "nowhere")


def test_a_folder_that_somebody_chose_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch.pytest_configure()
    assert os.environ["TMPDIR"] == str(tmp_path)
