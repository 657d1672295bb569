-- The schema of the main file. Runs inside one transaction of the migration runner, which also writes
-- the version.

-- compatible_with is the version of the oldest release that can use this schema. A table of our own,
-- because the file may be the user's too, and so may its user_version.
CREATE TABLE outlive_schema (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    version         INTEGER NOT NULL,
    compatible_with INTEGER NOT NULL
);

-- ---- Leases, their history and their queues ----
--
-- Instants named *_us without "at" are microseconds of the boot-time clock of `domain` (one boot
-- of one time namespace) and are compared only within that domain. Instants named *_at_us are UTC
-- and are for people: nothing is ever decided by them.

-- One row per slot of a key. Rows are never deleted: deleting would restart the tokens at 1 and
-- let an owner from before the delete pass the fence again.
CREATE TABLE outlive_lease (
    namespace      TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    slot           INTEGER NOT NULL,
    limit_         INTEGER NOT NULL,
    token          INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    owner          TEXT,              -- NULL: free
    host           TEXT,
    domain         TEXT    NOT NULL,
    expires_us     INTEGER NOT NULL,
    free_us        INTEGER NOT NULL,  -- when it last became free; meaningless while owned
    ttl_us         INTEGER NOT NULL,
    acquired_at_us INTEGER NOT NULL,
    renewed_at_us  INTEGER NOT NULL,  -- also the moment of release and break
    metadata       TEXT    NOT NULL,
    state          TEXT,              -- outlives the owners
    previous_owner TEXT,
    ended          TEXT,              -- why the grant before this state of the row ended
    detail         TEXT,
    history        INTEGER,           -- the newest entry of this slot's history
    endings        INTEGER NOT NULL DEFAULT 0,  -- how many grants of this slot have ended
    PRIMARY KEY (namespace, key, slot)
) WITHOUT ROWID;

-- Ended grants only; the present owner stands in outlive_lease. Entries are appended, each knowing
-- the one before it of the same slot: sorted by key instead, every release would touch a page of its
-- own, and a batch of them would write most of the table.
CREATE TABLE outlive_lease_history (
    id             INTEGER PRIMARY KEY,
    earlier        INTEGER,
    namespace      TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    token          INTEGER NOT NULL,
    slot           INTEGER NOT NULL,
    owner          TEXT    NOT NULL,
    acquired_at_us INTEGER NOT NULL,
    ended_at_us    INTEGER NOT NULL,
    ended          TEXT    NOT NULL,
    detail         TEXT
);

-- The queue of a key, in order of seq. AUTOINCREMENT: a place is never given out twice.
-- `passed` marks a place that did not answer in its turn; its owner's next attempt clears it.
CREATE TABLE outlive_waiter (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace     TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    host          TEXT    NOT NULL,
    domain        TEXT    NOT NULL,
    expires_us    INTEGER NOT NULL,
    passed        INTEGER NOT NULL DEFAULT 0,
    seen_at_us    INTEGER NOT NULL
);
CREATE INDEX outlive_waiter_key ON outlive_waiter (namespace, key, seq);

-- What an observer in another domain has seen of an owned row: `version` unchanged since
-- `seen_us` of the observer's own clock.
CREATE TABLE outlive_observation (
    namespace TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    slot      INTEGER NOT NULL,
    domain    TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    seen_us   INTEGER NOT NULL,
    PRIMARY KEY (namespace, key, slot, domain)
) WITHOUT ROWID;

-- Which store this is, so that two URLs can be told to mean the same one.
CREATE TABLE outlive_store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id  TEXT NOT NULL
);
INSERT INTO outlive_store (one, id) VALUES (1, lower(hex(randomblob(16))));

-- A grant ends in the same statement that changes its row, so that acquire and release stay one
-- statement each and are atomic without a savepoint. An expired grant ended when its time ran out.
CREATE TRIGGER outlive_lease_ended AFTER UPDATE OF owner ON outlive_lease
WHEN OLD.owner IS NOT NULL AND (NEW.owner IS NULL OR NEW.token <> OLD.token)
BEGIN
    INSERT INTO outlive_lease_history
        (earlier, namespace, key, token, slot, owner, acquired_at_us, ended_at_us, ended, detail)
    VALUES (
        OLD.history, OLD.namespace, OLD.key, OLD.token, OLD.slot, OLD.owner, OLD.acquired_at_us,
        CASE NEW.ended
            WHEN 'expired' THEN min(NEW.renewed_at_us, OLD.renewed_at_us + OLD.ttl_us)
            ELSE NEW.renewed_at_us
        END,
        NEW.ended, NEW.detail
    );
    UPDATE outlive_lease SET history = last_insert_rowid(), endings = endings + 1
    WHERE namespace = OLD.namespace AND key = OLD.key AND slot = OLD.slot;
