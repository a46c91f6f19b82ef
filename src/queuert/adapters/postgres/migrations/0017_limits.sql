-- Limits by key. docs/design/limits.md explains the tables, and in which order rows are locked.
-- oldest: 6

-- Each table must be locked for a moment: see 0008. One at a time, each in a transaction of its own:
-- workers hold one of these tables while they want another, in either order.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {later} ADD COLUMN IF NOT EXISTS lane text;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of later jobs is in use: a transaction has been open for a minute';
END $body$;

-- commit

DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {job} ADD COLUMN IF NOT EXISTS lane text, ADD COLUMN IF NOT EXISTS weight double precision;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of jobs is in use: a transaction has been open for a minute';
END $body$;

-- commit

-- What code declares of a limit: the one with the latest `first_seen_at` holds.
CREATE TABLE {limit_declared} (
    name text COLLATE "C" NOT NULL,
    digest text NOT NULL,
    rule text NOT NULL,
    types text[] NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    PRIMARY KEY (name, digest)
) WITH (fillfactor = 50);

-- What was set at run time for a lane, or for all lanes of a limit (then `lane` is its name).
CREATE TABLE {limit_change} (
    lane text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    rule text NOT NULL
);

-- The lanes that have running jobs, a turn, or something else to remember. Only claims write here.
-- `open`: it has a turn, and all that is known of it is there; the other columns mean nothing then.
-- `reopen_at`, `reopen_name`: its row in `reopen`. No index but the key, and room in each page:
-- updates are in place.
CREATE TABLE {lane} (
    lane text COLLATE "C" PRIMARY KEY,
    open boolean NOT NULL DEFAULT false,
    running integer NOT NULL DEFAULT 0,
    reopen_at timestamptz,
    reopen_name text COLLATE "C",
    begun bigint NOT NULL DEFAULT 0,
    begun_at timestamptz,
    holder uuid
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The lanes whose jobs may begin, in the order of their turns, and what is known of them. Rows are
-- inserted and deleted, never updated.
CREATE TABLE {turn} (
    name text COLLATE "C" NOT NULL,
    tag double precision NOT NULL,
    lane text COLLATE "C" NOT NULL,
    running integer NOT NULL,
    begun bigint NOT NULL,
    begun_at timestamptz,
    holder uuid,
    PRIMARY KEY (name, tag, lane)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The lanes that a rate has closed, and when each opens. Also those that need not be known from then
-- on: their name begins with U+0001, so that no worker wakes up for them.
CREATE TABLE {reopen} (
    name text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    lane text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, at, lane)
);

-- The last begins of a lane that has a rate.
CREATE TABLE {begun} (
    lane text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (lane, seq)
);

-- Lanes that a job has closed.
CREATE TABLE {closing} (
    lane text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX {closing_lane} ON {closing} (lane, until);

-- Pending jobs that are due and have a limit: instead of a row in `ready`. Rows are inserted and
-- deleted, never updated.
CREATE TABLE {line} (
    lane text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    scheduled_at timestamptz NOT NULL,
    id uuid NOT NULL,
    type_name text NOT NULL,
    PRIMARY KEY (lane, priority, scheduled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- stats, next_available, why
CREATE INDEX {line_type} ON {line} (type_name, scheduled_at);

-- Something has happened to a lane: -1, a claim of it has ended; 0, anything else. Everybody adds
-- rows, and only claims take them away.
CREATE TABLE {news} (
    lane text COLLATE "C" NOT NULL,
    kind integer NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 20),
    PRIMARY KEY (lane, kind, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- These two are triggers, so that no function can forget them, not even one of an older version: a
-- claim of a lane ends exactly when its row of `running` is deleted. They do not belong to a set of
-- functions: the line break keeps their names out of it.
CREATE OR REPLACE
FUNCTION {schema}."{prefix}lane_left"() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {news} (lane, kind) VALUES (OLD.lane, -1);
    RETURN NULL;
END $body$;


CREATE OR REPLACE
FUNCTION {schema}."{prefix}lane_joined"() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {news} (lane, kind) SELECT DISTINCT j.lane, 0 FROM joined AS j;
    RETURN NULL;
END $body$;

CREATE TRIGGER lane_joined AFTER INSERT ON {line} REFERENCING NEW TABLE AS joined FOR EACH STATEMENT
EXECUTE FUNCTION {schema}."{prefix}lane_joined"();

-- The trigger above is on this table. It is locked last, so for a moment only.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {running} ADD COLUMN lane text;
            CREATE TRIGGER lane_left AFTER DELETE ON {running} FOR EACH ROW WHEN (OLD.lane IS NOT NULL)
            EXECUTE FUNCTION {schema}."{prefix}lane_left"();
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of running jobs is in use: a transaction has been open for a minute';
END $body$;
