"""What handlers and steps do in tests that take their hosts or their time away."""

from __future__ import annotations

import asyncio


async def stay(seen: list[str]) -> None:
    """Be there for a minute; note the beginning, and the cancellation that ends it."""
    seen.append("began")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
