-- The workers, and the order of each worker's claims.
-- oldest: 6

-- `horizon`: handlers of jobs up to this ordinal of the worker may have begun. `server_started`:
-- when the server had started that the row was last written on. `lock_key`: the advisory lock that
-- the worker's listening connection holds, seen in the run of the server that began at
-- `lock_server`; null if it holds none, and then only leases tell that the worker is gone.
-- `silent_since`: when that lock was first seen missing. `process` is for databases without a
-- server.
CREATE TABLE {worker} (
    id text PRIMARY KEY,
    registered_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    horizon bigint NOT NULL DEFAULT 0,
    server_started timestamptz,
    lock_key bigint,
    lock_server timestamptz,
    silent_since timestamptz,
    process text
) WITH (fillfactor = 50);

-- The position of a job among its worker's claims. Null: claimed by an older version. The table
-- must be locked for a moment. A handler that has a transaction open would make us wait, and all
-- others behind us: so wait a fifth of a second at a time.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {running} ADD COLUMN ordinal bigint;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of running jobs is in use: a transaction has been open for a minute';
END $body$;
