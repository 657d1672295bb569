-- Leases, their history and their queues.
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
