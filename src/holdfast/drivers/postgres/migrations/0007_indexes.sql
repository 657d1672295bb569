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
