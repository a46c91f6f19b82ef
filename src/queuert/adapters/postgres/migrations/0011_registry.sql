-- What workers tell of themselves, and where each job type was last handled.
-- oldest: 6

-- Not in `worker`: those rows are rewritten many times a second, and this is long and never changes
-- while a worker runs. `about`: what the worker tells of itself, as JSON (WorkerAbout). `types`: the
-- job types in it. `stopped_at`: when the worker ended, if it left running jobs behind.
CREATE TABLE {worker_about} (
    id text PRIMARY KEY,
    types text[] NOT NULL,
    about text NOT NULL,
    told_at timestamptz NOT NULL,
    stopped_at timestamptz
);

-- Where each type was last handled, by workers whose rows are gone. One row for each type.
CREATE TABLE {last_handled} (
    type_name text PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    host text,
    release text
);
