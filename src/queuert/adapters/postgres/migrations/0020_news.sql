-- News tells which transaction has written it, so that a claim can leave out what it has read before.
-- oldest: 6

-- The id of a row becomes the id of its transaction. Nothing has read it so far, and functions of older
-- versions do not write it. A transaction may write several equal rows, so the key goes. FULL: then rows
-- can be deleted if the table is published. Rows that are there now keep their ids: they are committed,
-- so the first claim that has read a lane has seen them. The table must be locked for a moment: see 0008.
DO $body$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    FOR v_try IN 1..200 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            ALTER TABLE {news} DROP CONSTRAINT "{prefix}news_pkey", ALTER COLUMN id DROP IDENTITY,
                ALTER COLUMN id SET DEFAULT pg_current_xact_id()::text::bigint, REPLICA IDENTITY FULL;
            PERFORM set_config('lock_timeout', v_before, true);
-- take_news, look_for_lanes. (It begins the line, so that its name is known.)
CREATE INDEX {news_lane} ON {news} (lane, kind, id);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = 'the table of news is in use: a transaction has been open for a minute';
END $body$;
