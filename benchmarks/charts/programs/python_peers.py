"""Sends events to machines of other Python libraries, one line of JSON in, one rate out.

Started with the folder of the peers on its path; ours is not imported here.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.charts.shapes import BURST, PARALLEL


def _transitions() -> Callable[[], object]:
    from transitions import Machine

    machine: Any = Machine(states=["off", "on"], initial="off")
    machine.add_transition("toggle", "off", "on")
    machine.add_transition("toggle", "on", "off")
    return machine.toggle


def _xstate_statemachine() -> Callable[[], object]:
    from xstate_statemachine import MachineLogic, SyncInterpreter, create_machine

    logging.getLogger("xstate_statemachine").setLevel(logging.ERROR)
    logic: Any = MachineLogic(guards={"positive": lambda context, _event: context["n"] > 0})
    machine: Any = create_machine(PARALLEL, logic=logic)
    interpreter: Any = SyncInterpreter(machine)
    interpreter.start()
    return lambda: interpreter.send("TOGGLE")


_PEERS = {"flat": _transitions, "parallel": _xstate_statemachine}


def main() -> None:
    """Answer each line until there are no more."""
    for line in sys.stdin:
        shape, seconds = json.loads(line)
        send = _PEERS[shape]()
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            for _ in range(BURST):
                send()
            done += BURST
            now = time.perf_counter()
        print(json.dumps(done / (now - started)), flush=True)


if __name__ == "__main__":
    main()
