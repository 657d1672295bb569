-- Schema 7: claimed jobs stand in no index of pages. A claim writes each index that the new version
-- belongs to, and there are few claimed jobs: listings find them by the index that those who reap
-- use, and sort them. Hosts of older releases that run or restart go on; their listings read the
-- whole table until they are replaced.
-- compatible_with: 5

-- The lock that the removal takes is held to the end. To build first and lock then would let two
-- who hold a lesser lock wait for each other.
DROP INDEX {s}.job_page;
CREATE INDEX job_page ON {s}.job (namespace, queue, number)
    WHERE state <> 'claimed';
