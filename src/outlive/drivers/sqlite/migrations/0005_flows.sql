-- Flows: instances, their histories, their mailboxes, and who wants to hear of them.
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

-- A job that answers an instance, and the step that it is.
ALTER TABLE outlive_job ADD COLUMN instance TEXT;
ALTER TABLE outlive_job ADD COLUMN step TEXT;

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