END;

-- Whoever is granted a lock gives up its place, and those it overtook are marked as passed.
-- Somebody without a place overtook everybody. Semaphores do this in their slow path, because
-- with slots to spare nobody is overtaken.
CREATE TRIGGER outlive_lease_granted AFTER UPDATE OF owner ON outlive_lease
WHEN NEW.limit_ = 1 AND NEW.owner IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM outlive_waiter WHERE namespace = NEW.namespace AND key = NEW.key
    )
BEGIN
    UPDATE outlive_waiter SET passed = 1
    WHERE namespace = NEW.namespace AND key = NEW.key AND passed = 0
      AND NEW.token <> OLD.token
      AND seq < coalesce(
          (SELECT min(seq) FROM outlive_waiter
           WHERE namespace = NEW.namespace AND key = NEW.key AND owner = NEW.owner),
          9223372036854775807
      );
    DELETE FROM outlive_waiter
    WHERE namespace = NEW.namespace AND key = NEW.key AND owner = NEW.owner;
END;

-- What was observed of a grant of another domain is void once the row belongs to somebody here.
CREATE TRIGGER outlive_lease_moved AFTER UPDATE OF domain ON outlive_lease
WHEN NEW.domain <> OLD.domain
BEGIN
    DELETE FROM outlive_observation
    WHERE namespace = NEW.namespace AND key = NEW.key AND slot = NEW.slot;
END;

-- ---- Jobs, their attempts and their queues ----
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
    instance         TEXT,                       -- the flow that it answers with its end,
    step             TEXT,                       -- and the step of it that the job runs
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
    namespace, queue, priority DESC, seq, due_at_us, expires_at_us, state, blocked, losses
) WHERE state = 'ready' AND blocked = 0;

-- Those of them that were lost so often that each host runs one at a time.
CREATE INDEX outlive_job_suspect ON outlive_job (namespace, queue, losses, seq)
    WHERE state = 'ready' AND blocked = 0 AND losses >= 2;

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
    limits_by      TEXT    NOT NULL,             -- 'operator', or 'handler': a declaration
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

-- ---- Bearer tokens of the HTTP API, and the log of admin acts ----
--
-- Instants are UTC: a token's end is a date that a person chose.

