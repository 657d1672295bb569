-- Schedules: when the next tick of each is due, and what was fired. Ticks are UTC in microseconds,
-- because hosts compute them and compare them to the last digit.

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
