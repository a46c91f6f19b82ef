-- Pausing at run time.
-- oldest: 6

-- What workers must not claim. `scope` is 'everything', 'queue' or 'type'; `until` is null if only
-- `resume` ends it. Almost always empty: every claim looks at it.
CREATE TABLE {pause} (
    scope text NOT NULL,
    name text NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz,
    reason text,
    paused_by text,
    cancel_running boolean NOT NULL DEFAULT false,
    PRIMARY KEY (scope, name)
);
