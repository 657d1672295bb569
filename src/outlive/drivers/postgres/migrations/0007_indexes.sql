-- Schema 7: claimed jobs stand in no index of pages, and queues that limit how many of their jobs run
-- have an index of their own. Hosts of older releases that run or restart go on; their listings of
-- jobs read the whole table until they are replaced.
-- compatible_with: 5

-- A claim writes each index that the new version belongs to. Claimed jobs are few: listings find them
-- by the index that those who reap use, and sort them.
--
-- The state is asked for in words that listings alone use. Else the index would do for claims too, and
-- where nothing is known of the table, the planner takes it as soon as the one that is in their order
-- is higher by a level: then each claim would read and sort the whole queue.
--
-- The lock that the removal takes is held to the end. To build first and lock then would let two
-- who hold a lesser lock wait for each other.
DROP INDEX {s}.job_page;
CREATE INDEX job_page ON {s}.job (namespace, queue, number)
    WHERE state || '' <> 'claimed';

-- Whoever ends a claim asks whether somebody waits for the room that it leaves.
CREATE INDEX queue_limited ON {s}.queue (namespace, name)
    WHERE concurrency IS NOT NULL;

-- Of two hosts that hear of a letter, one is the host whose note ends last: the oldest notes may be of
-- hosts that died. All else is as it was.
CREATE OR REPLACE FUNCTION {s}.job_answers() RETURNS trigger LANGUAGE plpgsql AS $body$
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
