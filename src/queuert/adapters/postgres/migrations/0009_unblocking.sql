-- Freeing very many dependents in several transactions.
-- oldest: 6

-- Chains that are completed, but have dependents that still wait. Each edge of the chain to a job
-- from `next_id` on is still to be counted down (index blocker_chain). Almost always empty.
CREATE TABLE {unblocking} (
    chain_id uuid PRIMARY KEY,
    next_id uuid NOT NULL
);

-- True: the chain was completed when the job was stored, so the job never waited for it. Unknown for
-- edges that older versions have written. The table must be locked for a moment: see 0008.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {blocker} ADD COLUMN done boolean;
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of blockers is in use: a transaction has been open for a minute';
END $body$;
