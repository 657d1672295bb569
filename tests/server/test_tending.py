"""A server looks after the namespaces that it serves, though nobody works in its process."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.errors import JobNotFound
from outlive.runtime import tender
from outlive.server.serving import ServePlan, serve

NAMESPACES = ("default", "other")


async def ended(namespace):
    """A job of ``namespace`` that has ended, and was kept long enough; nobody stays connected."""
    async with outlive.connect("memory://served", namespace=namespace) as host:
        job = await host.work.enqueue("q", 1, retention=0.01)
        (claim,) = await host.work.claim("q")
        await claim.complete()
        return job.id


async def test_a_server_lets_the_store_forget_in_each_of_its_namespaces(monkeypatch):
    monkeypatch.setattr(tender, "TEND_EVERY_S", 0.05)
    started = asyncio.Event()
    plan = ServePlan(url="memory://served", namespaces=NAMESPACES, port=0)
    serving = asyncio.create_task(serve(plan, started=lambda *_: started.set()))
    await started.wait()
    try:
        for namespace in NAMESPACES:
            job = await ended(namespace)
            # One that keeps no session looks after nothing.
            looking = outlive.connect("memory://served", namespace=namespace, session=False)
            async with looking as host, asyncio.timeout(10):
                with pytest.raises(JobNotFound):
                    while True:
                        await host.work.job(job).status()
                        await asyncio.sleep(0.01)
    finally:
        serving.cancel()
        await asyncio.wait([serving])
