-- Work: jobs, what went wrong with them, their queues, and the hosts that wait for them.
--
-- Instants named *_at_us are UTC: due times, expiry, retention and the windows of rates are judged
-- by them. Whether a claim lives is judged by the session of its claimant, in the sidecar file.

-- One counter numbers jobs as they are enqueued and as they become ready, so that both orders are
-- one. Numbers are never used twice, also after their rows are gone.
CREATE TABLE outlive_job_counter (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
);
INSERT INTO outlive_job_counter (one, last) VALUES (1, 0);

-- The columns that every claim changes stand before those that may be large.
CREATE TABLE outlive_job (
    number           INTEGER PRIMARY KEY,        -- the order of enqueueing
    namespace        TEXT    NOT NULL,
    id               TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    blocked          INTEGER NOT NULL DEFAULT 0, -- an earlier job of its ordering key is live
    priority         INTEGER NOT NULL,
    seq              INTEGER NOT NULL,           -- its place, from when it became ready
    due_at_us        INTEGER NOT NULL,
    expires_at_us    INTEGER,
    expires_us       INTEGER,                    -- counted anew when it is retried by hand
    ordering_key     TEXT,
    unique_key       TEXT,
    token            INTEGER NOT NULL,           -- at first its number, and one more per claim
    attempts         INTEGER NOT NULL DEFAULT 0,
    losses           INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL,
    max_losses       INTEGER NOT NULL,
    cancel_reason    TEXT,                       -- JSON; somebody wants the claimed job cancelled
    session          TEXT,                       -- this and the next four: of the newest claim
    host             TEXT,                       -- who is rung for it
    worker           TEXT,
    request          TEXT,
    claimed_at_us    INTEGER,
    claim_ended      TEXT,                       -- how that claim ended: a repeated call is known
    enqueued_at_us   INTEGER NOT NULL,
    ended_at_us      INTEGER,
    retention_us     INTEGER NOT NULL,
    prune_at_us      INTEGER,                    -- NULL: live
    progress         TEXT,
    error            TEXT,
    result           TEXT,
    retry            TEXT    NOT NULL,
    headers          TEXT    NOT NULL,
    payload          TEXT    NOT NULL
);
-- The id first: a statement that looks many ids up must not be tempted to walk the namespace.
CREATE UNIQUE INDEX outlive_job_id ON outlive_job (id, namespace);

-- What can be claimed, in the order in which it is: a claim reads from its beginning. This and the
-- next indexes end with whatever else is asked of them, so that the jobs need not be touched.
CREATE INDEX outlive_job_ready ON outlive_job (
    namespace, queue, priority DESC, seq, due_at_us, expires_at_us, state, blocked
) WHERE state = 'ready' AND blocked = 0;

-- What waits for its time. A blocked job waits for another job first.
CREATE INDEX outlive_job_due ON outlive_job (namespace, queue, due_at_us, state, blocked)
    WHERE state IN ('scheduled', 'retrying') AND blocked = 0;

CREATE INDEX outlive_job_claimed ON outlive_job (namespace, queue, session, state)
    WHERE state = 'claimed';

CREATE UNIQUE INDEX outlive_job_unique ON outlive_job (namespace, queue, unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('scheduled', 'ready', 'claimed', 'retrying');

-- The first of a key is the one whose turn it is, or else the next one.
CREATE INDEX outlive_job_order ON outlive_job (
    namespace, queue, ordering_key, blocked, number, state
) WHERE ordering_key IS NOT NULL AND state IN ('scheduled', 'ready', 'claimed', 'retrying');

CREATE INDEX outlive_job_expiry ON outlive_job (namespace, expires_at_us)
    WHERE expires_at_us IS NOT NULL AND state IN ('scheduled', 'ready', 'retrying');

CREATE INDEX outlive_job_ended ON outlive_job (namespace, prune_at_us, queue, state)
    WHERE prune_at_us IS NOT NULL;

-- People look at the dead letters, however many jobs were done beside them.
CREATE INDEX outlive_job_dead ON outlive_job (namespace, number)
    WHERE state = 'dead';

-- What went wrong: the newest entries of a job, by the token of the claim; 0 if it had none.
CREATE TABLE outlive_job_attempt (
    entry         INTEGER PRIMARY KEY,
    job           INTEGER NOT NULL,              -- its number
    token         INTEGER NOT NULL,
    outcome       TEXT    NOT NULL,
    worker        TEXT,
    claimed_at_us INTEGER,
    ended_at_us   INTEGER NOT NULL,
    error         TEXT
);
CREATE INDEX outlive_job_attempt_job ON outlive_job_attempt (job, entry);

CREATE TRIGGER outlive_job_removed AFTER DELETE ON outlive_job
BEGIN
    DELETE FROM outlive_job_attempt WHERE job = OLD.number;
    -- An id may be used again after its job is gone: the tokens of the new one must be greater.
    UPDATE outlive_job_counter SET last = OLD.token WHERE last < OLD.token;
END;

-- A queue has a row once somebody set something for it.
CREATE TABLE outlive_queue (
    namespace      TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    mode           TEXT    NOT NULL,
    concurrency    INTEGER,
    rate           INTEGER,
    rate_period_us INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

-- Claims of the queues that have a rate, as long as its period.
CREATE TABLE outlive_queue_claims (
    namespace TEXT    NOT NULL,
    queue     TEXT    NOT NULL,
    at_us     INTEGER NOT NULL,                  -- UTC
    claims    INTEGER NOT NULL,
    PRIMARY KEY (namespace, queue, at_us)
) WITHOUT ROWID;

-- Hosts that found too little and want to be rung. Only a hint is lost with a row.
CREATE TABLE outlive_job_waiter (
    note        INTEGER PRIMARY KEY,             -- the oldest is rung first
    namespace   TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    until_at_us INTEGER NOT NULL,
    called      INTEGER NOT NULL DEFAULT 0,      -- a job that a user's transaction called it for
    UNIQUE (namespace, queue, host)
);
