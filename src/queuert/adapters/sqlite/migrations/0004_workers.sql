-- The workers, and the order of each worker's claims.
-- oldest: 1

-- horizon: handlers of jobs up to this ordinal of the worker may have begun. process: which process
-- it is, as JSON, so that others on the same machine can see that it is gone. NULL if unknown.
CREATE TABLE {prefix}worker (
    id TEXT NOT NULL PRIMARY KEY,
    registered_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    horizon INTEGER NOT NULL DEFAULT 0,
    process TEXT
) STRICT, WITHOUT ROWID;

-- The position of a running job among its worker's claims. NULL: claimed by an older version.
ALTER TABLE {prefix}job ADD COLUMN ordinal INTEGER;
