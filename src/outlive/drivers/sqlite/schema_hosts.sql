-- The schema of the sidecar file: the sessions of hosts. They have a file of their own, because a user's
-- long write transaction blocks the main file and must not make every host look dead. Renewal threads
-- and reapers alone write it.
--
-- Instants named *_us without "at" belong to the boot-time clock of `domain`; *_at_us are UTC and
-- are for people and retention.

-- compatible_with is the version of the oldest release that can use this schema. A table of our own,
-- because the file may be the user's too, and so may its user_version.
CREATE TABLE outlive_schema (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    version         INTEGER NOT NULL,
    compatible_with INTEGER NOT NULL
);

-- An ended session stays for a while as a tombstone, so that its id is refused if it comes back.
CREATE TABLE outlive_session (
    namespace     TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    domain        TEXT    NOT NULL,
    ttl_us        INTEGER NOT NULL,
    expires_us    INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    metadata      TEXT    NOT NULL,
    started_at_us INTEGER NOT NULL,
    ended_at_us   INTEGER,            -- NULL: not ended
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- What a reaper in another domain has seen of a session: `version` unchanged since `seen_us` of
-- the reaper's own clock.
CREATE TABLE outlive_observation (
    namespace TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    domain    TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    seen_us   INTEGER NOT NULL,
    PRIMARY KEY (namespace, id, domain)
) WITHOUT ROWID;
