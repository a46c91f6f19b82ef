-- What happened to jobs: see queuert.records.history.
-- oldest: 6

-- Added by each claim, settlement and change, in its transaction, and merged into `history` soon.
-- `number` below zero: it did not happen after all. `since`: for each job of which that is known, from
-- when on it took until `at`. There is no index: it is added to all the time, and read as a whole.
CREATE TABLE {tally} (
    at timestamptz NOT NULL,
    type_name text NOT NULL,
    what text NOT NULL,
    number integer NOT NULL,
    since timestamptz[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Compressing would take longer than writing, and it is deleted soon.
ALTER TABLE {tally} ALTER COLUMN since SET STORAGE EXTERNAL;

-- `grain`: how many seconds it covers. `at`: when they begin, in seconds since 1970. `bucket`: of how
-- long it took; -1: no time. Rows of the last minute are updated several times.
CREATE TABLE {history} (
    grain integer NOT NULL,
    at bigint NOT NULL,
    type_name text NOT NULL,
    what text NOT NULL,
    bucket integer NOT NULL,
    number bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (grain, at, type_name, what, bucket)
) WITH (fillfactor = 80);
