-- How long ended chains are kept, how far deleting them is, and attempts that failed.
-- oldest: 1

-- How long chains of a type are kept after their end, in seconds (NULL: for ever), and the id up to
-- which they were looked at. archived: they are archived before they are deleted, and what is kept of that
-- is deleted after so many months (NULL: never). archive_error: why that last failed.
CREATE TABLE {prefix}retention (
    type_name TEXT NOT NULL PRIMARY KEY,
    completed REAL,
    failed REAL,
    cancelled REAL,
    expired REAL,
    archived INTEGER NOT NULL DEFAULT 0,
    months INTEGER,
    stored_at INTEGER NOT NULL,
    walked TEXT,
    archive_error TEXT,
    archive_failed_at INTEGER
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
-- A chain that is gone, but whose key still has to match, has the type and the key. archive: the type
-- of a chain that is due, and is to be archived; its due_at is after all times.
CREATE TABLE {prefix}kept (
    chain_id TEXT NOT NULL PRIMARY KEY,
    due_at INTEGER NOT NULL,
    chain_type TEXT,
    key TEXT,
    archive TEXT
) STRICT, WITHOUT ROWID;

-- prune.noted
CREATE INDEX {prefix}kept_due ON {prefix}kept (due_at);

-- archive.take
CREATE INDEX {prefix}kept_archive ON {prefix}kept (archive, chain_id) WHERE archive IS NOT NULL;

-- Archived chains. The oldest ones have the lowest rowids, and whole months of them are deleted. chain:
-- NULL if the chain is elsewhere, as place tells.
CREATE TABLE {prefix}archived (
    number INTEGER NOT NULL PRIMARY KEY,
    chain_id TEXT NOT NULL,
    chain_type TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    place TEXT NOT NULL,
    chain TEXT
) STRICT;

-- archive.get
CREATE INDEX {prefix}archived_chain ON {prefix}archived (chain_id);

-- Part of the public promise: see docs/retention.md.
CREATE VIEW {prefix}archive AS
SELECT
    chain_id,
    chain_type,
    status,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended_at / 1000000.0, 'unixepoch') AS ended_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', archived_at / 1000000.0, 'unixepoch') AS archived_at,
    place,
    chain
FROM {prefix}archived;

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
