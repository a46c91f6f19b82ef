-- Limits by key: docs/design/limits.md.
-- oldest: 1

-- The limit and the key of a job, if it has one. `ready` is 2 for a pending job with a limit that is
-- due.
ALTER TABLE {prefix}job ADD COLUMN lane TEXT;

-- Its weight, if the limit takes it from the job.
ALTER TABLE {prefix}job ADD COLUMN weight REAL;

-- limits.waiting, limits.heads
CREATE INDEX {prefix}job_line ON {prefix}job (lane, priority, scheduled_at, id) WHERE ready = 2;

-- next_available_in, stats
CREATE INDEX {prefix}job_line_type ON {prefix}job (type_name, scheduled_at) WHERE ready = 2;

-- What code declares of a limit: the one with the latest first_seen_at holds.
CREATE TABLE {prefix}limit_declared (
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    rule TEXT NOT NULL,
    types TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    PRIMARY KEY (name, digest)
) STRICT, WITHOUT ROWID;

-- What was set at run time for a lane, or for all lanes of a limit (then lane is its name).
CREATE TABLE {prefix}limit_change (
    lane TEXT NOT NULL PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What is known of a lane besides its jobs. tag: its turn; NULL if it has none. begun: how many jobs
-- have begun under a rate. keep_until: when the row need not be known, if it has no turn and no holder.
CREATE TABLE {prefix}lane (
    lane TEXT NOT NULL PRIMARY KEY,
    tag REAL,
    begun INTEGER NOT NULL DEFAULT 0,
    begun_at INTEGER,
    closed_until INTEGER,
    holder TEXT,
    keep_until INTEGER
) STRICT, WITHOUT ROWID;

-- The last begins of a lane that has a rate.
CREATE TABLE {prefix}begun (
    lane TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;
