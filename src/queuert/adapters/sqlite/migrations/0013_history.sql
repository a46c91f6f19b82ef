-- What happened to jobs: see queuert.records.history.
-- oldest: 1

-- grain: how many seconds it covers. at: when they begin, in seconds since 1970. bucket: of how long
-- it took; -1: no time.
CREATE TABLE {prefix}history (
    grain INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type_name TEXT NOT NULL,
    what TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    number INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (grain, at, type_name, what, bucket)
) STRICT, WITHOUT ROWID;
