-- Moving jobs into and out of the in-flight tables: `ready`, `line`, `later` and `running`.

-- Add pending jobs to `ready`, `line` or `later`, by their scheduled time and their limit. The caller
-- has locked the jobs.
CREATE OR REPLACE FUNCTION {enqueue}(p_ids uuid[], p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {ready} (type_name, priority, scheduled_at, id)
    SELECT type_name, priority, scheduled_at, id FROM {job} WHERE id = ANY (p_ids) AND scheduled_at <= p_now AND lane IS NULL;
    IF EXISTS (SELECT FROM {job} WHERE id = ANY (p_ids) AND scheduled_at <= p_now AND lane IS NOT NULL) THEN
        INSERT INTO {line} (lane, priority, scheduled_at, id, type_name)
        SELECT lane, priority, scheduled_at, id, type_name FROM {job} WHERE id = ANY (p_ids) AND scheduled_at <= p_now AND lane IS NOT NULL;
    END IF;
    INSERT INTO {later} (type_name, scheduled_at, id, priority, lane)
    SELECT type_name, scheduled_at, id, priority, lane FROM {job} WHERE id = ANY (p_ids) AND scheduled_at > p_now;
END $body$;

-- Remove jobs from the in-flight tables (by primary key each). The caller has locked the in-flight
-- rows. A job may hold its lane without running: claims have to look at it.
CREATE OR REPLACE FUNCTION {dequeue}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {running} WHERE job_id = ANY (p_ids);
    DELETE FROM {ready} AS r USING {job} AS j
    WHERE j.id = ANY (p_ids) AND r.type_name = j.type_name AND r.priority = j.priority
        AND r.scheduled_at = j.scheduled_at AND r.id = j.id;
    IF EXISTS (SELECT FROM {job} WHERE id = ANY (p_ids) AND lane IS NOT NULL) THEN
        DELETE FROM {line} AS e USING {job} AS j
        WHERE j.id = ANY (p_ids) AND e.lane = j.lane AND e.priority = j.priority AND e.scheduled_at = j.scheduled_at AND e.id = j.id;
        INSERT INTO {news} (lane, kind) SELECT DISTINCT lane, 0 FROM {job} WHERE id = ANY (p_ids) AND lane IS NOT NULL;
    END IF;
    DELETE FROM {later} AS l USING {job} AS j
    WHERE j.id = ANY (p_ids) AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at AND l.id = j.id;
END $body$;

-- Move jobs without a limit that are due from `later` to `ready`, in the order of the primary key of `later`:
-- longest due first. At most `p_limit` of each type, so that many jobs due at one moment do not
-- delay one claim; the next claims move the rest. Locked rows are skipped. `p_since`: for each
-- type, jobs due by then were moved recently. Returns the number of jobs moved; `p_limit` or more:
-- there may be more.
CREATE OR REPLACE FUNCTION {promote}(p_types text[], p_since timestamptz[], p_limit bigint, p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    v_moved bigint;
BEGIN
    WITH due AS (
        DELETE FROM {later} WHERE ctid = ANY (ARRAY(
            SELECT l.ctid FROM unnest(p_types, p_since) AS asked (type_name, since)
            CROSS JOIN LATERAL (
                SELECT e.ctid FROM {later} AS e
                WHERE e.type_name = asked.type_name AND e.scheduled_at > coalesce(asked.since, '-infinity') AND e.scheduled_at <= p_now
                    AND e.lane IS NULL
                ORDER BY e.scheduled_at, e.id LIMIT p_limit FOR UPDATE SKIP LOCKED
            ) AS l
        ))
        RETURNING type_name, priority, scheduled_at, id
    )
    INSERT INTO {ready} (type_name, priority, scheduled_at, id) SELECT type_name, priority, scheduled_at, id FROM due;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $body$;

-- The same for jobs that have a limit, to `line`. Locks rows of `later`, and skips locked ones. Primary key.
CREATE OR REPLACE FUNCTION {promote_lanes}(p_types text[], p_limit bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_places tid[];
BEGIN
    v_places := ARRAY(
        SELECT l.ctid FROM unnest(p_types) AS asked (type_name)
        CROSS JOIN LATERAL (
            SELECT e.ctid FROM {later} AS e
            WHERE e.type_name = asked.type_name AND e.scheduled_at <= p_now AND e.lane IS NOT NULL
            ORDER BY e.scheduled_at, e.id LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) AS l
    );
    IF cardinality(v_places) > 0 THEN
        WITH due AS (DELETE FROM {later} WHERE ctid = ANY (v_places) RETURNING type_name, priority, scheduled_at, id, lane)
        INSERT INTO {line} (lane, priority, scheduled_at, id, type_name) SELECT lane, priority, scheduled_at, id, type_name FROM due;
    END IF;
END $body$;
