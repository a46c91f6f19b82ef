-- Pausing at run time.
-- oldest: 1

-- What workers must not claim: scope is 'everything', 'queue' or 'type'; until is NULL if only
-- `resume` ends it. Almost always empty: every claim reads it.
CREATE TABLE {prefix}pause (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    reason TEXT,
    paused_by TEXT,
    cancel_running INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
