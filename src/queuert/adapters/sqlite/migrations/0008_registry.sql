-- What workers tell of themselves, and where each job type was last handled.
-- oldest: 1

-- about: what the worker tells of itself, as JSON (WorkerAbout). NULL: an older version.
ALTER TABLE {prefix}worker ADD COLUMN about TEXT;

-- When the worker ended, if it left running jobs behind.
ALTER TABLE {prefix}worker ADD COLUMN stopped_at INTEGER;

-- Where each type was last handled, by workers whose rows are gone. One row for each type.
CREATE TABLE {prefix}last_handled (
    type_name TEXT NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    host TEXT,
    release TEXT
) STRICT, WITHOUT ROWID;
