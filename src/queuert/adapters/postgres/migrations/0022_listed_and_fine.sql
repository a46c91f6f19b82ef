-- Listings of pending jobs, by type and id; and how long things took, in buckets that are a tenth wide.
-- oldest: 6

-- All fine buckets of a step, in its row with the bucket -2: for each, its count * 1024 + its number
-- (see queuert.history). Older versions leave that row out, as its own number is 0. The table must be
-- locked for a moment: see 0008.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {history} ADD COLUMN IF NOT EXISTS fine bigint[];
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of the history is in use: a transaction has been open for a minute';
END $body$;

-- commit

-- Each table must be locked for a moment: see 0017. An index on rows that are
-- inserted at the end of it, and are deleted without a word to it.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
-- pending_jobs. (It begins the line, so that its name is known.)
CREATE INDEX IF NOT EXISTS {later_listed} ON {later} (type_name, id);
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
CREATE INDEX IF NOT EXISTS {line_listed} ON {line} (type_name, id);
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of limited jobs is in use: a transaction has been open for a minute';
END $body$;

-- commit

DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
CREATE INDEX IF NOT EXISTS {ready_listed} ON {ready} (type_name, id);
            PERFORM set_config('lock_timeout', v_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of ready jobs is in use: a transaction has been open for a minute';
END $body$;
