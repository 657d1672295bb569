-- The schema of a store. "{s}" stands for its name, already quoted. Runs inside one transaction of the
-- migration runner, which also writes the version.

-- One row for each migration. The newest row is the version of the schema, and compatible_with the
-- version of the oldest release that can use it.
CREATE TABLE {s}.schema_version (
    version integer PRIMARY KEY,
    compatible_with integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row: which store this is. A guard compares it, so that a transaction on another database
-- (a restored copy, a replica promoted by mistake) is refused instead of silently passing.
CREATE TABLE {s}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO {s}.store DEFAULT VALUES;

-- ---- Leases, their history and their queues; sessions of hosts ----

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

-- ---- Jobs, their attempts and their queues ----

-- Settings of a queue; a queue without a row is open and has no limits. Claims lock the row only where
-- it has limits. limits_by is 'operator', or 'handler' where a declaration set the limits.
CREATE TABLE {s}.queue (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    mode text NOT NULL,
    concurrency integer,
    rate integer,
    rate_period_us bigint NOT NULL,
    limits_by text NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- Each end of a claim asks whether a host waits for the room that it leaves.
CREATE INDEX queue_limited ON {s}.queue (namespace, name)
    WHERE concurrency IS NOT NULL;

-- Claims made from queues with a rate, one row per claim call; those older than the period go.
CREATE TABLE {s}.queue_pace (
    namespace text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    claims integer NOT NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX queue_pace_newest ON {s}.queue_pace (namespace, queue, at);

-- number is the order of enqueueing, seq that of becoming ready, token that of claims. They are
-- identities and not sequences of their own, because drawing from those takes a privilege. Tokens
-- are drawn for all jobs together, so that they grow for an id that is used again after its job was
-- removed. settled says how the newest claim ended; cancel says why a claimed job is to be
-- cancelled; kept_until is when an ended one is removed. instance and step are the flow that the job
-- answers with its end, and the step of it that the job runs.
CREATE TABLE {s}.job (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    token bigint GENERATED BY DEFAULT AS IDENTITY,
    state text COLLATE "C" NOT NULL,
    blocked boolean NOT NULL,
    priority integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    max_losses integer NOT NULL,
    retention_us bigint NOT NULL,
    expires_us bigint,
    enqueued_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    expires_at timestamptz,
    claimed_at timestamptz,
    ended_at timestamptz,
    kept_until timestamptz,
    unique_key text COLLATE "C",
    ordering_key text COLLATE "C",
    session text COLLATE "C",
    host text COLLATE "C",
    worker text,
    request text COLLATE "C",
    settled text COLLATE "C",
    cancel text,
    instance text COLLATE "C",
    step text,
    retry text NOT NULL,
    headers text NOT NULL,
    payload text NOT NULL,
    result text,
    error text,
    progress text,
    -- The id first: look-ups by id then cannot be served by an index that begins with the namespace.
    PRIMARY KEY (id, namespace)
)
-- A job is written three times: room for its next version spares a second page. The dead versions
-- of claimed jobs stand before the living in the index of ready ones until a vacuum, so it comes
-- by count and not by share of a table that may be large.
WITH (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- Every state change writes each index that the new version belongs to: two for all jobs, and one
-- that tells what the state means. All others are partial.
--
-- Claimed jobs stand in no index of pages, because a claim writes each index that the new version
-- belongs to. They are few: listings find them by the index that reaping uses, and sort them. The
-- condition is spelled as listings alone spell it. Else the index would do for claims too, and the
-- planner, without statistics, prefers it as soon as the index in the order of claims is a level
-- higher: then each claim would read and sort the whole queue.
CREATE INDEX job_page ON {s}.job (namespace, queue, number)
    WHERE state || '' <> 'claimed';
CREATE INDEX job_ready ON {s}.job (namespace, queue, priority DESC, seq)
    WHERE state = 'ready' AND NOT blocked;
-- Those of them that were lost so often that each host runs one at a time.
CREATE INDEX job_suspect ON {s}.job (namespace, queue, losses, seq)
    WHERE state = 'ready' AND NOT blocked AND losses >= 2;
CREATE INDEX job_due ON {s}.job (namespace, queue, due_at, number)
    WHERE state IN ('scheduled', 'retrying') AND NOT blocked;
CREATE INDEX job_claimed ON {s}.job (namespace, queue, session)
    WHERE state = 'claimed';
CREATE INDEX job_kept ON {s}.job (namespace, kept_until)
    WHERE kept_until IS NOT NULL;
CREATE INDEX job_expiring ON {s}.job (namespace, expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('scheduled', 'ready', 'retrying');
CREATE UNIQUE INDEX job_unique ON {s}.job (namespace, queue, unique_key)
    WHERE unique_key IS NOT NULL AND ended_at IS NULL;
-- The first of a key is the one whose turn it is, or else the next one.
CREATE INDEX job_order ON {s}.job (namespace, queue, ordering_key, blocked, number)
    WHERE ordering_key IS NOT NULL AND ended_at IS NULL;
-- Whatever goes wrong elsewhere, two jobs of a key never have their turn together.
CREATE UNIQUE INDEX job_turn ON {s}.job (namespace, queue, ordering_key)
    WHERE ordering_key IS NOT NULL AND ended_at IS NULL AND NOT blocked;

-- Claims that ended badly, and expiries.
CREATE TABLE {s}.job_attempt (
    namespace text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    token bigint NOT NULL,
    outcome text NOT NULL,
    worker text,
    claimed_at timestamptz,
    ended_at timestamptz NOT NULL,
    error text,
    PRIMARY KEY (namespace, job, number)
);

-- Hosts that found too little in a queue and want to be told of more.
CREATE TABLE {s}.waiting (
    namespace text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (namespace, queue, host)
)
WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 500
);

-- ---- Bearer tokens of the HTTP API, and the log of admin acts ----

-- digest is the SHA-256 of the token's text, which is stored nowhere. scopes are separated by spaces.
CREATE TABLE {s}.bearer (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    digest text COLLATE "C" NOT NULL,
    scopes text NOT NULL,
    created_at_us bigint NOT NULL,
    expires_at_us bigint,
    revoked_at_us bigint,
    PRIMARY KEY (namespace, id),
    UNIQUE (namespace, digest)
);

CREATE TABLE {s}.act (
    namespace text COLLATE "C" NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at_us bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    PRIMARY KEY (namespace, seq)
);

-- ---- Schedules: the next tick of each, and the last one that fired ----
--
-- Ticks are UTC in microseconds, because hosts compute them and compare them to the last digit.

-- Versions are never used twice, also after their rows are gone: a host that saw a schedule before
-- it was removed must not fire the one that took over its name.
CREATE SEQUENCE {s}.schedule_version;

CREATE TABLE {s}.schedule (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    next_at_us bigint NOT NULL,
    last_at_us bigint,
    fired bigint NOT NULL DEFAULT 0,
    created_at_us bigint NOT NULL,
    changed_at_us bigint NOT NULL,
    definition text NOT NULL,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX schedule_next ON {s}.schedule (namespace, next_at_us, name) WHERE NOT paused;

-- Ticks that were fired ahead of the present show that the clock was set back.
CREATE INDEX schedule_last ON {s}.schedule (namespace, last_at_us)
    WHERE NOT paused AND last_at_us IS NOT NULL;

-- ---- Instances (flows and charts) with their histories, mailboxes and replies ----
--
-- Instants are the server's wall clock in microseconds since 1970, because hosts compute with them
-- and compare them to the last digit.

-- Owned: session, host and worker are set. Claimable: session and ended_at_us are null, not
-- suspended, and due or with a letter. origin is the call that started it, request the one that
-- claimed it, until the first commit after that. number is the order of creation. token is 0 until
-- the first claim; first_token is what it was started with. What outlives its parent is not
-- terminated with it.
CREATE TABLE {s}.instance (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    suspended boolean NOT NULL DEFAULT false,
    token bigint NOT NULL,
    first_token bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL,
    base bigint NOT NULL DEFAULT 0,
    session text COLLATE "C",
    host text COLLATE "C",
    worker text,
    request text COLLATE "C",
    origin text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    outlives boolean NOT NULL DEFAULT false,
    due_at_us bigint,
    created_at_us bigint NOT NULL,
    began_at_us bigint NOT NULL,
    updated_at_us bigint NOT NULL,
    ended_at_us bigint,
    kept_until_us bigint,
    retention_us bigint NOT NULL,
    input text NOT NULL,
    outcome text,
    custom text,
    attributes text NOT NULL,
    headers text NOT NULL,
    -- The id first, as the session below: such look-ups then cannot be served by an index that begins
    -- with the namespace.
    PRIMARY KEY (id, namespace)
)
-- A commit of a running instance changes no indexed column; room on the page keeps it heap-only.
WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX instance_page ON {s}.instance (namespace, number);
CREATE INDEX instance_due ON {s}.instance (namespace, kind, name, due_at_us)
    WHERE session IS NULL AND ended_at_us IS NULL AND NOT suspended AND due_at_us IS NOT NULL;
CREATE INDEX instance_owned ON {s}.instance (session, namespace)
    WHERE session IS NOT NULL;
CREATE INDEX instance_parent ON {s}.instance (parent, namespace)
    WHERE parent IS NOT NULL;
CREATE INDEX instance_kept ON {s}.instance (namespace, kept_until_us)
    WHERE kept_until_us IS NOT NULL;

-- The greatest token of all that was removed: who owned some of it owns nothing of what is started
-- under the same id.
CREATE TABLE {s}.instance_floor (
    namespace text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL
);

-- One row for each commit of the current run.
CREATE TABLE {s}.instance_history (
    namespace text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    commit text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    worker text,
    at_us bigint NOT NULL,
    events text NOT NULL,
    PRIMARY KEY (instance, namespace, version)
)
-- Removed with its instance, hence in bulk.
WITH (autovacuum_vacuum_cost_delay = 0);

-- Letters that nobody has read. The definition of the receiver comes first, so that a claim finds
-- the mailboxes of what it may take; it never changes.
CREATE TABLE {s}.letter (
    namespace text COLLATE "C" NOT NULL,
    box_kind text COLLATE "C" NOT NULL,
    box_name text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    payload text NOT NULL,
    sent_at_us bigint NOT NULL,
    PRIMARY KEY (namespace, box_kind, box_name, instance, number)
)
-- Dead rows stand before the living in the walk over mailboxes until a vacuum, so it comes by count.
WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Ids of all letters that an instance ever got: the second of an id is nothing.
CREATE TABLE {s}.letter_id (
    namespace text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, id, namespace)
);

CREATE TABLE {s}.instance_reply (
    namespace text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    PRIMARY KEY (instance, message, namespace)
);

-- Whether letters lie in a mailbox just now. A function, because its query has a snapshot of its own:
-- who gives an instance up asks under a lock that senders wait for, and must see those before it.
CREATE FUNCTION {s}.has_letters(space text, of_kind text, of_name text, receiver text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    RETURN EXISTS (
        SELECT FROM {s}.letter l
        WHERE l.namespace = space AND l.box_kind = of_kind AND l.box_name = of_name
            AND l.instance = receiver
    );
END
$body$;

-- Hosts that want to be told: of something claimable, or of what becomes of one instance.
CREATE TABLE {s}.watch (
    namespace text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    since_us bigint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (namespace, topic, host)
)
WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 500
);

-- Puts the letter in the transaction that ends the job, whichever statement that is. The channel is
-- the one that hosts compute for the namespace. Of two hosts that hear of a letter, one is the host
-- whose note ends last: the oldest notes may be of hosts that died.
CREATE FUNCTION {s}.job_answers() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    receiver record;
    told bigint;
    now_us bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
    channel text := 'outlive_' || left(encode(sha256(convert_to(
        TG_TABLE_SCHEMA || '/' || NEW.namespace, 'UTF8')), 'hex'), 24);
BEGIN
    SELECT i.kind, i.name, i.session, i.host, i.suspended INTO receiver FROM {s}.instance i
    WHERE i.id = NEW.instance AND i.namespace || '' = NEW.namespace AND i.ended_at_us IS NULL
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {s}.letter_id (namespace, instance, id)
    VALUES (NEW.namespace, NEW.instance, 'job/' || NEW.id)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {s}.letter (
        namespace, box_kind, box_name, instance, id, kind, name, payload, sent_at_us
    ) VALUES (
        NEW.namespace, receiver.kind, receiver.name, NEW.instance, 'job/' || NEW.id, 'step',
        coalesce(NEW.step, ''),
        '{"state":"' || NEW.state || '","outcome":'
            || coalesce(CASE WHEN NEW.state = 'done' THEN NEW.result ELSE NEW.error END, 'null')
            || '}',
        now_us
    );
    IF receiver.session IS NOT NULL THEN
        PERFORM pg_notify(channel, json_build_object('ns', NEW.namespace, 'host', receiver.host,
            'topic', 'mail/' || NEW.instance, 'waiter', 0, 'position', 0)::text);
    ELSIF NOT receiver.suspended THEN
        WITH bell AS (
            SELECT w.topic, w.host FROM {s}.watch w
            WHERE w.namespace = NEW.namespace
                AND w.topic = 'instances/' || receiver.kind || '/' || receiver.name
                AND w.until_us > now_us
            ORDER BY w.until_us < (
                SELECT max(l.until_us) FROM {s}.watch l
                WHERE l.namespace = NEW.namespace AND l.topic = w.topic
            ), w.since_us LIMIT 2
            FOR UPDATE SKIP LOCKED
        ), answered AS (
            DELETE FROM {s}.watch w USING bell b
            WHERE w.namespace = NEW.namespace AND w.topic = b.topic AND w.host = b.host
            RETURNING w.topic, w.host
        )
        SELECT count(pg_notify(channel, json_build_object('ns', NEW.namespace, 'host', a.host,
            'topic', a.topic, 'waiter', 0, 'position', 0)::text))
        INTO told FROM answered a;
    END IF;
    RETURN NULL;
END
$body$;

CREATE TRIGGER job_answers AFTER UPDATE ON {s}.job FOR EACH ROW
WHEN (NEW.instance IS NOT NULL AND OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL)
EXECUTE FUNCTION {s}.job_answers();
