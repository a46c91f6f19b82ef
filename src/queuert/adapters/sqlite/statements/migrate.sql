-- The version table. Reads lock nothing. Writes run in the migration's transaction, which holds the
-- write lock. Until version 2 it was the table `migration`. Libraries of that version still read
-- it: it is left as it is, so that they can restart.

-- read: exists
SELECT
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{prefix}version'),
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{prefix}migration');

-- read: current
SELECT max(version), max(oldest) FROM {prefix}version;

-- read: current_before
SELECT coalesce(max(version), 0), 0 FROM {prefix}migration;

-- write: create
CREATE TABLE IF NOT EXISTS {prefix}version (
    version INTEGER PRIMARY KEY, oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL
) STRICT;

-- write: record
INSERT INTO {prefix}version (version, oldest, applied_at) VALUES (:version, :oldest, :applied_at);

-- write: drop
DROP TABLE IF EXISTS {prefix}migration;
