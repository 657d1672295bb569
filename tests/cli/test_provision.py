"""``outlive provision``: the containers of the Azure drivers are made and deleted by command."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.service


@pytest.fixture(params=["azblob_store", "cosmos_store"])
def program(request, outlive):
    outlive.store = request.getfixturevalue(request.param)
    return outlive


def test_a_container_is_made_and_deleted_by_command(program):
    backend = program.url.partition("://")[0]
    # Commands that only look make nothing.
    missing = program("lease", "ls")
    assert missing.code == 78
    assert f"`outlive provision {backend}` creates" in missing.stderr
    for _ in range(2):
        assert program("provision", backend).code == 0
    assert program("lease", "ls").code == 0
    winner = program.at_terminal("demo", "compete", "--work", "60")
    winner.expect(r"LOCK ACQUIRED")
    refused = program("provision", backend, "--remove")
    assert refused.code == 2
    assert "lease 'demo/competition' is owned by" in refused.stderr
    winner.interrupt()
    winner.finish()
    removed = program("provision", backend, "--remove", "-o", "json")
    assert removed.code == 0, removed.stderr
    assert removed.document["exists"] is False
    assert program("lease", "ls").code == 78


def test_the_url_must_be_one_of_the_backend(shell):
    done = shell("provision", "cosmos", "--remove")
    assert done.code != 0
    assert "the URL is sqlite://, not cosmos://" in done.stderr
