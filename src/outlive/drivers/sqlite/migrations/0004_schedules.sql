-- Schedules: when the next tick of each is due, and what was fired. Ticks are UTC: people name them.

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
