-- Schedules.
-- oldest: 1

-- One row for each schedule. `version` counts its changes. `due_at` is when a worker has something
-- to do with it; NULL: not before something else changes it. `definition` (what it does) and `state`
-- (how far it has come) are JSON. `incarnation` is part of the ids of its chains.
CREATE TABLE {prefix}schedule (
    name TEXT NOT NULL PRIMARY KEY,
    incarnation INTEGER NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    next_at INTEGER,
    due_at INTEGER,
    by_function INTEGER NOT NULL DEFAULT 0,
    declared INTEGER NOT NULL DEFAULT 0,
    definition TEXT NOT NULL,
    state TEXT NOT NULL
) STRICT;

CREATE INDEX {prefix}schedule_due ON {prefix}schedule (due_at, name) WHERE due_at IS NOT NULL;

CREATE INDEX {prefix}schedule_declared ON {prefix}schedule (name) WHERE declared;

-- Which releases of the program declare a schedule, and since when.
CREATE TABLE {prefix}schedule_seen (
    schedule TEXT NOT NULL,
    release TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, release)
) STRICT, WITHOUT ROWID;
