-- Claims that have ended are told once for each statement, not for each row.
-- oldest: 6

-- Not part of a set of functions: see 0017.
CREATE OR REPLACE
FUNCTION {schema}."{prefix}lanes_left"() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {news} (lane, kind) SELECT e.lane, -1 FROM ended AS e WHERE e.lane IS NOT NULL;
    RETURN NULL;
END $body$;

-- The table must be locked for a moment: see 0008. So no transaction has deleted a row by one trigger, and not by the other.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            DROP TRIGGER lane_left ON {running};
            CREATE TRIGGER lanes_left AFTER DELETE ON {running} REFERENCING OLD TABLE AS ended FOR EACH STATEMENT
            EXECUTE FUNCTION {schema}."{prefix}lanes_left"();
            DROP FUNCTION {schema}."{prefix}lane_left"();
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
