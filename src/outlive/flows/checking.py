"""Holds recorded runs of flows against the code as it is now. Pure; nothing is written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from outlive.errors import HistoryTooNew, NonDeterminism
from outlive.flows.flow import Flow
from outlive.flows.recording import Recording, replayed


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What the history says, and what the code does instead."""

    expected: str
    found: str


def check_recording(flows: Mapping[str, Flow[..., Any]], recording: Recording) -> Mismatch | None:
    """Run a recorded flow by the definitions that there are now; ``None`` if they still fit.

    Its steps are not run: the code is given what they returned then.
    """
    flow = flows.get(recording.name)
    if flow is None:
        return Mismatch(f"flow {recording.name!r}", f"no such flow{near(recording.name, flows)}")
    if not recording.rows:
        # It has not begun: there is nothing that it would have to do again.
        return None
    try:
        with replayed(flow, recording):
            return None
    except NonDeterminism as error:
        return Mismatch(error.expected, error.found)
    except (HistoryTooNew, msgspec.MsgspecError) as error:
        return Mismatch(
            "a history that this release can read", f"a history of a newer release: {error}"
        )


def near(name: str, known: Mapping[str, object]) -> str:
    """What may have been meant by a name that is not known, as the end of a sentence."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
