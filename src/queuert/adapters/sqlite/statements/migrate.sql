-- The version table. Reads lock nothing; what is written is under the lock of the migration's own transaction.

-- read: exists
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{prefix}migration';

-- write: create
CREATE TABLE IF NOT EXISTS {prefix}migration (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT;

-- read: current
SELECT coalesce(max(version), 0) FROM {prefix}migration;

-- write: record
INSERT INTO {prefix}migration (version, applied_at) VALUES (:version, :applied_at);
