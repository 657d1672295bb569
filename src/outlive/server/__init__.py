"""The HTTP API: queues and claims for workers in any language.

A worker asks ``/worker/next`` for an item, works on it, sends heartbeats while it does, and
completes, fails or releases it under the claim id that it was given. Whoever fills queues posts
items to them. Everything is JSON; refusals are problem documents.
"""
