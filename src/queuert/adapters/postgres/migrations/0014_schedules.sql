-- Schedules.
-- oldest: 6

-- One row for each schedule. `version` counts its changes. `due_at` is when a worker has something
-- to do with it; null: not before something else changes it. `definition` (what it does) and `state`
-- (how far it has come) are JSON. `incarnation` is part of the ids of its chains. Each firing
-- rewrites the row: there is room for that in its page.
CREATE TABLE {schedule} (
    name text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL UNIQUE,
    version bigint NOT NULL,
    next_at timestamptz,
    due_at timestamptz,
    by_function boolean NOT NULL DEFAULT false,
    declared boolean NOT NULL DEFAULT false,
    definition json NOT NULL,
    state json NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX {schedule_due} ON {schedule} (due_at, name) WHERE due_at IS NOT NULL;

CREATE INDEX {schedule_declared} ON {schedule} (name) WHERE declared;

-- Which releases of the program declare a schedule, and since when.
CREATE TABLE {schedule_seen} (
    schedule text COLLATE "C" NOT NULL,
    release text COLLATE "C" NOT NULL,
    first_seen_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, release)
);