-- digest is the SHA-256 of the token's text, which is stored nowhere.
CREATE TABLE outlive_bearer (
    namespace     TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    digest        TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,  -- separated by spaces
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    revoked_at_us INTEGER,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outlive_bearer_digest ON outlive_bearer (namespace, digest);

CREATE TABLE outlive_act (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT    NOT NULL,
    at_us     INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    subject   TEXT    NOT NULL
);
CREATE INDEX outlive_act_newest ON outlive_act (namespace, seq);

-- ---- Schedules: the next tick of each, and the last one that fired ----
--
-- Ticks are UTC: people name them.

-- Versions are never used twice, also after their rows are gone: a host that saw a schedule before
-- it was removed must not fire the one that took over its name.
CREATE TABLE outlive_schedule_counter (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
);
INSERT INTO outlive_schedule_counter (one, last) VALUES (1, 0);

-- A definition may be large, and every firing rewrites the columns before it.
CREATE TABLE outlive_schedule (
    number        INTEGER PRIMARY KEY,
    namespace     TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    paused        INTEGER NOT NULL DEFAULT 0,
    next_at_us    INTEGER NOT NULL,
    last_at_us    INTEGER,
    fired         INTEGER NOT NULL DEFAULT 0,
    created_at_us INTEGER NOT NULL,
    changed_at_us INTEGER NOT NULL,
    definition    TEXT    NOT NULL
);
CREATE UNIQUE INDEX outlive_schedule_name ON outlive_schedule (namespace, name);
CREATE INDEX outlive_schedule_next ON outlive_schedule (namespace, next_at_us, name)
    WHERE paused = 0;

-- Ticks that were fired ahead of the present show that the clock was set back.
CREATE INDEX outlive_schedule_last ON outlive_schedule (namespace, last_at_us)
    WHERE paused = 0 AND last_at_us IS NOT NULL;

-- ---- Instances (flows and charts) with their histories, mailboxes and replies ----
--
-- Instants named *_at_us are UTC: due times and retention are judged by them. Whether an owner
-- lives is judged by its session, in the sidecar file.

-- The columns that every commit changes stand before those that may be large. A large input stands
-- in a table of its own: each commit writes the whole row anew.
CREATE TABLE outlive_instance (
    number        INTEGER PRIMARY KEY,           -- the order of starting; all that hangs on it has it
    namespace     TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    status        TEXT    NOT NULL,              -- never 'suspended': that is the next column
    suspended     INTEGER NOT NULL DEFAULT 0,    -- only while it is live
    token         INTEGER NOT NULL,              -- 0: was never claimed
    version       INTEGER NOT NULL,
    base          INTEGER NOT NULL DEFAULT 0,
    session       TEXT,                          -- NULL: nobody's; with the next two, of its owner
    host          TEXT,                          -- who is rung for it
    worker        TEXT,
    claim         TEXT,                          -- the request of the claim, until the first commit
    due_at_us     INTEGER,
    began_at_us   INTEGER NOT NULL,
    updated_at_us INTEGER NOT NULL,
    ended_at_us   INTEGER,                       -- NULL: live
    prune_at_us   INTEGER,
    created_at_us INTEGER NOT NULL,
    retention_us  INTEGER NOT NULL,
    first_token   INTEGER NOT NULL DEFAULT 0,    -- with which it was started
    request       TEXT    NOT NULL,              -- that started it: a repeated call is known by it
    parent        TEXT,
    outlives      INTEGER NOT NULL DEFAULT 0,    -- it is not terminated with its parent
    headers       TEXT    NOT NULL,
    attributes    TEXT    NOT NULL,
    custom        TEXT,
    outcome       TEXT,
    input         TEXT                           -- NULL: in outlive_instance_input
);
CREATE UNIQUE INDEX outlive_instance_id ON outlive_instance (id, namespace);

-- What can be claimed without a letter, now or when it is due. Nothing that is owned, has ended,
-- was suspended or waits for letters alone is in it.
CREATE INDEX outlive_instance_due ON outlive_instance (namespace, kind, name, due_at_us)
    WHERE session IS NULL AND ended_at_us IS NULL AND suspended = 0 AND due_at_us IS NOT NULL;

-- Who owns what; those without an owner stand before all others.
CREATE INDEX outlive_instance_live ON outlive_instance (namespace, session)
    WHERE ended_at_us IS NULL;

CREATE INDEX outlive_instance_ended ON outlive_instance (namespace, prune_at_us)
    WHERE prune_at_us IS NOT NULL;

-- People look at what failed, however much completed beside it.
CREATE INDEX outlive_instance_failed ON outlive_instance (namespace, number)
    WHERE status = 'failed';

CREATE INDEX outlive_instance_parent ON outlive_instance (parent, namespace)
    WHERE parent IS NOT NULL;

CREATE TABLE outlive_instance_input (
    instance INTEGER PRIMARY KEY,
    input    TEXT NOT NULL
);

-- One row for each commit: versions have no gaps behind the base of the instance.
CREATE TABLE outlive_history (
    instance  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    commit_id TEXT    NOT NULL,
    token     INTEGER NOT NULL,
    worker    TEXT,
    at_us     INTEGER NOT NULL,
    events    TEXT    NOT NULL,
    PRIMARY KEY (instance, version)
) WITHOUT ROWID;

-- Letters. One that was read loses its contents; its row stays as long as the instance, so that
-- the same letter is not delivered twice and no number is used again.
CREATE TABLE outlive_letter (
    number     INTEGER PRIMARY KEY,
    instance   INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    sent_at_us INTEGER NOT NULL,
    payload    TEXT,                             -- NULL: was read
    UNIQUE (instance, id)
);
CREATE INDEX outlive_letter_unread ON outlive_letter (instance, number)
    WHERE payload IS NOT NULL;

-- Mailboxes that are not empty, and since when. Kept by the triggers below, because instances that
-- can be claimed for their letters must be found without looking at those that sleep.
CREATE TABLE outlive_mailbox (
    instance    INTEGER PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    letters     INTEGER NOT NULL,
    since_at_us INTEGER NOT NULL
);
CREATE INDEX outlive_mailbox_since ON outlive_mailbox (namespace, kind, name, since_at_us);

CREATE TRIGGER outlive_letter_put AFTER INSERT ON outlive_letter
BEGIN
    INSERT INTO outlive_mailbox (instance, namespace, kind, name, letters, since_at_us)
    SELECT i.number, i.namespace, i.kind, i.name, 1, NEW.sent_at_us
    FROM outlive_instance AS i WHERE i.number = NEW.instance
    ON CONFLICT (instance) DO UPDATE SET letters = letters + 1;
END;

CREATE TRIGGER outlive_letter_read AFTER UPDATE OF payload ON outlive_letter
WHEN NEW.payload IS NULL AND OLD.payload IS NOT NULL
BEGIN
    UPDATE outlive_mailbox SET letters = letters - 1 WHERE instance = NEW.instance;
    DELETE FROM outlive_mailbox WHERE instance = NEW.instance AND letters <= 0;
END;

CREATE TABLE outlive_reply (
    instance INTEGER NOT NULL,
    message  TEXT    NOT NULL,
    payload  TEXT    NOT NULL,
    PRIMARY KEY (instance, message)
) WITHOUT ROWID;

-- Hosts that want to hear of replies and of the end. Only a hint is lost with a row.
CREATE TABLE outlive_watcher (
    instance    INTEGER NOT NULL,
    host        TEXT    NOT NULL,
    until_at_us INTEGER NOT NULL,
    PRIMARY KEY (instance, host)
) WITHOUT ROWID;

-- Hosts that found too few instances and want to be rung. Only a hint is lost with a row.
CREATE TABLE outlive_instance_waiter (
    note        INTEGER PRIMARY KEY,             -- the oldest is rung first
    namespace   TEXT    NOT NULL,
    definition  TEXT    NOT NULL,                -- kind and name, with a slash between them
    host        TEXT    NOT NULL,
    until_at_us INTEGER NOT NULL,
    called      INTEGER NOT NULL DEFAULT 0,      -- an instance that a user's transaction started
    UNIQUE (namespace, definition, host)
);

-- The greatest token of all that was removed: who owned some of it owns nothing of what is started
-- under the same id.
CREATE TABLE outlive_instance_floor (
    namespace TEXT    PRIMARY KEY,
    token     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER outlive_instance_removed AFTER DELETE ON outlive_instance
BEGIN
    INSERT INTO outlive_instance_floor (namespace, token) VALUES (OLD.namespace, OLD.token)
    ON CONFLICT (namespace) DO UPDATE SET token = excluded.token WHERE excluded.token > token;
    DELETE FROM outlive_instance_input WHERE instance = OLD.number;
    DELETE FROM outlive_history WHERE instance = OLD.number;
    DELETE FROM outlive_letter WHERE instance = OLD.number;
    DELETE FROM outlive_mailbox WHERE instance = OLD.number;
    DELETE FROM outlive_reply WHERE instance = OLD.number;
    DELETE FROM outlive_watcher WHERE instance = OLD.number;
END;

-- However a job ends, its letter is put in the same transaction. An instance that has ended, or is
-- gone, gets none; neither does one that had it before.
CREATE TRIGGER outlive_job_answered AFTER UPDATE OF state ON outlive_job
WHEN NEW.instance IS NOT NULL AND NEW.state IN ('done', 'dead', 'cancelled')
    AND OLD.state NOT IN ('done', 'dead', 'cancelled')
BEGIN
    INSERT OR IGNORE INTO outlive_letter (instance, id, kind, name, sent_at_us, payload)
    SELECT i.number, 'job/' || NEW.id, 'step', NEW.step, NEW.ended_at_us,
        '{"state":"' || NEW.state || '","outcome":'
            || coalesce(CASE NEW.state WHEN 'done' THEN NEW.result ELSE NEW.error END, 'null')
            || '}'
    FROM outlive_instance AS i
    WHERE i.id = NEW.instance AND i.namespace = NEW.namespace AND i.ended_at_us IS NULL;
END;
