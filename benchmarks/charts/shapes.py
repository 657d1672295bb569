"""The charts that are measured: the same document for us, for XState and for peers.

Owns the documents and the number of events in a burst, after which a program looks at the clock.
"""

from __future__ import annotations

from typing import Any

FLAT: dict[str, Any] = {
    "id": "toggle",
    "initial": "off",
    "states": {"off": {"on": {"TOGGLE": "on"}}, "on": {"on": {"TOGGLE": "off"}}},
}


def _region() -> dict[str, Any]:
    return {
        "initial": "x",
        "states": {
            "x": {"on": {"TOGGLE": {"target": "y", "guard": "positive"}}},
            "y": {"on": {"TOGGLE": {"target": "x", "guard": "positive"}}},
        },
    }


PARALLEL: dict[str, Any] = {
    "id": "regions",
    "type": "parallel",
    "context": {"n": 1},
    "states": {"left": _region(), "right": _region()},
}

SHAPES = {"flat": FLAT, "parallel": PARALLEL}

# Long enough that reading the clock costs nothing, short enough to end a round on time.
BURST = 500
