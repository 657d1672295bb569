"""Every limit of the HTTP API, in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

# A batch of small jobs, or one large payload; what is larger belongs into a blob.
BODY_BYTES_MAX = 1024 * 1024

# Whoever takes longer to send a body of that size is holding the connection, not sending.
BODY_TIMEOUT_S = 20.0

# Of a body that is refused as too large, so much is read and dropped: a client that is still
# sending when the connection ends never reads why. Whoever sends more than that is cut off.
DRAIN_BYTES_MAX = 8 * 1024 * 1024

# The head of a request: longer than any honest one, with its token and a query of names. A
# connection on which none arrives in time is closed, or idle ones would use up all there are.
HEAD_BYTES_MAX = 64 * 1024
HEAD_TIMEOUT_S = 10.0

# How long a connection may be idle between two requests. A worker sends a heartbeat each third of
# its ttl, ten seconds as a rule: one that finds its connection closing at that moment is lost.
KEEP_ALIVE_S = 15.0

# Values in one document: a batch of a thousand jobs with a hundred values each. Parsing more would
# hold up everybody else on the event loop.
BODY_VALUES_MAX = 100_000

# Jobs in one request; more are an import, to be sent in several.
BATCH_MAX = 1000

# Claims in one heartbeat: a worker with more is many workers.
CLAIMS_MAX = 1000

# One page of items.
PAGE_MAX = 500
PAGE_DEFAULT = 100

# A page ends early once its payloads, results and errors are this large: five hundred payloads of
# the largest size would be half a gigabyte in the server.
PAGE_BYTES_MAX = 8 * 1024 * 1024

# Records that are read at a time: a few at first, more as they turn out to be small. Large ones may
# come behind small ones, so that even the largest part of them must fit into memory.
PAGE_READ = 8
PAGE_READ_MAX = 64
PAGE_READ_BYTES = 4 * 1024 * 1024

# Below the minute after which proxies and load balancers cut a silent connection.
WAIT_MAX_S = 55.0

# A session shorter than this ends in an ordinary hiccup; one longer leaves the work of a dead
# worker lying about.
TTL_MIN_S = 5.0
TTL_MAX_S = 3600.0
TTL_DEFAULT_S = 30.0

# Queues that one worker asks for at a time: each is looked at in the same step of the store.
QUEUES_MAX = 32

# The name of a class of errors, as a retry policy has it.
TYPE_LENGTH_MAX = 128

# A claim that has lived for a day is a worker that hangs: the next heartbeat that names it gives
# the item to others.
CLAIM_AGE_MAX_S = 86_400.0

# Requests that wait at the same time: for one bearer, so that none keeps the others out, and for
# the whole server, which holds a connection open for each.
WAITERS_PER_BEARER_MAX = 100
WAITERS_MAX = 1000

# Connections at a time; more are answered 503 before anything is read.
CONNECTIONS_MAX = 2000

# How soon a waiting request looks again though nobody rang: a hint may be lost. A backend that is
# known to be deaf is asked more often.
POLL_S = 5.0
POLL_DEAF_S = 0.5

# A failed authentication is answered so long after it came in, whatever the reason: an answer that
# is quicker for one reason than for another would tell which it was.
FAILURE_S = 0.1

# Failures one address may have at once, and how fast it earns new ones back.
FAILURES_MAX = 20
FAILURES_PER_S = 1.0

# Addresses that are remembered with their failures; the one that was quiet longest is forgotten.
ADDRESSES_MAX = 10_000

# How long an authenticated bearer is believed before the store is asked again: a revocation takes
# effect within it.
BEARER_BELIEVED_S = 2.0
BEARERS_BELIEVED_MAX = 10_000

# How long a health check's answer is given to those who ask again; asking costs the store a query.
HEALTH_BELIEVED_S = 1.0

# How long requests under way may go on after the server was told to stop.
STOP_S = 10.0

# How long a body that is being sent then may still take: short of that, so that there is time left
# to do what it asks, or to say that it came too late.
STOP_BODY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits an operator may move; the others are fixed."""

    body_bytes: int = BODY_BYTES_MAX
    wait_s: float = WAIT_MAX_S
    waiters_per_bearer: int = WAITERS_PER_BEARER_MAX
    failures: int = FAILURES_MAX
    failure_s: float = FAILURE_S
