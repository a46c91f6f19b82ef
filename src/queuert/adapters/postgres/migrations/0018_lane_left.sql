-- Claims that have ended are told once for each statement, rather than for each row: half the cost.
-- oldest: 6

-- A trigger, so that no function can forget it: see 0017. Each claim still has a row of its own, as
-- older functions count rows. It does not belong to a set of functions.
CREATE OR REPLACE
FUNCTION {schema}."{prefix}lane_left"() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {news} (lane, kind) SELECT e.lane, -1 FROM ended AS e WHERE e.lane IS NOT NULL;
    RETURN NULL;
END $body$;

-- The table must be locked for a moment: see 0008. So no transaction deletes rows of `running` while
-- the trigger and its function change.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            CREATE OR REPLACE TRIGGER lane_left AFTER DELETE ON {running} REFERENCING OLD TABLE AS ended FOR EACH STATEMENT
            EXECUTE FUNCTION {schema}."{prefix}lane_left"();
            PERFORM set_config('lock_timeout', v_before, true);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF v_try = 200 THEN
                RAISE lock_not_available USING MESSAGE = 'the tables of jobs are in use: a transaction has been open for a minute';
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
END $body$;
