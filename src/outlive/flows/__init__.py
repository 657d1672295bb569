"""Durable orchestrations: plain ``async def`` that survives its host."""
