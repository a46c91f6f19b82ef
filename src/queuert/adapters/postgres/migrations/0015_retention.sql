-- How long ended chains are kept, how far deleting them is, and attempts that failed.
-- oldest: 6

-- How long chains of a type are kept after their end, in seconds (null: for ever), and the id up to
-- which they were looked at. `archived`: they are archived before they are deleted, and what is kept of
-- that is deleted after so many months (null: never). `archive_error`: why that last failed.
CREATE TABLE {retention} (
    type_name text PRIMARY KEY,
    completed double precision,
    failed double precision,
    cancelled double precision,
    expired double precision,
    archived boolean NOT NULL DEFAULT false,
    months integer,
    stored_at timestamptz NOT NULL,
    walked uuid,
    archive_error text,
    archive_failed_at timestamptz
) WITH (fillfactor = 50);

-- One row at most, which the process that deletes has locked. `noted_until`: notes with an earlier time were
-- looked at, so the dead entries before it need not be read again. `lap_type` and `lap_id`: where the
-- lap is; null if none is under way.
CREATE TABLE {pruning} (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    pruned_at timestamptz,
    noted_until timestamptz NOT NULL DEFAULT '-infinity',
    lap_type text,
    lap_id uuid,
    lap_began_at timestamptz,
    lap_ended_at timestamptz
) WITH (fillfactor = 50);

-- Chains that were not due, not ended or still needed when their turn came, and when to look again;
-- and chains that are gone, whose key still has to match. `archive`: the type of a chain that is due, and
-- is to be archived; its `due_at` is infinity.
CREATE TABLE {kept} (
    chain_id uuid PRIMARY KEY,
    due_at timestamptz NOT NULL,
    archive text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- prune
CREATE INDEX {kept_due} ON {kept} (due_at);

-- archive.take
CREATE INDEX {kept_archive} ON {kept} (archive, chain_id) WHERE archive IS NOT NULL;

-- Archived chains. Part of the public promise: see docs/retention.md. A partition for each month, by
-- `archived_at`, which is made before the month begins. If the role of the workers may not make one, rows
-- go to `archive_rest`. `chain`: null if the chain is elsewhere, as `place` tells.
CREATE TABLE {archive} (
    chain_id uuid NOT NULL,
    chain_type text NOT NULL,
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    archived_at timestamptz NOT NULL,
    place text NOT NULL,
    chain jsonb
) PARTITION BY RANGE (archived_at);

CREATE TABLE {archive_rest} PARTITION OF {archive} DEFAULT;

-- archive.get
CREATE INDEX {archive_chain} ON {archive} (chain_id);

-- The last attempts of a job that failed or were lost. `number`: of the attempt; retrying by hand
-- counts from one again.
CREATE TABLE {attempt} (
    job_id uuid NOT NULL,
    ended_at timestamptz NOT NULL,
    number integer NOT NULL,
    begun_at timestamptz,
    worker text,
    outcome text NOT NULL,
    code text,
    message text,
    PRIMARY KEY (job_id, ended_at, number)
);

-- The window of a key with the scope "any": it is valid if `window_chain` is the chain that has the
-- key, which an older version does not keep up to date. `ended`: how the chain had ended when it was
-- pruned; null: it is stored. The table must be locked for a moment: see 0008.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {key} ADD COLUMN window_chain uuid, ADD COLUMN started_at timestamptz, ADD COLUMN until timestamptz,
                ADD COLUMN ended text;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of keys is in use: a transaction has been open for a minute';
END $body$;
