"""gRPC is imported without its handlers of a fork, unless somebody decided otherwise before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from importlib.machinery import PathFinder

name = "GRPC_ENABLE_FORK_SUPPORT"
seen = []

class Watcher:
    @staticmethod
    def find_spec(module, path=None, target=None):
        if module == "grpc":
            seen.append(os.environ.get(name))

sys.meta_path.insert(0, Watcher)
if "early" in sys.argv:
    import grpc
from outlive.drivers.etcd.library import import_rpc
rpc, grpc = import_rpc()
import_rpc()
assert grpc.aio and rpc.RangeRequest
print(seen, os.environ.get(name))
"""


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ([], {}, "['0'] None"),
        ([], {"GRPC_ENABLE_FORK_SUPPORT": "1"}, "['1'] 1"),
        ([], {"GRPC_ENABLE_FORK_SUPPORT": ""}, "['0']"),
        (["early"], {}, "[None] None"),
    ],
)
def test_what_grpc_sees_while_it_is_imported(arguments, environ, expected) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=kept | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == expected, done.stderr
