-- The queue that a running job was claimed through.
-- oldest: 6

-- Caps count by it. Null: claimed by an older version. The table must be locked for a moment: see
-- 0008.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {running} ADD COLUMN queue text;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of running jobs is in use: a transaction has been open for a minute';
END $body$;
