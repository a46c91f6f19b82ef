-- How many attempts of a job were lost with their worker.
-- oldest: 6

-- A constant default: no row is written. The tables must be locked for a moment: see 0008. The table
-- of jobs comes first, and nothing else that workers write is locked, so no worker that holds another
-- table and wants this one is in the way. The column is the last one of the view.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {job} ADD COLUMN losses integer NOT NULL DEFAULT 0;
            CREATE OR REPLACE VIEW {jobs} AS
            SELECT
                j.id,
                j.type_name AS job_type,
                CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END AS status,
                j.chain_id,
                j.chain_type,
                j.chain_index,
                j.priority,
                j.attempt + (r.job_id IS NOT NULL)::integer AS attempt_number,
                j.created_at,
                j.scheduled_at,
                coalesce(r.started_at, j.last_attempt_at) AS last_attempt_at,
                j.completed_at,
                j.completed_by,
                j.continued_to,
                r.worker AS leased_by,
                r.leased_until,
                j.deadline,
                j.dedup_key,
                j.blockers_left,
                j.input,
                j.output,
                j.last_error,
                least(j.losses, j.attempt) AS losses
            FROM {job} AS j LEFT JOIN {running} AS r ON r.job_id = j.id;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of jobs is in use: a transaction has been open for a minute';
END $body$;
