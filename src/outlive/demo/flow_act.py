"""The act of the flow: its host dies in the middle, and another one goes on where it stood.

Starts real processes and ends only those. Every line printed is something that just happened.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import outlive
from outlive.clock import SystemClock
from outlive.demo.flow_worker import FLOW, STEPS
from outlive.demo.instances import REGIONS, Instance, first_to_say, start, tell
from outlive.demo.job_worker import SESSION_TTL_S
from outlive.flows.events import StepEnded

_ORDER = 42
# More than the longest that the act takes: two session ttls and the work itself.
_PATIENCE_S = 20.0
# Two have ended by then, and one is left for the successor.
_KILLED_IN = STEPS[2]

_clock = SystemClock()


async def run_flow(file: Path) -> bool:
    """The whole act; whether every step ended once, and none that had ended was begun again."""
    tell(f"\n6. A flow of {len(STEPS)} steps: {', '.join(STEPS)}; two hosts can run it")
    hosts: list[Instance] = []
    async with outlive.connect(f"sqlite:///{file}", name="demo") as host:
        try:
            for region in REGIONS[:2]:
                # One by one, so that each is ended whatever becomes of the next.
                hosts.append(await start(file, region, "flow_worker"))  # noqa: PERF401
            for instance in hosts:
                await instance.hear("ready")
            handle = await host.flows.start(FLOW, {"order": _ORDER}, id=f"order-{_ORDER}")
            owner, begun = await _run_until_killed(hosts)
            survivor = next(instance for instance in hosts if instance is not owner)
            begun += await _take_over(survivor)
            result: list[str] = await handle.result(timeout=_PATIENCE_S)
            history = await handle.history()
        finally:
            for instance in hosts:
                await instance.end()
    return _sum_up(result, history, begun)


async def _run_until_killed(hosts: list[Instance]) -> tuple[Instance, list[str]]:
    """Kill the host that runs the flow in mid-step; which it was, and what it had begun."""
    owner, said = await first_to_say(hosts, "log")
    while "flow" not in said["text"]:
        owner, said = await first_to_say(hosts, "log")
    logged, said = said["text"], await owner.hear("began")
    begun: list[str] = []
    while True:
        begun.append(said["step"])
        tell(f"   {owner.region:9} runs step {said['step']}, with token {said['token']}")
        if said["step"] == _KILLED_IN:
            break
        said = await owner.hear("began")
    owner.signal(signal.SIGKILL)
    await owner.process.wait()
    tell(
        f"   {owner.region:9} is killed (SIGKILL) in the middle of it; "
        f"its session ends in {SESSION_TTL_S:g} s"
    )
    tell(f"   {owner.region:9} has logged: {logged}")
    return owner, begun


async def _take_over(survivor: Instance) -> list[str]:
    """Let the other host go on; what it begins."""
    killed_at, logged = _clock.monotonic(), ""
    said: dict[str, Any] | None = None
    # Its threads speak in any order.
    while said is None or not logged:
        message = await survivor.hear("began", "log")
        if message["event"] == "began":
            said = message
        elif "recovered" in message["text"]:
            logged = message["text"]
    tell(f"   {survivor.region:9} logs: {logged}")
    tell(
        f"   {survivor.region:9} took the flow over after {_clock.monotonic() - killed_at:.2f} s, "
        f"with token {said['token']}, and begins with step {said['step']}"
    )
    begun: list[str] = [said["step"]]
    while begun[-1] != STEPS[-1]:
        said = await survivor.hear("began")
        tell(f"   {survivor.region:9} runs step {said['step']}")
        begun.append(said["step"])
    return begun


def _sum_up(result: list[str], history: list[outlive.FlowCommit], begun: list[str]) -> bool:
    ends = [
        event.step for commit in history for event in commit.events if isinstance(event, StepEnded)
    ]
    shares = ", ".join(f"{step} on {host}" for step, host in zip(STEPS, result, strict=True))
    repeated = {step for step in begun if begun.count(step) > 1} - {_KILLED_IN}
    tell(f"   done: {shares}")
    tell(
        f"   {len(ends)} steps ended, each recorded once; {len(repeated)} of the ended steps were "
        f"repeated"
    )
    return len(ends) == len(set(ends)) == len(STEPS) and not repeated
