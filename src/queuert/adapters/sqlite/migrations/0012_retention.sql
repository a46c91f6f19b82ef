-- How long ended chains are kept, how far deleting them is, and attempts that failed.
-- oldest: 1

-- How long chains of a type are kept after their end, in seconds (NULL: for ever), and the id up to
-- which they were looked at. archived: only by processes that can archive them.
CREATE TABLE {prefix}retention (
    type_name TEXT NOT NULL PRIMARY KEY,
    completed REAL,
    failed REAL,
    cancelled REAL,
    expired REAL,
    archived INTEGER NOT NULL DEFAULT 0,
    stored_at INTEGER NOT NULL,
    walked TEXT
) STRICT, WITHOUT ROWID;

-- One row at most. lap_type and lap_id: where the lap is; NULL if none is under way.
CREATE TABLE {prefix}pruning (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    pruned_at INTEGER,
    lap_type TEXT,
    lap_id TEXT,
    lap_began_at INTEGER,
    lap_ended_at INTEGER
) STRICT;

-- Chains that were not due, not ended or still needed when their turn came, and when to look again.
-- A chain that is gone, but whose key still has to match, has the type and the key.
CREATE TABLE {prefix}kept (
    chain_id TEXT NOT NULL PRIMARY KEY,
    due_at INTEGER NOT NULL,
    chain_type TEXT,
    key TEXT
) STRICT, WITHOUT ROWID;

-- prune.noted
CREATE INDEX {prefix}kept_due ON {prefix}kept (due_at);

-- The window of a key with the scope "any": it is valid if window_chain is the chain that has the
-- key, which an older version does not keep up to date. ended: how the chain had ended when it was
-- pruned. NULL: it is stored.
ALTER TABLE {prefix}dedup ADD COLUMN window_chain TEXT;
ALTER TABLE {prefix}dedup ADD COLUMN started_at INTEGER;
ALTER TABLE {prefix}dedup ADD COLUMN until INTEGER;
ALTER TABLE {prefix}dedup ADD COLUMN ended TEXT;

-- The last attempts of a job that failed or were lost. number: of the attempt; retrying by hand
-- counts from one again.
CREATE TABLE {prefix}attempt (
    job_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    number INTEGER NOT NULL,
    begun_at INTEGER,
    worker TEXT,
    outcome TEXT NOT NULL,
    code TEXT,
    message TEXT,
    PRIMARY KEY (job_id, ended_at, number)
) STRICT, WITHOUT ROWID;
