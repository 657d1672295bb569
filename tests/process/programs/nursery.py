"""Becomes the other programs: forks for each, after it has imported what all of them import.

Owns nothing but its children, and their ends until somebody asks for them. Answers one request at a
time, on the socket that it is given as a number; ends when the other end is closed, and leaves its
children to themselves then, as a shell would.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

# What the programs need, most of them; a driver that keeps threads of its own is left out.
import outlive.drivers.postgres
import outlive.drivers.redis
import outlive.drivers.sqlite  # noqa: F401 - for those who come after
import tests.process.programs.ledgers
import tests.process.programs.speech  # noqa: F401 - for those who come after

# One request: a program, its arguments and an environment.
REQUEST_BYTES_MAX = 1 << 18
# Input, output and errors of a program.
STREAMS = 3


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Answer requests until there are no more; in a child, give what it shall become."""
    while True:
        data, streams, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, STREAMS)
        if not data:
            return None
        request = json.loads(data)
        if request["do"] == "start":
            pid = os.fork()
            if pid == 0:
                requests.close()
                _take(streams)
                return request
            for stream in streams:
                os.close(stream)
            answer = pid
        elif request["do"] == "await_stop":
            # WNOWAIT leaves the end of the process to whoever asks for it.
            options = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            found = os.waitid(os.P_PID, request["pid"], options)
            answer = int(found is not None and found.si_code == os.CLD_STOPPED)
        else:
            _, status = os.waitpid(request["pid"], 0)
            answer = os.waitstatus_to_exitcode(status)
        requests.send(json.dumps(answer).encode())


def _take(streams: list[int]) -> None:
    """Make ``streams`` those of this process. Nothing was read from or written to its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def become(program: dict[str, Any]) -> None:
    """Be what ``python -m`` would have started, in a session of its own."""
    os.setsid()
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["env"])
    sys.argv[1:] = program["arguments"]
    runpy.run_module(program["module"], run_name="__main__", alter_sys=True)


def main(descriptor: str) -> None:
    # A child has its own; an interrupt of the test run is not for it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What is there now stays for ever: no child shall look through it.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as requests:
        program = serve(requests)
    if program is not None:
        become(program)


if __name__ == "__main__":
    main(sys.argv[1])
