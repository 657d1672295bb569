"""One of two hosts on one database: quick flows and a long one, and either host may die.

python examples/flows/two_hosts.py sqlite:///shop.db a
python examples/flows/two_hosts.py sqlite:///shop.db b

Kill one: within the session's ttl and a second the other goes on where it stood, and repeats no
step that had ended. Starting is idempotent by id, so that both may start the long flow.
"""

from __future__ import annotations

import asyncio
import sys

import outlive

app = outlive.App("shop")


@app.step
async def work(name: str, number: int) -> str:
    """Take a moment."""
    await asyncio.sleep(0.2)
    print(f"{name}: step {number} on {outlive.current().host}", flush=True)
    return f"{name}-{number}"


@app.flow
async def quick(name: str) -> str:
    """Two steps, and done."""
    await work(name, 0)
    return await work(name, 1)


@app.flow
async def long(name: str, steps: int) -> int:
    """One step after the other."""
    for number in range(steps):
        await work(name, number)
    return steps


async def main(url: str, name: str) -> None:
    """Serve until the long flow is through, whoever runs it."""
    async with outlive.connect(url, app=app, name=name, session_ttl=2) as host, host.running():
        for number in range(5):
            await host.flows.start(quick, f"quick-{name}-{number}")
        handle = await host.flows.start(long, "long", 30, id="long")
        print(f"{await handle.result(timeout=60)} steps", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:  # noqa: PLR2004 - a store and a host
        sys.exit("usage: python examples/flows/two_hosts.py URL HOST, such as sqlite:///shop.db a")
    asyncio.run(main(sys.argv[1], sys.argv[2]))
