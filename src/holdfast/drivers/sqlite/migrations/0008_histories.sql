-- Histories are written one behind the other, as they come, and found by an index. Kept together by
-- instance, a commit of many flows wrote a page of 4 KiB for each of them. Older releases read and
-- write them as before. All rows are copied: nobody writes meanwhile, some seconds for a million.
-- compatible_with: 5

CREATE TABLE holdfast_history_8 (
    instance  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    commit_id TEXT    NOT NULL,
    token     INTEGER NOT NULL,
    worker    TEXT,
    at_us     INTEGER NOT NULL,
    events    TEXT    NOT NULL,
    PRIMARY KEY (instance, version)
);

INSERT INTO holdfast_history_8 (instance, version, commit_id, token, worker, at_us, events)
SELECT instance, version, commit_id, token, worker, at_us, events
FROM holdfast_history ORDER BY instance, version;

DROP TABLE holdfast_history;

-- The triggers that name the table go on to mean it.
ALTER TABLE holdfast_history_8 RENAME TO holdfast_history;
