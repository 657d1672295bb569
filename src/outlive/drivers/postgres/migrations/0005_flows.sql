-- Schema 5: instances (flows and charts) with their histories, mailboxes and replies, who is to be
-- rung, and jobs that answer an instance. Adds only: hosts of schema 4 that still run go on with
-- their leases and jobs. Instants are the server's wall clock in microseconds since 1970, because
-- hosts compute with them and compare them to the last digit.

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

-- A job whose end is a letter to an instance.
ALTER TABLE {s}.job ADD COLUMN instance text COLLATE "C", ADD COLUMN step text;

-- Puts the letter in the transaction that ends the job, whichever statement that is, also one of an
-- older release. The channel is the one that hosts compute for the namespace.
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
            ORDER BY w.since_us LIMIT 2
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
