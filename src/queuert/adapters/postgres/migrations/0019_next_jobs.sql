-- Jobs by type: the first jobs of chains are in job_first, so another index need not have them.
-- oldest: 6

-- Every start writes into one index less. The table must be locked while the new index is made, so
-- that is done only if it is small. A large one keeps job_type, which `typed_jobs` then uses:
-- docs/postgres.md tells how to replace it without a lock. See 0008 for the way to wait.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    IF pg_relation_size({job_text}) > 200000000 THEN
        RETURN;
    END IF;
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE {job} IN ACCESS EXCLUSIVE MODE;
            PERFORM set_config('lock_timeout', v_before, true);
-- list_jobs by type: all but first jobs. (It begins the line, so that its name is known.)
CREATE INDEX IF NOT EXISTS {job_next} ON {job} (type_name, id) WHERE chain_index > 0;
            DROP INDEX IF EXISTS {schema}.{job_type};
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of jobs is in use: a transaction has been open for a minute';
END $body$;
