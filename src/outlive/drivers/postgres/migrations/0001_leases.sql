-- Schema 1: leases with their history and queues, the sessions of hosts, and the store's identity.
-- "{s}" stands for the configured schema, already quoted. Runs inside one transaction of the
-- migration runner, which also writes the version.

CREATE TABLE {s}.schema_version (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row: which store this is. A guard compares it, so that a transaction on another database
-- (a restored copy, a replica promoted by mistake) is refused instead of silently passing.
CREATE TABLE {s}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO {s}.store DEFAULT VALUES;

-- Rows are never deleted: deleting would restart tokens at 1 and let an owner from before the
-- delete pass the fence again. Slot 0 is the mutex of its key for whatever looks at several rows.
-- Free: owner and expires_at are null, free_at says since when. Owned: free_at is null.
CREATE TABLE {s}.lease (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    limit_ integer NOT NULL,
    token bigint NOT NULL,
    version bigint NOT NULL,
    owner text COLLATE "C",
    host text COLLATE "C",
    expires_at timestamptz,
    free_at timestamptz,
    ttl_us bigint NOT NULL,
    acquired_at timestamptz NOT NULL,
    renewed_at timestamptz NOT NULL,
    metadata text NOT NULL,
    state text,
    previous_owner text,
    -- The newest place given in the queue of this key (slot 0 only). A release whose snapshot is
    -- too old to see that place learns of it here, because this row is what it locks.
    last_waiter bigint,
    PRIMARY KEY (namespace, key, slot),
    -- Makes the token a key column: a takeover then needs FOR UPDATE, which waits for a guard's
    -- FOR KEY SHARE, while renewals (FOR NO KEY UPDATE) pass beside it.
    UNIQUE (namespace, key, token),
    CHECK ((owner IS NULL) = (expires_at IS NULL)),
    CHECK ((owner IS NULL) = (free_at IS NOT NULL))
)
-- Renewals and releases change no indexed column; room on the page keeps them heap-only.
WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);

-- Grants that have ended. The present owner's entry is its lease row.
CREATE TABLE {s}.lease_history (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    slot integer NOT NULL,
    owner text NOT NULL,
    acquired_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    ended text NOT NULL,
    detail text,
    PRIMARY KEY (namespace, key, token)
);

-- Places in the queues. Every write here happens under the lock of the key's slot 0, so the
-- order of seq is the order of commits.
CREATE TABLE {s}.waiter (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    passed boolean NOT NULL DEFAULT false,
    UNIQUE (namespace, key, owner)
);
CREATE INDEX waiter_queue ON {s}.waiter (namespace, key, seq);

-- Sessions. An ended session stays, as the proof that its id was used, until it is pruned.
CREATE TABLE {s}.host (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    ttl_us bigint NOT NULL,
    metadata text NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at timestamptz,
    PRIMARY KEY (namespace, id)
)
WITH (fillfactor = 60);
CREATE INDEX host_open ON {s}.host (namespace, started_at) WHERE ended_at IS NULL;
